"""Attention of com.microsoft with the projections of queries, keys and values inside."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from sardonyx.backends.base import Backend
from sardonyx.backends.operations.scores import Mask, Tile
from sardonyx.backends.standard import Array
from sardonyx.ops import attention
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Ints, Outputs, op
from sardonyx.ops.dtypes import FLOAT32
from sardonyx.ops.linalg import require_factors
from sardonyx.ops.microsoft.key_masks import score_bias
from sardonyx.ops.microsoft.kv_cache import by_beam, require_room, written
from sardonyx.ops.microsoft.rotary import rotated

# The greatest wavelength of the angles of positions, in tokens times 2 pi.
ROTARY_BASE = 10000.0


@op(domain="com.microsoft")
def Attention(
    xp: Backend,
    input: Array,
    weights: Array,
    bias: Array | None = None,
    mask_index: Array | None = None,
    past: Array | None = None,
    attention_bias: Array | None = None,
    past_sequence_length: Array | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    outputs: Outputs,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: Ints = (),
    rotary_embedding_dim: int = 0,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Array, ...]:
    """Project the input by three joined weights, and attend by head.

    A shared buffer of past and present has `past_sequence_length` rows in use.
    """
    q, k, v = projected(xp, input, weights, bias, num_heads, qkv_hidden_sizes)
    require_state(past, k, v)
    is_shared = past is not None and bool(past_present_share_buffer)
    if is_shared and past_sequence_length is None:
        raise ValueError("a shared buffer needs the input past_sequence_length; add it")
    start = past_sequence_length if is_shared else None
    if do_rotary:
        first = start if start is not None else _length(past)
        q, k = (turned(xp, x, first, rotary_embedding_dim) for x in (q, k))
    key, value = (None, None) if past is None else (past[0, ...], past[1, ...])
    y, key, value, _ = attended(
        xp,
        (q, k, v),
        (key, value, start),
        (mask_index, attention_bias, mask_filter_value),
        is_causal=unidirectional,
        scale=scale,
    )
    return (y, _stacked(xp, key, value)) if outputs > 1 else (y,)


def attended(
    xp: Backend,
    new: tuple[Array, Array, Array],
    past: tuple[Array | None, Array | None, Array | None],
    masks: tuple[Array | None, Array | None, float],
    *,
    is_causal: int,
    scale: float,
    beams: Array | None = None,
    shows_scores: bool = False,
) -> tuple[Array, Array, Array, Array | None]:
    """Return the values that each query reads, all keys, all values and perhaps the scores.

    `new` are queries, keys and values by head. `past` are keys and values, and the number of rows
    in use where they are buffers, to which the new rows are written. `masks` are a mask, a bias,
    and what a masked key adds to a score. `beams` are the origins of the past rows in buffers.
    """
    q, k, v = new
    keys, values, start = past
    mask, bias, mask_filter_value = masks
    total = k.shape[2] + (0 if keys is None else keys.shape[2])
    lengths = buffers = None
    if start is not None and keys is not None and values is not None:
        require_room(xp, "past_sequence_length", start, keys, k.shape[2])
        total = _keys_in_use(mask, bias, keys.shape[2])
        start = xp.reshape(start, (1,))
        lengths = xp.broadcast_to(start + k.shape[2], (k.shape[0],))
        buffers = written(xp, keys, k, start), written(xp, values, v, start)
        k, v = buffers
        if beams is not None:
            k, v = by_beam(xp, k, beams, start), by_beam(xp, v, beams, start)
        keys = values = None
    shape = (*q.shape[:3], total)
    before = total - new[1].shape[2] if start is None else start
    bias_of = score_bias(
        xp,
        shape,
        q.dtype,
        mask,
        bias,
        filter_value=mask_filter_value,
        past=before if is_causal else None,
    )
    if lengths is None and not shows_scores:
        key, value = attention.after(xp, keys, k), attention.after(xp, values, v)
        mask_of = partial(_masked_by, xp, bias_of, q.dtype)
        reach = None
        if mask is None and bias is None:
            # The lowest number hides a later key, whatever its score is in practice.
            reach = attention.reach_of(None, before, is_causal=bool(is_causal))
        y = attention.values_by_scores(xp, q, key, value, scale or None, mask_of, reach)
        return joined_heads(xp, y), key, value, None
    added = bias_of(attention.whole_tile(xp, shape))
    y, key, value, scores = attention.Attention(
        xp, q, k, v, added, keys, values, lengths, scale=scale or None, qk_matmul_output_mode=2
    )
    if buffers is not None:
        key, value = buffers
    return joined_heads(xp, y), key, value, scores[..., :total]


def _masked_by(
    xp: Backend, bias_of: Callable[[Tile], Array | None], dtype: Any, tile: Tile
) -> Mask:
    bias = bias_of(tile)
    if bias is None:
        return Mask(None, None)
    bias = xp.astype(bias, dtype)
    return Mask(bias, xp.not_equal(bias, -math.inf))


def projected(
    xp: Backend, x: Array, weights: Array, bias: Array | None, num_heads: int, sizes: Ints
) -> tuple[Array, Array, Array]:
    """Return queries, keys and values as (batch, heads, length, size)."""
    if x.ndim != 3 or weights.ndim != 2:
        raise ValueError(f"input and weights have {x.ndim} and {weights.ndim} axes, not 3 and 2")
    sizes = sizes or (weights.shape[1] // 3,) * 3
    if len(sizes) != 3 or sum(sizes) != weights.shape[1] or sizes[0] != sizes[1]:
        raise ValueError(
            f"queries, keys and values have sizes {list(sizes)}, but need three that add up to "
            f"{weights.shape[1]}, of which the first two are equal"
        )
    require_factors(x, weights)
    joined = xp.matmul(x, weights)
    if bias is not None:
        require_shape("bias", bias, (weights.shape[1],))
        joined = joined + bias
    ends = (sizes[0], 2 * sizes[0])
    parts = (joined[..., : ends[0]], joined[..., ends[0] : ends[1]], joined[..., ends[1] :])
    q, k, v = (by_head(xp, part, num_heads) for part in parts)
    return q, k, v


def by_head(xp: Backend, x: Array, num_heads: int) -> Array:
    """Return (batch, heads, length, size) for (batch, length, heads * size)."""
    if x.ndim != 3 or num_heads < 1 or x.shape[2] % num_heads:
        raise ValueError(f"an input of shape {x.shape} cannot be divided into {num_heads} heads")
    x = xp.reshape(x, (*x.shape[:2], num_heads, x.shape[2] // num_heads))
    return xp.permute_dims(x, (0, 2, 1, 3))


def joined_heads(xp: Backend, x: Array) -> Array:
    """Return (batch, length, heads * size) for (batch, heads, length, size)."""
    batch, heads, length, size = x.shape
    return xp.reshape(xp.permute_dims(x, (0, 2, 1, 3)), (batch, length, heads * size))


def require_state(past: Array | None, k: Array, v: Array) -> None:
    """Raise a ValueError unless the past, if any, has a key and a value for each head."""
    if past is None:
        return
    batch, heads, _, size = k.shape
    if past.ndim != 5 or (*past.shape[:3], past.shape[4]) != (2, batch, heads, size):
        raise ValueError(
            f"past has shape {past.shape}, but must have (2, {batch}, {heads}, length, {size})"
        )
    if v.shape[3] != size:
        raise ValueError(f"a past needs keys and values of one size, not {size} and {v.shape[3]}")


def _length(past: Array | None) -> int:
    return 0 if past is None else past.shape[3]


def _stacked(xp: Backend, key: Array, value: Array) -> Array:
    if key.shape != value.shape:
        raise ValueError(
            f"present joins keys and values, which have shapes {key.shape} and {value.shape}; "
            "leave that output out"
        )
    return xp.stack([key, value])


def _keys_in_use(mask: Array | None, bias: Array | None, room: int) -> int:
    """Return how many keys of a buffer a mask or a bias has numbers for."""
    if mask is not None and mask.ndim == 4:
        raise ValueError("a mask of four axes cannot be used with a shared buffer")
    sized = [x for x in (mask, bias) if x is not None and x.ndim > 1]
    return sized[0].shape[-1] if sized else room


def turned(xp: Backend, x: Array, first: Array | int, rotary_embedding_dim: int) -> Array:
    """Rotate pairs of elements, half a head apart, by the position of their token."""
    size = rotary_embedding_dim or x.shape[3]
    wide = xp.dtype(FLOAT32)
    place = xp.arange(x.shape[2], dtype=wide)
    place = place + (first if isinstance(first, int) else xp.astype(first, wide))
    speeds = [ROTARY_BASE ** (-i / size) for i in range(0, size, 2)]
    angles = xp.reshape(place, (1, -1, 1)) * xp.asarray(speeds, dtype=wide)
    cos, sin = (xp.astype(f(angles), x.dtype) for f in (xp.cos, xp.sin))
    return rotated(xp, x, cos, sin, rotary_embedding_dim=size)
