"""Attention to keys that an indexer selected, and mostly to some nearby ones besides."""

from __future__ import annotations

from dataclasses import dataclass

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import op
from sardonyx.ops.dtypes import INT32
from sardonyx.ops.microsoft.kv_cache import lengthened, written
from sardonyx.ops.microsoft.paged_attention import (
    Pages,
    angles_of,
    by_token,
    normalized,
    require_no_quantization,
    turned,
)
from sardonyx.ops.microsoft.sink_softmax import capped_scores, sink_scores, weights_beside
from sardonyx.ops.options import require_one_of

SELECTED_ONLY, LOCAL_PLUS_SELECTED = "selected_only", "local_plus_selected"


@op(domain="com.microsoft")
def DynamicSparseAttention(
    xp: Backend,
    query: Array,
    key: Array | None,
    value: Array | None,
    past_key: Array | None,
    past_value: Array | None,
    auxiliary_key: Array | None,
    auxiliary_value: Array | None,
    selected_indices: Array,
    selected_counts: Array,
    seqlens_k: Array,
    total_sequence_length: int,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    position_ids: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    head_sink: Array | None = None,
    *,
    attention_mode: str = "selected_only",
    auxiliary_kv_shared: int = 0,
    do_rotary: int = 0,
    is_causal: int = 1,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    qk_norm_epsilon: float = 1e-6,
    rotary_interleaved: int = 0,
    rotary_offset: int = 0,
    scale: float = 0.0,
    selected_kv_source: str = "main",
    smooth_softmax: int = 0,
) -> tuple[Array, Array, Array]:
    """Attend to the selected tokens of the cache, or to the last ones and selected auxiliary keys.

    A token gets scores with all keys, of which it sees those.
    """
    has_auxiliary = selected_kv_source == "auxiliary"
    _check_mode(attention_mode, selected_kv_source, is_causal, local_window_size)
    if query.ndim != 3:
        raise ValueError(f"query has shape {query.shape}, but must have (batch, length, size)")
    batch, length = query.shape[:2]
    for name, x in (("key", key), ("value", value)):
        if x is not None:
            require_shape(name, x, (batch, length, x.shape[-1] if x.ndim else 0))
    flat = xp.reshape(query, (batch * length, query.shape[2]))
    flat_key, flat_value = (
        None if x is None else xp.reshape(x, (batch * length, x.shape[2])) for x in (key, value)
    )
    q, k, v = by_token(xp, flat, flat_key, flat_value, num_heads, kv_num_heads)
    q, k = normalized(xp, q, k, q_norm_weight, k_norm_weight, qk_norm_epsilon)
    require_shape("seqlens_k", seqlens_k, (batch,))
    ends = seqlens_k + 1
    starts = xp.zeros_like(ends) if length == total_sequence_length else ends - length
    place = xp.reshape(starts, (-1, 1)) + xp.arange(length, dtype=starts.dtype)
    if do_rotary:
        positions = place if position_ids is None else position_ids
        require_shape("position_ids", positions, (batch, length))
        angles = angles_of(xp, cos_cache, sin_cache, xp.reshape(positions, (-1,)))
        q, k = (turned(xp, x, angles, rotary_interleaved, rotary_offset) for x in (q, k))
    q, k, v = (_by_head(xp, x, batch) for x in (q, k, v))
    keys = _appended(xp, past_key, k, starts, total_sequence_length)
    values = _appended(xp, past_value, v, starts, total_sequence_length)
    row = xp.arange(keys.shape[2], dtype=place.dtype)
    seen = (row <= place[:, :, None]) & (row < ends[:, None, None])
    selection = Selection.of(xp, selected_indices, selected_counts, batch * length)
    all_keys, all_values = keys, values
    if has_auxiliary:
        others = _auxiliary(auxiliary_key, auxiliary_value, auxiliary_kv_shared)
        chosen = selection.marked(xp, others[0].shape[2])
        seen = seen & (row > place[:, :, None] - local_window_size)
        all_keys, all_values = (
            xp.concat([x, y], axis=2) for x, y in zip((keys, values), others, strict=True)
        )
        seen = xp.concat([seen, xp.reshape(chosen, (batch, length, chosen.shape[1]))], axis=2)
    else:
        seen = seen & xp.reshape(selection.marked(xp, row.shape[0]), seen.shape)
    scores = capped_scores(xp, q, all_keys, scale, 0.0)
    sink = sink_scores(xp, head_sink, num_heads, smooth_softmax)
    weights = weights_beside(xp, scores, seen[:, None, :, :], sink)
    y = xp.attention_mix(xp.astype(weights, query.dtype), all_values)
    y = xp.reshape(xp.permute_dims(y, (0, 2, 1, 3)), (batch, length, num_heads * q.shape[3]))
    return y, keys, values


@op(domain="com.microsoft")
def SparsePagedAttention(
    xp: Backend,
    query: Array,
    key: Array | None,
    value: Array | None,
    key_cache: Array,
    value_cache: Array,
    cumulative_sequence_length: Array,
    past_seqlens: Array,
    block_table: Array,
    slot_mapping: Array | None,
    selected_indices: Array,
    selected_counts: Array,
    auxiliary_key: Array | None = None,
    auxiliary_value: Array | None = None,
    auxiliary_lengths: Array | None = None,
    cos_cache: Array | None = None,
    sin_cache: Array | None = None,
    head_sink: Array | None = None,
    q_norm_weight: Array | None = None,
    k_norm_weight: Array | None = None,
    k_scale: Array | None = None,
    v_scale: Array | None = None,
    attention_metadata: Array | None = None,
    *,
    attention_mode: str = "selected_only",
    auxiliary_cache_layout: str = "contiguous",
    auxiliary_kv_shared: int = 0,
    do_rotary: int = 0,
    is_causal: int = 1,
    k_quant_type: str = "NONE",
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    qk_norm_epsilon: float = 1e-6,
    rotary_interleaved: int = 0,
    rotary_offset: int = 0,
    scale: float = 0.0,
    selected_kv_source: str = "main",
    softcap: float = 0.0,
    v_quant_type: str = "NONE",
) -> tuple[Array, Array, Array]:
    """Write each token to its slot of the pages, and attend to selected and to nearby keys.

    Each token gets scores with the keys of all samples, of which it sees its own.
    """
    require_one_of("attention_mode", attention_mode, (SELECTED_ONLY, LOCAL_PLUS_SELECTED))
    require_one_of("selected_kv_source", selected_kv_source, ("main", "auxiliary"))
    require_one_of("auxiliary_cache_layout", auxiliary_cache_layout, ("contiguous",))
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
    keys, values = pages.joined(xp)
    selection = Selection.of(xp, selected_indices, selected_counts, query.shape[0])
    batch = past_seqlens.shape[0]
    adds_local = attention_mode == LOCAL_PLUS_SELECTED
    visible = pages.seen(xp, -1, bool(is_causal))
    seen = pages.seen(xp, local_window_size, bool(is_causal)) if adds_local else visible & False
    if selected_kv_source == "main":
        chosen = selection.marked(xp, batch * pages.length, pages.sample * pages.length)
        seen = seen | (visible & chosen)
    else:
        others = _auxiliary(auxiliary_key, auxiliary_value, auxiliary_kv_shared)
        capacity = others[0].shape[1]
        chosen = selection.marked(xp, batch * capacity, pages.sample * capacity)
        if auxiliary_lengths is not None:
            require_shape("auxiliary_lengths", auxiliary_lengths, (batch,))
            row = xp.arange(capacity, dtype=auxiliary_lengths.dtype)
            chosen = chosen & xp.reshape(row < auxiliary_lengths[:, None], (-1,))
        seen = xp.concat([seen, chosen], axis=1)
        keys, values = (
            xp.concat([x, _joined(xp, y, kv_num_heads)], axis=2)
            for x, y in zip((keys, values), others, strict=True)
        )
    scores = capped_scores(xp, xp.permute_dims(q, (1, 0, 2))[None, ...], keys, scale, softcap)
    weights = weights_beside(xp, scores, seen, sink_scores(xp, head_sink, num_heads, 0))
    y = xp.permute_dims(xp.attention_mix(xp.astype(weights, query.dtype), values), (0, 2, 1, 3))
    y = xp.reshape(y, (query.shape[0], num_heads * q.shape[2]))
    return y, pages.keys, pages.values


# -- selections ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Selection:
    """Which keys an indexer selected for each token."""

    # (tokens, most selected)
    indices: Array
    is_there: Array

    @classmethod
    def of(cls, xp: Backend, indices: Array, counts: Array, tokens: int) -> Selection:
        if indices.ndim != 2 or indices.shape[0] != tokens:
            raise ValueError(
                f"selected_indices has shape {indices.shape}, but must have a row for each of "
                f"{tokens} tokens"
            )
        require_shape("selected_counts", counts, (tokens,))
        place = xp.arange(indices.shape[1], dtype=counts.dtype)
        return cls(indices, (place < counts[:, None]) & (indices >= 0))

    def marked(self, xp: Backend, length: int, start: Array | None = None) -> Array:
        """Return (tokens, length): which of the keys are selected, from `start` of each row on."""
        tokens = self.indices.shape[0]
        column = self.indices if start is None else self.indices + start[:, None]
        is_there = self.is_there & (column < length)
        row = xp.arange(tokens, dtype=column.dtype)[:, None]
        zeros = xp.zeros((tokens, length), dtype=xp.dtype(INT32))
        places = (row, xp.where(is_there, column, xp.zeros_like(column)))
        return xp.scatter(zeros, places, xp.astype(is_there, zeros.dtype), "add") > 0


def _check_mode(mode: str, source: str, is_causal: int, window: int) -> None:
    if (mode, source) not in ((SELECTED_ONLY, "main"), (LOCAL_PLUS_SELECTED, "auxiliary")):
        raise ValueError(
            f"attention_mode is {mode!r} and selected_kv_source {source!r}, but they must be "
            f"{SELECTED_ONLY!r} and 'main', or {LOCAL_PLUS_SELECTED!r} and 'auxiliary'"
        )
    if is_causal != 1 or (source == "auxiliary" and window < 1):
        raise ValueError(
            f"is_causal is {is_causal} and local_window_size {window}, but is_causal must be 1, "
            f"and the window positive with {LOCAL_PLUS_SELECTED!r}"
        )


# -- keys and values -------------------------------------------------------------------------------


def _auxiliary(keys: Array | None, values: Array | None, is_shared: int) -> tuple[Array, Array]:
    """Return the auxiliary keys and values, which may be the same."""
    if keys is not None and values is None and is_shared:
        values = keys
    if keys is None or values is None:
        raise ValueError(
            "auxiliary keys are selected, but auxiliary_key or auxiliary_value is missing"
        )
    if keys.ndim != 4:
        raise ValueError(f"auxiliary_key has shape {keys.shape}, but needs four axes")
    require_shape("auxiliary_value", values, keys.shape)
    return keys, values


def _joined(xp: Backend, x: Array, heads: int) -> Array:
    """Return (1, heads, rows, size) from (batch, rows, heads or 1, size), all samples joined."""
    batch, rows, own, size = x.shape
    if own not in (1, heads):
        raise ValueError(f"auxiliary_key has {own} heads, but must have 1 or {heads}")
    x = xp.permute_dims(xp.reshape(x, (1, batch * rows, own, size)), (0, 2, 1, 3))
    return xp.broadcast_to(x, (1, heads, batch * rows, size))


def _by_head(xp: Backend, x: Array, batch: int) -> Array:
    """Return (batch, heads, length, size) from (batch * length, heads, size)."""
    tokens, heads, size = x.shape
    rows = xp.reshape(x, (batch, tokens // batch, heads, size))
    return xp.permute_dims(rows, (0, 2, 1, 3))


def _appended(xp: Backend, past: Array | None, new: Array, starts: Array, length: int) -> Array:
    """Return the buffer of past keys or values with those of this call, of at least `length`."""
    batch, heads, _, size = new.shape
    if past is None:
        past = xp.zeros((batch, heads, 0, size), dtype=new.dtype)
    if past.ndim != 4 or (past.shape[0], past.shape[1], past.shape[3]) != (batch, heads, size):
        raise ValueError(
            f"a past state has shape {past.shape}, but must be ({batch}, {heads}, length, {size})"
        )
    return written(xp, lengthened(xp, past, length), xp.astype(new, past.dtype), starts)
