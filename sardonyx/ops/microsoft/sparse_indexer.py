"""SparseAttentionIndexer: which keys a sparse attention may read.

The policies are those of Qwen ("qsa": blocks of the tokens that a query sees) and of DeepSeek
("csa": entries that each stand for several tokens).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Outputs, op
from sardonyx.ops.dtypes import FLOAT32, INT32, INT64
from sardonyx.ops.microsoft.compressed_keys import Windows
from sardonyx.ops.microsoft.indexer_arithmetic import Angles, Cache, head_scores, normalized
from sardonyx.ops.options import require_one_of


@op(domain="com.microsoft")
def SparseAttentionIndexer(
    xp: Backend,
    query: Array,
    key: Array | None,
    query_norm_weight: Array,
    key_norm_weight: Array,
    cos_cache: Array,
    sin_cache: Array,
    mask: Array | None,
    past_key: Array,
    gate: Array | None = None,
    position_bias: Array | None = None,
    head_weights: Array | None = None,
    position_ids: Array | None = None,
    past_sequence_length: Array | None = None,
    past_proj_buffer: Array | None = None,
    *,
    compress_ratio: int,
    epsilon: float = 1e-6,
    head_weight_scale: float | None = None,
    index_topk: int | None = None,
    policy_mode: str,
    scale: float | None = None,
    token_budget: int | None = None,
    outputs: Outputs,
) -> tuple[Array, ...]:
    """Return the places of the keys with the best scores, or -1, and all keys with the new ones."""
    require_one_of("policy_mode", policy_mode, ("qsa", "csa"))
    if compress_ratio < 1 or query.ndim != 3 or query_norm_weight.ndim != 1:
        raise ValueError(
            f"compress_ratio is {compress_ratio}, and must be positive; query has shape "
            f"{query.shape} and query_norm_weight {query_norm_weight.shape}, and they must be "
            "(batch, length, size) and (head size)"
        )
    size = query_norm_weight.shape[0]
    require_shape("key_norm_weight", key_norm_weight, (size,))
    indexer = _Indexer(
        Cache.of(xp, past_key, past_sequence_length, query, size),
        Angles.of(cos_cache, sin_cache, query.shape[0]),
        query_norm_weight,
        key_norm_weight,
        epsilon,
        1 / math.sqrt(size) if scale is None else scale,
        compress_ratio,
    )
    if policy_mode == "qsa":
        budget = token_budget or 0
        if budget < 1 or budget % compress_ratio or index_topk is not None:
            raise ValueError(
                f"token_budget is {token_budget} and index_topk {index_topk}, but 'qsa' needs a "
                f"budget that {compress_ratio} divides, and no index_topk"
            )
        return _best_tokens(xp, indexer, query, key, mask, budget)
    if index_topk is None or index_topk < 1 or token_budget is not None or mask is not None:
        raise ValueError(
            f"index_topk is {index_topk} and token_budget {token_budget}, but 'csa' needs a "
            "positive index_topk, and neither token_budget nor a mask"
        )
    if key is None or gate is None or position_bias is None:
        raise ValueError("'csa' needs the inputs key, gate and position_bias")
    if head_weights is None or position_ids is None:
        raise ValueError("'csa' needs the inputs head_weights and position_ids")
    windows = Windows.of(xp, past_proj_buffer, key, gate, size, compress_ratio)
    pooled = windows.pooled(xp, position_bias)
    heads = query.shape[2] // size
    require_shape("head_weights", head_weights, (*query.shape[:2], heads))
    require_shape("position_ids", position_ids, query.shape[:2])
    head_scale = 1 / math.sqrt(heads) if head_weight_scale is None else head_weight_scale
    weights = xp.astype(head_weights, xp.dtype(FLOAT32)) * head_scale
    chosen, present = _best_entries(xp, indexer, query, pooled, weights, position_ids, index_topk)
    return chosen, present, windows.rest()


class _Indexer(NamedTuple):
    """What both policies need."""

    cache: Cache
    angles: Angles
    query_weight: Array
    key_weight: Array
    epsilon: float
    scale: float
    ratio: int

    def queries(self, xp: Backend, query: Array) -> Array:
        """Return (batch, length, heads, size), normalised."""
        size = self.query_weight.shape[0]
        if query.shape[2] % size or not query.shape[2]:
            raise ValueError(f"query has shape {query.shape}, no multiple of heads of {size}")
        by_head = xp.reshape(query, (*query.shape[:2], query.shape[2] // size, size))
        return normalized(xp, by_head, self.query_weight, self.epsilon)

    def keys(self, xp: Backend, key: Array) -> Array:
        return normalized(xp, key, self.key_weight, self.epsilon)


# -- blocks of visible tokens ----------------------------------------------------------------------


def _best_tokens(
    xp: Backend,
    indexer: _Indexer,
    query: Array,
    key: Array | None,
    mask: Array | None,
    budget: int,
) -> tuple[Array, Array]:
    """Return the tokens of the best blocks, and those after the last complete block."""
    size, ratio = indexer.query_weight.shape[0], indexer.ratio
    if key is None:
        query, key = query[..., :-size], query[..., -size:]
    batch, length = query.shape[:2]
    require_shape("key", key, (batch, length, size))
    present = indexer.cache.with_rows(xp, key)
    place = indexer.cache.past + xp.arange(length, dtype=xp.dtype(INT64))
    positions = xp.broadcast_to(place, (batch, length))
    queries = indexer.angles.turned_halves(xp, indexer.queries(xp, query), positions)
    tokens, counts = _visible(xp, mask, present.shape[1], positions)

    blocks = present.shape[1] // ratio
    complete = xp.reshape(tokens[:, : blocks * ratio], (batch, blocks, ratio))
    sample = xp.arange(batch, dtype=tokens.dtype)[:, None, None]
    rows = xp.gather(present, [xp.broadcast_to(sample, complete.shape), complete])
    pooled = indexer.keys(xp, xp.mean(xp.astype(rows, xp.dtype(FLOAT32)), axis=2))
    keys = indexer.angles.turned_halves(xp, pooled, complete[:, :, 0])
    scores = xp.permute_dims(queries, (0, 2, 1, 3))
    scores = xp.sum(head_scores(xp, scores, keys, indexer.scale), axis=1)
    block_counts = counts // ratio
    index, is_used = tokens_of_blocks(xp, scores, block_counts, counts, budget, ratio)
    index = xp.minimum(index, xp.full_like(index, max(present.shape[1] - 1, 0)))
    found = xp.gather(tokens, [xp.broadcast_to(sample, index.shape), index])
    found = xp.where(is_used, found, xp.full_like(found, -1))
    return xp.astype(found, xp.dtype(INT32)), present


def tokens_of_blocks(
    xp: Backend, scores: Array, block_counts: Array, counts: Array, budget: int, ratio: int
) -> tuple[Array, Array]:
    """Return the tokens of the best blocks, then those after the last block, and which are used.

    Each query (..., 1) sees its first `block_counts` blocks and `counts` tokens.
    """
    blocks = scores.shape[-1]
    most = min(budget // ratio, blocks)
    is_there = xp.arange(blocks, dtype=counts.dtype) < block_counts[..., None]
    scores = xp.where(is_there, scores, xp.asarray(-math.inf, dtype=scores.dtype))
    slot = xp.arange(budget + ratio - 1, dtype=counts.dtype)
    from_blocks = xp.minimum(block_counts, xp.full_like(counts, most))[..., None] * ratio
    after = block_counts[..., None] * ratio + slot - from_blocks
    index = after
    if most:
        best = xp.top_k(scores, most, axis=scores.ndim - 1, largest=True)
        chosen = xp.minimum(slot // ratio, xp.asarray(most - 1, dtype=slot.dtype))
        block = xp.take(best, chosen, axis=scores.ndim - 1)
        index = xp.where(slot < from_blocks, block * ratio + slot % ratio, after)
    return index, (slot < from_blocks) | (after < counts[..., None])


def _visible(xp: Backend, mask: Array | None, rows: int, positions: Array) -> tuple[Array, Array]:
    """Return the tokens that the mask leaves, in order, and how many of them each query sees."""
    batch = positions.shape[0]
    row = xp.broadcast_to(xp.arange(rows, dtype=positions.dtype), (batch, rows))
    seen = row[:, None, :] <= positions[:, :, None]
    if mask is None:
        return row, xp.sum(xp.astype(seen, row.dtype), axis=2, dtype=row.dtype)
    if mask.ndim != 2 or mask.shape[0] != batch or mask.shape[1] > rows:
        raise ValueError(f"mask has shape {mask.shape}, but must be ({batch}, up to {rows})")
    mask = xp.pad(mask, [(0, 0), (0, rows - mask.shape[1])], 0)
    left = xp.not_equal(mask, 0)
    order = xp.top_k(xp.astype(left, xp.dtype(INT32)), rows, axis=1, largest=True)
    seen = seen & left[:, None, :]
    return order, xp.sum(xp.astype(seen, row.dtype), axis=2, dtype=row.dtype)


# -- entries for several tokens --------------------------------------------------------------------


def _best_entries(
    xp: Backend,
    indexer: _Indexer,
    query: Array,
    pooled: Array,
    head_weights: Array,
    positions: Array,
    most: int,
) -> tuple[Array, Array]:
    """Return the best of the entries whose tokens all lie before each query, and all entries."""
    batch, count = pooled.shape[:2]
    first = (indexer.cache.past + xp.arange(count, dtype=xp.dtype(INT64))) * indexer.ratio
    first = xp.broadcast_to(first, (batch, count))
    new = indexer.angles.turned_pairs(xp, indexer.keys(xp, pooled), first)
    present = indexer.cache.with_rows(xp, new)
    entries = indexer.cache._replace(rows=xp.astype(indexer.cache.rows, xp.dtype(FLOAT32)))
    queries = indexer.angles.turned_pairs(xp, indexer.queries(xp, query), positions)
    by_head = xp.permute_dims(queries, (0, 2, 1, 3))
    scores = head_scores(xp, by_head, entries.with_rows(xp, new), indexer.scale)
    scores = xp.sum(scores * xp.permute_dims(head_weights, (0, 2, 1))[..., None], axis=1)
    end = xp.minimum((positions + 1) // indexer.ratio, indexer.cache.past + count)
    return best_of_first(xp, scores, end, most), present


def best_of_first(xp: Backend, scores: Array, end: Array, most: int) -> Array:
    """Return the places of the best of each query's first `end` scores; -1 for the rest."""
    rows, end = scores.shape[-1], end[..., None]
    row = xp.arange(rows, dtype=end.dtype)
    scores = xp.where(row < end, scores, xp.asarray(-math.inf, dtype=scores.dtype))
    best = xp.top_k(scores, min(most, rows), axis=scores.ndim - 1, largest=True)
    best = xp.where(best < end, best, xp.full_like(best, -1))
    missing = [(0, 0)] * (scores.ndim - 1) + [(0, most - best.shape[-1])]
    return xp.astype(xp.pad(best, missing, -1), xp.dtype(INT32))
