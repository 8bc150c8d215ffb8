"""Attention of com.microsoft for queries, keys and values that are projected before."""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Outputs, op
from sardonyx.ops.microsoft.attention import attended, by_head


@op(domain="com.microsoft")
def MultiHeadAttention(
    xp: Backend,
    query: Array,
    key: Array | None = None,
    value: Array | None = None,
    bias: Array | None = None,
    key_padding_mask: Array | None = None,
    attention_bias: Array | None = None,
    past_key: Array | None = None,
    past_value: Array | None = None,
    past_sequence_length: Array | None = None,
    cache_indirection: Array | None = None,
    *,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    outputs: Outputs = Outputs(4),  # noqa: B008
    scale: float = 0.0,
    unidirectional: int = 0,
) -> tuple[Array, ...]:
    """Attend by head; keys and values of four axes are those of an encoder, or of the past.

    With `past_sequence_length`, the past is a buffer with room for the new rows.
    """
    if (past_key is None) != (past_value is None):
        raise ValueError("past_key and past_value go together; one of them is missing")
    results = attended(
        xp,
        biased_by_head(xp, query, key, value, bias, num_heads),
        (past_key, past_value, past_sequence_length),
        (key_padding_mask, attention_bias, mask_filter_value),
        beams=cache_indirection,
        is_causal=unidirectional,
        scale=scale,
        shows_scores=outputs > 3,
    )
    return tuple(x for x in results if x is not None)


def biased_by_head(
    xp: Backend,
    query: Array,
    key: Array | None,
    value: Array | None,
    bias: Array | None,
    num_heads: int,
) -> tuple[Array, Array, Array]:
    """Return queries, keys and values as (batch, heads, length, size), with their biases."""
    parts = _unpacked(xp, query, key, value, num_heads)
    if bias is None:
        q, k, v = (x if x.ndim == 4 else by_head(xp, x, num_heads) for x in parts)
        return q, k, v
    sizes = [x.shape[1] * x.shape[3] if x.ndim == 4 else x.shape[-1] for x in parts]
    require_shape("bias", bias, (sum(sizes),))
    starts = (0, sizes[0], sizes[0] + sizes[1])
    q, k, v = (
        # Keys and values that are by head already have their bias.
        x if x.ndim == 4 else by_head(xp, x + bias[start : start + x.shape[-1]], num_heads)
        for x, start in zip(parts, starts, strict=True)
    )
    return q, k, v


def _unpacked(
    xp: Backend, query: Array, key: Array | None, value: Array | None, num_heads: int
) -> tuple[Array, Array, Array]:
    """Return (batch, length, hidden) of queries, and of keys and values unless they are by head."""
    if key is None and value is None and query.ndim == 5 and query.shape[2:4] == (num_heads, 3):
        q, k, v = (_flat(xp, query[:, :, :, i, :]) for i in range(3))
        return q, k, v
    if key is None or query.ndim != 3:
        raise ValueError(
            f"query has shape {query.shape}, but must have three axes with a key, or (batch, "
            f"length, {num_heads}, 3, size) without key and value"
        )
    if value is None and key.ndim == 5 and key.shape[2:4] == (num_heads, 2):
        return query, _flat(xp, key[:, :, :, 0, :]), _flat(xp, key[:, :, :, 1, :])
    if value is None or key.ndim != value.ndim or key.ndim not in (3, 4):
        raise ValueError(
            f"key has shape {key.shape}. It must have three or four axes, as value does, or "
            f"(batch, length, {num_heads}, 2, size) without value."
        )
    return query, key, value


def _flat(xp: Backend, x: Array) -> Array:
    return xp.reshape(x, (*x.shape[:2], x.shape[2] * x.shape[3]))
