"""Attention to keys and values in pages, for the tokens of samples of any length."""

from __future__ import annotations

from functools import reduce
from typing import Any

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import op
from sardonyx.ops.microsoft.rotary import rotated
from sardonyx.ops.microsoft.sink_softmax import capped_scores, sink_scores, weights_beside
from sardonyx.ops.normalization import RMSNormalization


@op(domain="com.microsoft")
def PagedAttention(
    xp: Backend,
    query: Array,
    key: Array | None,
    value: Array | None,
    key_cache: Array,
    value_cache: Array | None,
    cumulative_sequence_length: Array,
    past_seqlens: Array,
    block_table: Array,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    slot_mapping: Array | None = None,
    head_sink: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    attention_metadata: Array | None = None,
    *,
    do_rotary: int = 0,
    is_causal: int = 1,
    k_cache_dtype: str = "",
    k_quant_type: str = "NONE",
    kv_cache_layout: str = "SEPARATE",
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    qk_norm_epsilon: float = 1e-6,
    rotary_interleaved: int = 0,
    rotary_offset: int = 0,
    scale: float = 0.0,
    softcap: float = 0.0,
    v_cache_dtype: str = "",
    v_head_size: int = 0,
    v_quant_type: str = "NONE",
) -> tuple[Array, Array, Array]:
    """Write each token to its slot of the pages, and attend to the pages of its sample.

    Each token gets scores with the pages of all samples, of which it sees its own.
    """
    if kv_cache_layout != "SEPARATE" or value_cache is None:
        raise ValueError("a cache in which keys hold the values is not supported")
    if {k_quant_type, v_quant_type} != {"NONE"}:
        raise ValueError("a quantized cache is not supported; use a cache of floats")
    if rotary_offset:
        raise ValueError(f"rotary_offset is {rotary_offset}, but only 0 is supported")
    q, k, v = _by_token(xp, query, key, value, num_heads, kv_num_heads)
    _check_pages(key_cache, value_cache, k, block_table, past_seqlens, cumulative_sequence_length)
    if q_norm_weight is not None and k_norm_weight is not None:
        q = RMSNormalization(xp, q, q_norm_weight, epsilon=qk_norm_epsilon)
        k = RMSNormalization(xp, k, k_norm_weight, epsilon=qk_norm_epsilon)
    _check_places(xp, cumulative_sequence_length, past_seqlens, block_table, q, key_cache)
    sample, place = _places(xp, cumulative_sequence_length, past_seqlens, query.shape[0])
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise ValueError("do_rotary needs the inputs cos_cache and sin_cache")
        angles = (xp.expand_dims(xp.gather(x, [place]), axis=0) for x in (cos_cache, sin_cache))
        cos, sin = angles
        q, k = (_turned(xp, x, cos, sin, rotary_interleaved) for x in (q, k))
    slots = _slots(xp, block_table, sample, place, key_cache.shape[1], slot_mapping)
    key_cache, value_cache = (
        _stored(xp, cache, slots, new) for cache, new in ((key_cache, k), (value_cache, v))
    )
    ends = past_seqlens + cumulative_sequence_length[1:] - cumulative_sequence_length[:-1]
    window = (local_window_size, bool(is_causal))
    length = block_table.shape[1] * key_cache.shape[1]
    seen = _seen(xp, sample, place, ends, length, window)
    keys, values = (_pages(xp, cache, block_table) for cache in (key_cache, value_cache))
    scores = capped_scores(xp, xp.permute_dims(q, (1, 0, 2))[None, ...], keys, scale, softcap)
    sink = sink_scores(xp, head_sink, num_heads, 0)
    weights = xp.astype(weights_beside(xp, scores, seen, sink), query.dtype)
    y = xp.permute_dims(xp.attention_mix(weights, values), (0, 2, 1, 3))
    return xp.reshape(y, (query.shape[0], q.shape[1] * q.shape[2])), key_cache, value_cache


def _by_token(
    xp: Backend, query: Array, key: Array | None, value: Array | None, heads: int, kv_heads: int
) -> tuple[Array, Array, Array]:
    """Return (tokens, heads, size) of queries, keys and values."""
    if kv_heads < 1 or heads % kv_heads:
        raise ValueError(f"num_heads is {heads}, no multiple of kv_num_heads {kv_heads}")
    if (key is None) != (value is None):
        raise ValueError("key and value go together; one of them is missing")
    total = heads + 2 * kv_heads if key is None else heads
    if query.ndim != 2 or query.shape[1] % total:
        raise ValueError(f"query has shape {query.shape}, which does not divide into {total} heads")
    tokens, size = query.shape[0], query.shape[1] // total
    q = xp.reshape(query, (tokens, total, size))
    if key is None or value is None:
        end = heads + kv_heads
        return q[:, :heads, :], q[:, heads:end, :], q[:, end:, :]
    for name, x in (("key", key), ("value", value)):
        require_shape(name, x, (tokens, kv_heads * size))
    k, v = (xp.reshape(x, (tokens, kv_heads, size)) for x in (key, value))
    return q, k, v


def _check_pages(
    keys: Array, values: Array, new: Array, table: Array, past: Array, ends: Array
) -> None:
    if keys.ndim != 4 or keys.shape[2:] != new.shape[1:]:
        raise ValueError(
            f"key_cache has shape {keys.shape}, but must have (pages, rows, {new.shape[1]}, "
            f"{new.shape[2]})"
        )
    require_shape("value_cache", values, keys.shape)
    if table.ndim != 2:
        raise ValueError(f"block_table has {table.ndim} axes, but needs (batch, pages)")
    require_shape("past_seqlens", past, table.shape[:1])
    require_shape("cumulative_sequence_length", ends, (table.shape[0] + 1,))


def _check_places(
    xp: Backend, ends: Array, past: Array, table: Array, tokens: Array, cache: Array
) -> None:
    """Require that samples end within the tokens, and that each page is in the cache or absent."""
    if table.shape[0] and not table.shape[1]:
        raise ValueError("block_table has no pages")
    xp.require(ends, Within("cumulative_sequence_length", 0, tokens.shape[0]))
    xp.require(past, Within("past_seqlens", 0, table.shape[1] * cache.shape[1]))
    xp.require(table, Within("block_table", -1, cache.shape[0] - 1))


def _places(xp: Backend, ends: Array, past: Array, tokens: int) -> tuple[Array, Array]:
    """Return for each token its sample and its place in it."""
    token = xp.arange(tokens, dtype=ends.dtype)
    sample = xp.sum(xp.astype(token[:, None] >= ends[1:], ends.dtype), axis=1, dtype=ends.dtype)
    sample = xp.minimum(sample, max(past.shape[0] - 1, 0))
    return sample, xp.gather(past, [sample]) + token - xp.gather(ends, [sample])


def _slots(
    xp: Backend, table: Array, sample: Array, place: Array, rows: int, mapping: Array | None
) -> Array:
    """Return the row of the cache, all pages joined, to which each token is written, or -1."""
    if mapping is not None:
        require_shape("slot_mapping", mapping, sample.shape)
        return mapping
    page = xp.minimum(place // rows, table.shape[1] - 1)
    return xp.gather(table, [sample, page]) * rows + place % rows


def _stored(xp: Backend, cache: Array, slots: Array, new: Array) -> Array:
    """Write to one more row what has no slot, and leave that row out."""
    rows = cache.shape[0] * cache.shape[1]
    flat = xp.reshape(cache, (rows, *cache.shape[2:]))
    flat = xp.concat([flat, xp.zeros((1, *cache.shape[2:]), dtype=cache.dtype)])
    slots = xp.where(slots < 0, xp.full_like(slots, rows), slots)
    written = xp.scatter(flat, [slots], xp.astype(new, cache.dtype))
    return xp.reshape(written[:rows, ...], cache.shape)


def _pages(xp: Backend, cache: Array, table: Array) -> Array:
    """Return (1, heads, rows, size) of the pages of all samples, one sample after the other."""
    pages = xp.gather(cache, [xp.maximum(table, 0)])
    pages = xp.reshape(pages, (1, -1, *cache.shape[2:]))
    return xp.permute_dims(pages, (0, 2, 1, 3))


def _seen(
    xp: Backend, sample: Array, place: Array, ends: Array, length: int, window: tuple[int, bool]
) -> Array:
    """Return which rows of all samples' pages each token sees."""
    left, is_causal = window
    row = xp.arange(length, dtype=place.dtype)[None, None, :]
    own, end = place[:, None, None], ends[None, :, None]
    batch = xp.arange(ends.shape[0], dtype=sample.dtype)[None, :, None]
    seen = [xp.equal(sample[:, None, None], batch), row < end]
    if is_causal:
        seen.append(row <= own)
    if 0 <= left < length:
        seen.append(row > own - left)
    return xp.reshape(reduce(xp.logical_and, seen), (place.shape[0], -1))


def _turned(xp: Backend, x: Array, cos: Array, sin: Array, interleaved: int) -> Array:
    by_head: Any = xp.permute_dims(x, (1, 0, 2))[None, ...]
    by_head = rotated(xp, by_head, cos, sin, interleaved=interleaved)
    return xp.permute_dims(by_head[0, ...], (1, 0, 2))
