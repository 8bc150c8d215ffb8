"""Batches without padding: the tokens of all samples, one after the other, and attention on them.

`token_offset` has the places of these tokens in the padded batch, and then those of the padding.
"""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Ints, Unsized, op
from sardonyx.ops.microsoft.attention import attended, projected
from sardonyx.ops.microsoft.multi_head_attention import biased_by_head


@op(domain="com.microsoft")
def PackedAttention(
    xp: Backend,
    input: Array,
    weights: Array,
    bias: Array,
    token_offset: Array,
    cumulative_sequence_length: Array,
    attention_bias: Array | None = None,
    *,
    num_heads: int,
    qkv_hidden_sizes: Ints = (),
    scale: float = 0.0,
) -> Array:
    """Project, and attend to the tokens of the same sample."""
    x = RestorePadding(xp, input, token_offset)
    new = projected(xp, x, weights, bias, num_heads, qkv_hidden_sizes)
    lengths = _lengths(xp, cumulative_sequence_length, x.shape[0])
    masks = (lengths, attention_bias, -10000.0)
    y, *_ = attended(xp, new, (None, None, None), masks, is_causal=0, scale=scale)
    return _packed(xp, y, token_offset, input.shape[0])


@op(domain="com.microsoft")
def PackedMultiHeadAttention(
    xp: Backend,
    query: Array,
    key: Array | None,
    value: Array | None,
    bias: Array | None,
    token_offset: Array,
    cumulative_sequence_length: Array,
    attention_bias: Array | None = None,
    *,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    scale: float = 0.0,
) -> Array:
    """Attend to the tokens of the same sample; a query of four axes has keys and values in it."""
    parts = (None if x is None else _padded(xp, x, token_offset) for x in (query, key, value))
    q, k, v = parts
    assert q is not None
    new = biased_by_head(xp, q, k, v, bias, num_heads)
    lengths = _lengths(xp, cumulative_sequence_length, q.shape[0])
    masks = (lengths, attention_bias, mask_filter_value)
    y, *_ = attended(xp, new, (None, None, None), masks, is_causal=0, scale=scale)
    return _packed(xp, y, token_offset, query.shape[0])


@op(domain="com.microsoft")
def RemovePadding(
    xp: Backend, input: Array, sequence_token_count: Array
) -> tuple[Unsized, Array, Array, Array]:
    """Return the tokens, their places and those of the padding, the samples' ends, the longest."""
    if input.ndim != 3:
        raise ValueError(f"input has {input.ndim} axes, but needs (batch, length, hidden)")
    batch, length, hidden = input.shape
    counts = sequence_token_count
    require_shape("sequence_token_count", counts, (batch,))
    dtype = counts.dtype
    is_padding = xp.arange(length, dtype=dtype) >= xp.reshape(counts, (-1, 1))
    flags = xp.astype(xp.reshape(is_padding, (-1,)), dtype)
    places = xp.argsort(flags, stable=True)
    total = int(xp.fetch(xp.sum(xp.minimum(xp.maximum(counts, 0), length))))
    tokens = xp.take(xp.reshape(input, (batch * length, hidden)), places[:total], axis=0)
    ends = xp.concat([xp.zeros((1,), dtype=dtype), xp.cumulative_sum(counts, dtype=dtype)])
    longest = xp.max(counts, keepdims=True) if batch else xp.zeros((1,), dtype=dtype)
    return tokens, xp.reshape(xp.astype(places, dtype), (batch, length)), ends, longest


@op(domain="com.microsoft")
def RestorePadding(xp: Backend, input: Array, token_offset: Array) -> Array:
    """Return a batch in which the padding is zeros."""
    if input.ndim != 2:
        raise ValueError(f"input has {input.ndim} axes, but needs (tokens, hidden)")
    return _padded(xp, input, token_offset)


def _padded(xp: Backend, x: Array, token_offset: Array) -> Array:
    """Return (batch, length, ...) for (tokens, ...)."""
    places = _places(xp, token_offset, x.shape[0])
    whole = xp.zeros((token_offset.size, *x.shape[1:]), dtype=x.dtype)
    padded = xp.scatter(whole, [places], x)
    return xp.reshape(padded, (*token_offset.shape, *x.shape[1:]))


def _packed(xp: Backend, x: Array, token_offset: Array, tokens: int) -> Array:
    """Return (tokens, hidden) for (batch, length, hidden)."""
    flat = xp.reshape(x, (token_offset.size, x.shape[2]))
    return xp.gather(flat, [_places(xp, token_offset, tokens)])


def _places(xp: Backend, token_offset: Array, tokens: int) -> Array:
    if token_offset.ndim != 2 or token_offset.size < tokens:
        raise ValueError(
            f"token_offset has shape {token_offset.shape}, but must have (batch, length) with at "
            f"least {tokens} places"
        )
    xp.require(token_offset, Within("token_offset", 0, token_offset.size - 1))
    return xp.reshape(token_offset, (-1,))[:tokens]


def _lengths(xp: Backend, ends: Array, batch: int) -> Array:
    require_shape("cumulative_sequence_length", ends, (batch + 1,))
    return ends[1:] - ends[:-1]
