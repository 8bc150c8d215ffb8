"""Attention: values weighted by how well their keys match the queries."""

from __future__ import annotations

import math
from functools import reduce
from typing import Annotated, Any, NamedTuple

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.operations.scores import Mask, MaskOf, Reach, Scoring, Tile
from sardonyx.backends.standard import Array
from sardonyx.ops.activation import Softmax, softmax_below
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Body, DType, Ints, Outputs, op
from sardonyx.ops.dtypes import FLOAT32, FLOAT64
from sardonyx.ops.precision import at_least_float32, is_narrow

# Longer than any sequence, and small enough to add to a position without overflow.
UNBOUNDED = 2**30

# Of `Attention`: values, all keys, all values, and the scores.
ALL_OUTPUTS = Outputs(4)


@op
def Attention(
    xp: Backend,
    Q: Array,
    K: Array,
    V: Array,
    attn_mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    nonpad_kv_seqlen: Array | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int | None = None,
    left_window_size: int = -1,
    outputs: Outputs = ALL_OUTPUTS,
    q_num_heads: int | None = None,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: DType | None = None,
) -> tuple[Array, ...]:
    """Return zeros for queries that may see no key.

    A masked score does not count, even if it is NaN or infinite.
    """
    if not 0 <= qk_matmul_output_mode <= 3:
        raise ValueError(f"qk_matmul_output_mode is {qk_matmul_output_mode}, not 0, 1, 2 or 3")
    if (past_key is None) != (past_value is None):
        raise ValueError("past_key and past_value go together; one of them is missing")
    if past_key is not None and nonpad_kv_seqlen is not None:
        raise ValueError("nonpad_kv_seqlen cannot be used together with past_key and past_value")
    q = _by_head(xp, Q, q_num_heads, "q_num_heads")
    k = _by_head(xp, K, kv_num_heads, "kv_num_heads")
    v = _by_head(xp, V, kv_num_heads, "kv_num_heads")
    key, value = after(xp, past_key, k), after(xp, past_value, v)
    _check_heads(q, key, value)

    shape = (*q.shape[:3], key.shape[2])
    offset: Array | int = key.shape[2] - k.shape[2]
    if nonpad_kv_seqlen is not None:
        nonpad_kv_seqlen = _by_sample(xp, nonpad_kv_seqlen, shape[0], shape[3])
        offset = nonpad_kv_seqlen - shape[2]
    window = left_window_size, right_window_size, is_causal
    mask = None if attn_mask is None else _prepared(xp, attn_mask, shape, q.dtype)

    def mask_of(tile: Tile) -> Mask:
        allowed = _window(tile, offset, *window)
        if nonpad_kv_seqlen is not None:
            allowed.append(tile.keys < nonpad_kv_seqlen)
        return _joined(xp, None if mask is None else tile.cut(mask), allowed)

    reach = None
    if mask is None and left_window_size < 0 and right_window_size < 0:
        reach = reach_of(nonpad_kv_seqlen, offset, is_causal=bool(is_causal))
    steps = _Steps(xp, _scale_of(q, scale), softcap, mask_of, softmax_precision, reach)
    _check_window(*window[:2])
    if outputs == ALL_OUTPUTS:
        Y, *shown = steps.run(q, key, value)
    else:
        sees_some = mask is None and nonpad_kv_seqlen is None and left_window_size < 0
        Y, shown = steps.values(q, key, value, sees_some=sees_some), []
    if Q.ndim == 3:
        Y = xp.reshape(xp.permute_dims(Y, (0, 2, 1, 3)), (*Q.shape[:2], q.shape[1] * v.shape[3]))
    return (Y, key, value, *shown[qk_matmul_output_mode : qk_matmul_output_mode + 1])


@Attention.before(24)
def attention_with_mask_of_full_length(
    xp: Backend,
    Q: Array,
    K: Array,
    V: Array,
    attn_mask: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    *,
    outputs: Outputs = ALL_OUTPUTS,
    **attributes: Annotated[Any, Attention],
) -> tuple[Array, ...]:
    """A mask with one key holds for all keys; shorter masks are not padded."""
    if attn_mask is not None and attn_mask.ndim:
        total = sum(x.shape[-2] for x in (K, past_key) if x is not None and x.ndim > 1)
        if attn_mask.shape[-1] not in (1, total):
            raise ValueError(f"attn_mask of shape {attn_mask.shape} does not fit {total} keys")
        attn_mask = xp.broadcast_to(attn_mask, (*attn_mask.shape[:-1], total))
    inputs = Q, K, V, attn_mask, past_key, past_value
    return Attention(xp, *inputs, outputs=outputs, **attributes)


@op(domain="ai.onnx.preview")
def FlexAttention(
    xp: Backend,
    Q: Array,
    K: Array,
    V: Array,
    *,
    prob_mod: Body | None = None,
    scale: float | None = None,
    score_mod: Body | None = None,
    softmax_precision: DType | None = None,
) -> Array:
    """Compute in float32 or wider from the scores on, unless the node sets a precision."""
    if not Q.ndim == K.ndim == V.ndim == 4:
        raise ValueError(f"Q, K and V have {Q.ndim}, {K.ndim} and {V.ndim} axes, but need four")
    _check_heads(Q, K, V)
    if softmax_precision is None:
        softmax_precision = FLOAT32 if is_narrow(xp, Q.dtype) else xp.numpy_dtype(Q.dtype)
    precision = _floating(xp, softmax_precision)
    scores = _modified(xp, xp.astype(_scores(xp, Q, K, scale), precision), score_mod, "score_mod")
    weights = Softmax(xp, scores, axis=-1)
    weights = _modified(xp, weights, prob_mod, "prob_mod")
    return xp.astype(_mixed(xp, weights, xp.astype(V, precision)), Q.dtype)


def _modified(xp: Backend, x: Array, change: Body | None, name: str) -> Array:
    if change is None:
        return x
    changed: Array
    (changed,) = change(x)
    if changed.shape != x.shape or changed.dtype != x.dtype:
        raise ValueError(
            f"{name} makes {changed.dtype} of shape {changed.shape} of {x.dtype} of shape "
            f"{x.shape}, but must keep both"
        )
    return changed


@op
def RotaryEmbedding(
    xp: Backend,
    X: Array,
    cos_cache: Array,
    sin_cache: Array,
    position_ids: Array | None = None,
    *,
    interleaved: int = 0,
    num_heads: int | None = None,
    rotary_embedding_dim: int = 0,
) -> Array:
    """Rotate pairs of elements by the angle of their position; the other elements stay."""
    by_head = X.ndim == 4
    x = X if by_head else _split_in_heads(xp, X, num_heads, "num_heads")
    heads_axis, size = 1 if by_head else 2, x.shape[3]
    rotated = rotary_embedding_dim or size
    if rotated % 2 or not 0 < rotated <= size:
        raise ValueError(f"{rotated} elements of a head of {size} cannot be rotated in pairs")
    angles = (x.shape[0], x.shape[3 - heads_axis], rotated // 2)
    cos, sin = (
        xp.expand_dims(_at_positions(xp, cache, position_ids, angles), axis=heads_axis)
        for cache in (cos_cache, sin_cache)
    )
    y = _rotated(xp, x[..., :rotated], cos, sin, interleaved=interleaved)
    if rotated < size:
        y = xp.concat([y, x[..., rotated:]], axis=-1)
    return xp.reshape(y, X.shape)


@at_least_float32
def _rotated(xp: Backend, x: Array, cos: Array, sin: Array, *, interleaved: int) -> Array:
    half = x.shape[-1] // 2
    if interleaved:
        a, b = x[..., 0::2], x[..., 1::2]
    else:
        a, b = x[..., :half], x[..., half:]
    pair = [a * cos - b * sin, a * sin + b * cos]
    return xp.reshape(xp.stack(pair, axis=-1), x.shape) if interleaved else xp.concat(pair, axis=-1)


def _at_positions(xp: Backend, cache: Array, position_ids: Array | None, shape: Ints) -> Array:
    """Return one row of the cache per token; without ids the cache has that form already."""
    if position_ids is not None:
        if position_ids.shape != shape[:2] or cache.ndim != 2:
            raise ValueError(
                f"position_ids of shape {position_ids.shape} and a cache of shape {cache.shape} do "
                f"not fit {shape[:2]} tokens; two axes are needed for either"
            )
        if position_ids.size and not cache.shape[0]:
            raise ValueError(f"a cache of shape {cache.shape} has no positions")
        last = cache.shape[0] - 1
        xp.require(position_ids, Within("position_ids", -last - 1, last))
        cache = xp.gather(cache, [position_ids])
    if cache.ndim != 3 or cache.shape[0] not in (1, shape[0]) or cache.shape[1:] != shape[1:]:
        raise ValueError(f"a cache of shape {cache.shape} does not fit angles of shape {shape}")
    return cache


def attended(xp: Backend, *arrays: Array, scale: float, is_guarded: bool = False) -> Array:
    """Run the backend's attention, for a rewrite that finds it written in other operators."""
    return xp.attention(*arrays, scale=scale, is_guarded=is_guarded)


# -- heads ----------------------------------------------------------------------------------------


def _by_head(xp: Backend, x: Array, heads: int | None, name: str) -> Array:
    """Return (batch, heads, sequence, size) for that or (batch, sequence, heads * size)."""
    if x.ndim != 4:
        return xp.permute_dims(_split_in_heads(xp, x, heads, name), (0, 2, 1, 3))
    if heads not in (None, x.shape[1]):
        raise ValueError(f"{name} is {heads}, but the input has {x.shape[1]} heads; leave it")
    return x


def _split_in_heads(xp: Backend, x: Array, heads: int | None, name: str) -> Array:
    if x.ndim != 3:
        raise ValueError(f"an input has {x.ndim} axes, but needs three or four")
    if heads is None:
        raise ValueError(f"inputs of three axes need the attribute {name}")
    if heads < 1 or x.shape[2] % heads:
        raise ValueError(f"{name} is {heads}, which does not divide a hidden size of {x.shape[2]}")
    return xp.reshape(x, (*x.shape[:2], heads, x.shape[2] // heads))


def after(xp: Backend, past: Array | None, x: Array) -> Array:
    if past is None:
        return x
    if past.ndim != 4 or (*past.shape[:2], past.shape[3]) != (*x.shape[:2], x.shape[3]):
        raise ValueError(f"a past of shape {past.shape} does not go on with {x.shape}")
    return xp.concat([past, x], axis=2)


def _check_heads(q: Array, k: Array, v: Array) -> None:
    if not q.shape[0] == k.shape[0] == v.shape[0] or k.shape[1:3] != v.shape[1:3]:
        raise ValueError(f"K of shape {k.shape} and V of shape {v.shape} do not fit {q.shape}")
    if q.shape[3] != k.shape[3]:
        raise ValueError(f"queries have size {q.shape[3]}, but keys {k.shape[3]}")
    if not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ValueError(f"{q.shape[1]} heads of queries cannot share {k.shape[1]} heads of keys")


# -- scores ---------------------------------------------------------------------------------------


class _Steps(NamedTuple):
    """What attention does from the scores on."""

    xp: Backend
    scale: float
    softcap: float
    mask_of: MaskOf
    softmax_precision: DType | None
    reach: Reach | None = None

    def values(self, q: Array, k: Array, v: Array, *, sees_some: bool = False) -> Array:
        """Return the values that each query reads."""

        def general(q: Array, k: Array, v: Array) -> Array:
            return self.run(q, k, v)[0]

        if not _is_in_float32(self.xp, q.dtype, self.softmax_precision):
            return general(q, k, v)
        scoring = Scoring(
            self.scale, self.softcap, self.mask_of, sees_some=sees_some, reach=self.reach
        )
        return self.xp.attention_like(general, q, k, v, scoring)

    def run(self, q: Array, k: Array, v: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Return the same values, and the scores in four stages."""
        scores = self.xp.attention_scores(q, k, self.scale)
        capped = _softcapped(self.xp, scores, self.softcap)
        biased = _masked(self.xp, capped, self.mask_of(whole_tile(self.xp, scores.shape)))
        weights = self.xp.astype(_softmax(self.xp, biased, self.softmax_precision), q.dtype)
        return _mixed(self.xp, weights, v), scores, capped, biased, weights


def values_by_scores(
    xp: Backend,
    q: Array,
    k: Array,
    v: Array,
    scale: float | None,
    mask_of: MaskOf,
    reach: Reach | None = None,
) -> Array:
    """Return the values that each query reads, for arrays by head and a mask that is a function."""
    _check_heads(q, k, v)
    return _Steps(xp, _scale_of(q, scale), 0.0, mask_of, None, reach).values(q, k, v)


def _scores(xp: Backend, q: Array, k: Array, scale: float | None) -> Array:
    return xp.attention_scores(q, k, _scale_of(q, scale))


def _scale_of(q: Array, scale: float | None) -> float:
    return 1 / math.sqrt(max(q.shape[3], 1)) if scale is None else scale


def _constant(xp: Backend, value: float, like: Array) -> Array:
    return xp.asarray(value, dtype=like.dtype)


def _softcapped(xp: Backend, scores: Array, softcap: float) -> Array:
    if not softcap >= 0:
        raise ValueError(f"softcap is {softcap}, but must not be negative")
    if not softcap:
        return scores
    cap = _constant(xp, softcap, scores)
    return xp.tanh(scores / cap) * cap


def _mixed(xp: Backend, weights: Array, v: Array) -> Array:
    """Return weights times values, in the dtype of the weights."""
    if v.dtype == weights.dtype:
        return xp.attention_mix(weights, v)
    sizes = (xp.numpy_dtype(weights.dtype).itemsize, xp.numpy_dtype(v.dtype).itemsize)
    common = xp.dtype(FLOAT64 if max(sizes) == 8 else FLOAT32)
    mixed = xp.attention_mix(xp.astype(weights, common), xp.astype(v, common))
    return xp.astype(mixed, weights.dtype)


def _softmax(xp: Backend, scores: Array, precision: DType | None) -> Array:
    if precision is not None:
        scores = xp.astype(scores, _floating(xp, precision))
    if not scores.size:
        return scores
    top = xp.max(scores, axis=-1, keepdims=True)
    nothing = xp.equal(top, -math.inf)
    return softmax_below(xp, scores, xp.where(nothing, xp.zeros_like(top), top), axis=-1)


def _is_in_float32(xp: Backend, dtype: Any, precision: DType | None) -> bool:
    """Return whether a softmax in float32 is at least as exact as the one that is asked for."""
    asked = [dtype] if precision is None else [dtype, _floating(xp, precision)]
    return all(xp.numpy_dtype(dtype).itemsize <= 4 for dtype in asked)


def _floating(xp: Backend, precision: DType) -> Any:
    dtype = xp.dtype(precision)
    if not xp.isdtype(dtype, "real floating"):
        raise ValueError(f"softmax_precision is {precision}, but must be a float")
    return dtype


# -- masks ----------------------------------------------------------------------------------------


def _by_sample(xp: Backend, lengths: Array, batch: int, longest: int) -> Array:
    require_shape("nonpad_kv_seqlen", lengths, (batch,))
    xp.require(lengths, Within("nonpad_kv_seqlen", 0, longest))
    lengths = xp.minimum(xp.maximum(lengths, 0), longest)
    return xp.reshape(lengths, (batch, 1, 1, 1))


def whole_tile(xp: Backend, shape: Ints) -> Tile:
    """Return the tile of all scores."""
    queries, keys = xp.arange(shape[2]), xp.arange(shape[3])
    return Tile(xp.reshape(queries, (-1, 1)), keys, lambda array: array)


def _check_window(left: int, right: int) -> None:
    if left < -1 or right < -1:
        raise ValueError(f"window sizes {left} and {right} must be -1 or more")


def _window(tile: Tile, offset: Array | int, left: int, right: int, is_causal: int) -> list[Array]:
    """Return masks of the keys that each query may see; the first query is at `offset`."""
    queries, keys = tile.queries + offset, tile.keys
    allowed = []
    if left >= 0:
        allowed.append(queries - min(left, UNBOUNDED) <= keys)
    if is_causal or right >= 0:
        allowed.append(keys <= queries + (0 if is_causal else min(right, UNBOUNDED)))
    return allowed


def reach_of(lengths: Array | None, offset: Array | int, *, is_causal: bool) -> Reach | None:
    """Return what causality and lengths do to the keys; None if the first query is not the first.

    >>> reach_of(None, 3, is_causal=False)
    Reach(is_causal=False, lengths=None)
    >>> reach_of(None, 3, is_causal=True)
    """
    if is_causal and not (isinstance(offset, int) and offset == 0):
        return None
    return Reach(is_causal, lengths)


def _prepared(xp: Backend, mask: Array, shape: Ints, dtype: Any) -> Array:
    """Return the mask for all keys, of booleans or in the type of the scores."""
    if xp.isdtype(mask.dtype, "bool"):
        return _filled(xp, mask, shape, False)
    return _filled(xp, xp.astype(mask, dtype), shape, -math.inf)


def _joined(xp: Backend, mask: Array | None, allowed: list[Array]) -> Mask:
    """Join the mask, which may be numbers to add, with what is allowed otherwise."""
    bias = None if mask is None or xp.isdtype(mask.dtype, "bool") else mask
    if mask is not None:
        allowed = [*allowed, mask if bias is None else xp.not_equal(mask, -math.inf)]
    return Mask(bias, reduce(xp.logical_and, allowed) if allowed else None)


def _masked(xp: Backend, scores: Array, mask: Mask) -> Array:
    """Add the mask to the scores; a key that is not allowed gets minus infinity."""
    if mask.bias is not None:
        scores = scores + mask.bias
    if mask.allowed is None:
        return scores
    return xp.where(mask.allowed, scores, _constant(xp, -math.inf, scores))


def _filled(xp: Backend, mask: Array, shape: Ints, value: float) -> Array:
    """Pad a mask to the number of keys; the keys beyond its end are masked."""
    missing = shape[3] - mask.shape[-1] if mask.ndim else 0
    whole = (*mask.shape[:-1], shape[3])
    beyond = any(n not in (1, m) for n, m in zip(whole, shape[4 - mask.ndim :], strict=False))
    if mask.ndim > 4 or missing < 0 or (mask.ndim and beyond):
        raise ValueError(f"attn_mask of shape {mask.shape} does not fit scores of shape {shape}")
    return xp.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, missing)], value) if missing else mask
