"""Attention to keys and values in pages, for the tokens of samples of any length."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

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
    require_no_quantization(k_quant_type, v_quant_type)
    q, k, v = by_token(xp, query, key, value, num_heads, kv_num_heads)
    q, k = normalized(xp, q, k, q_norm_weight, k_norm_weight, qk_norm_epsilon)
    pages = Pages.of(
        xp, key_cache, value_cache, cumulative_sequence_length, past_seqlens, block_table, k
    )
    if do_rotary:
        angles = angles_of(xp, cos_cache, sin_cache, pages.place)
        q, k = (turned(xp, x, angles, rotary_interleaved, rotary_offset) for x in (q, k))
    pages = pages.with_tokens(xp, k, v, slot_mapping)
    seen = pages.seen(xp, local_window_size, bool(is_causal))
    keys, values = pages.joined(xp)
    scores = capped_scores(xp, xp.permute_dims(q, (1, 0, 2))[None, ...], keys, scale, softcap)
    sink = sink_scores(xp, head_sink, num_heads, 0)
    weights = xp.astype(weights_beside(xp, scores, seen, sink), query.dtype)
    y = xp.permute_dims(xp.attention_mix(weights, values), (0, 2, 1, 3))
    y = xp.reshape(y, (query.shape[0], q.shape[1] * q.shape[2]))
    return y, pages.keys, pages.values


def require_no_quantization(*kinds: str) -> None:
    if set(kinds) != {"NONE"}:
        raise ValueError("a quantized cache is not supported; use a cache of floats")


def normalized(
    xp: Backend, q: Array, k: Array, q_weight: Array | None, k_weight: Array | None, epsilon: float
) -> tuple[Array, Array]:
    """Normalise each head of queries and keys, if there are weights for both."""
    if q_weight is None or k_weight is None:
        return q, k
    return (
        RMSNormalization(xp, q, q_weight, epsilon=epsilon),
        RMSNormalization(xp, k, k_weight, epsilon=epsilon),
    )


# -- rotary embedding ------------------------------------------------------------------------------


def angles_of(
    xp: Backend, cos_cache: Array | None, sin_cache: Array | None, place: Array
) -> tuple[Array, Array]:
    """Return the cosines and sines of places."""
    if cos_cache is None or sin_cache is None:
        raise ValueError("do_rotary needs the inputs cos_cache and sin_cache")
    return xp.gather(cos_cache, [place]), xp.gather(sin_cache, [place])


def turned(
    xp: Backend, x: Array, angles: tuple[Array, Array], interleaved: int, offset: int = 0
) -> Array:
    """Rotate (tokens, heads, size) from an element of each head on, by the angles of the tokens."""
    cos, sin = (xp.expand_dims(a, axis=0) for a in angles)
    if not 0 <= offset <= x.shape[2] - 2 * cos.shape[2]:
        raise ValueError(
            f"rotary_offset is {offset}, but must leave room for {2 * cos.shape[2]} of "
            f"{x.shape[2]} elements"
        )
    by_head = xp.permute_dims(x[:, :, offset:], (1, 0, 2))[None, ...]
    by_head = rotated(xp, by_head, cos, sin, interleaved=interleaved)
    after = xp.permute_dims(by_head[0, ...], (1, 0, 2))
    return xp.concat([x[:, :, :offset], after], axis=2) if offset else after


# -- pages -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pages:
    """Keys and values in pages, and where the tokens of this call lie in their samples."""

    # (pages, rows, heads, size)
    keys: Array
    values: Array
    # (batch, pages of a sample)
    table: Array
    # For each token its sample, and its place in it.
    sample: Array
    place: Array
    # The length of each sample, with the tokens of this call.
    ends: Array

    @classmethod
    def of(
        cls,
        xp: Backend,
        keys: Array,
        values: Array,
        bounds: Array,
        past: Array,
        table: Array,
        new: Array,
    ) -> Pages:
        _check_pages(keys, values, new, table, past, bounds)
        _check_places(xp, bounds, past, table, new, keys)
        sample, place = _places(xp, bounds, past, new.shape[0])
        return cls(keys, values, table, sample, place, past + bounds[1:] - bounds[:-1])

    @property
    def length(self) -> int:
        """The number of rows that each sample has at most."""
        return self.table.shape[1] * self.keys.shape[1]

    def with_tokens(self, xp: Backend, keys: Array, values: Array, slots: Array | None) -> Pages:
        """Return the pages with the keys and values of this call's tokens."""
        slots = _slots(xp, self.table, self.sample, self.place, self.keys.shape[1], slots)
        return replace(
            self,
            keys=_stored(xp, self.keys, slots, keys),
            values=_stored(xp, self.values, slots, values),
        )

    def seen(self, xp: Backend, window: int, is_causal: bool) -> Array:
        """Return for each token which rows of all samples' pages it sees."""
        row = xp.arange(self.length, dtype=self.place.dtype)[None, None, :]
        own, end = self.place[:, None, None], self.ends[None, :, None]
        batch = xp.arange(self.ends.shape[0], dtype=self.sample.dtype)[None, :, None]
        seen = [xp.equal(self.sample[:, None, None], batch), row < end]
        if is_causal:
            seen.append(row <= own)
        if 0 <= window < self.length:
            seen.append(row > own - window)
        return xp.reshape(reduce(xp.logical_and, seen), (self.place.shape[0], -1))

    def joined(self, xp: Backend) -> tuple[Array, Array]:
        """Return keys and values of the pages of all samples, one sample after the other."""
        return _pages(xp, self.keys, self.table), _pages(xp, self.values, self.table)


def by_token(
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
