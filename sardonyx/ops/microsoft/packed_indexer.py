"""PackedSparseAttentionIndexer: SparseAttentionIndexer for requests one after the other."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.activation import Relu
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import op
from sardonyx.ops.dtypes import FLOAT32, INT32
from sardonyx.ops.microsoft.indexer_arithmetic import Angles, normalized
from sardonyx.ops.microsoft.packed_indexer_state import Blocks
from sardonyx.ops.microsoft.packed_requests import Requests
from sardonyx.ops.microsoft.sparse_indexer import best_of_first, tokens_of_blocks
from sardonyx.ops.options import require_one_of


@op(domain="com.microsoft")
def PackedSparseAttentionIndexer(
    xp: Backend,
    query: Array,
    key: Array | None,
    query_norm_weight: Array,
    key_norm_weight: Array,
    cos_cache: Array,
    sin_cache: Array,
    cumulative_sequence_lengths: Array,
    past_sequence_lengths: Array,
    gate: Array | None,
    position_bias: Array | None,
    head_weights: Array | None,
    position_ids: Array | None,
    past_key_state: Array,
    past_kv_buffer: Array,
    past_gate_buffer: Array | None,
    past_state_lengths: Array,
    state_update_capture_count: Array | None = None,
    state_update_active: Array | None = None,
    *,
    compress_ratio: int,
    epsilon: float = 1e-6,
    head_weight_scale: float | None = None,
    index_topk: int | None = None,
    policy_mode: str,
    scale: float | None = None,
    state_capacity: int,
    state_update_capacity: int = 0,
    token_budget: int | None = None,
) -> tuple[Array, Array, Array, Array, Array, Array, Array]:
    """Return the places of the keys with the best scores, or -1, their numbers, and the new state.

    The last result has the keys that the first tokens of each request add.
    """
    require_one_of("policy_mode", policy_mode, ("qsa", "csa"))
    is_qsa = policy_mode == "qsa"
    size = query_norm_weight.shape[0] if query_norm_weight.ndim == 1 else 0
    if compress_ratio < 1 or query.ndim != 2 or not size:
        raise ValueError(
            f"compress_ratio is {compress_ratio}, and must be positive; query has shape "
            f"{query.shape} and query_norm_weight {query_norm_weight.shape}, and they must be "
            "(tokens, size) and (head size)"
        )
    if key is None and is_qsa:
        query, key = query[:, :-size], query[:, -size:]
    if key is None or query.shape[1] % size or not query.shape[1]:
        raise ValueError(f"query has shape {query.shape}, but needs heads of {size}, and a key")
    require_shape("key_norm_weight", key_norm_weight, (size,))
    blocks = _blocks(
        xp,
        query.shape[0],
        cumulative_sequence_lengths,
        past_state_lengths,
        past_sequence_lengths,
        compress_ratio,
        state_capacity,
        keeps_last=not is_qsa,
    )
    count = blocks.requests.count
    require_shape("past_key_state", past_key_state, (count, state_capacity, size))
    blocks.require_projections("key", key, past_kv_buffer, size if is_qsa else 2 * size)
    indexer = _Indexer(
        blocks,
        Angles.of(cos_cache, sin_cache, count),
        is_qsa,
        query_norm_weight,
        key_norm_weight,
        epsilon,
        1 / math.sqrt(size) if scale is None else scale,
    )
    beside = (gate, position_bias, head_weights, position_ids, past_gate_buffer)
    if is_qsa:
        if any(each is not None for each in beside):
            raise ValueError(f"'qsa' has none of the inputs {_ONLY_OF_CSA}")
        keys = indexer.keys(xp, past_key_state, blocks.means(xp, past_kv_buffer, key))
        budget = _budget(token_budget, compress_ratio, index_topk)
        chosen = _best_tokens(xp, indexer, query, keys, past_sequence_lengths, budget)
        captured = blocks.requests.first_places(
            xp, state_update_capture_count, state_update_capacity
        )
        updates = _updates(xp, blocks, key, keys, captured, state_update_active)
        gates = xp.zeros((0,), dtype=key.dtype)
    else:
        most = _most_entries(index_topk, token_budget, state_update_capacity)
        inputs = _OfEntries.of(blocks, *beside)
        keys = indexer.keys(xp, past_key_state, inputs.means(xp, blocks, key, past_kv_buffer))
        weights = inputs.weights(xp, query.shape[1] // size, head_weight_scale)
        chosen = _best_entries(xp, indexer, query, keys, weights, inputs.positions, most)
        updates = xp.zeros((count, 0, size), dtype=key.dtype)
        gates = blocks.buffer(xp, inputs.gate_buffer, inputs.gate)
    buffer = blocks.buffer(xp, past_kv_buffer, key)
    return *chosen, keys, buffer, gates, blocks.lengths(xp, past_state_lengths), updates


def _blocks(
    xp: Backend,
    total: int,
    bounds: Array,
    lengths: Array,
    past: Array,
    ratio: int,
    capacity: int,
    *,
    keeps_last: bool,
) -> Blocks:
    name = "cumulative_sequence_lengths"
    requests = Requests.of(xp, total, bounds, past=0, name=name, least=0)
    require_shape("past_sequence_lengths", past, (requests.count,))
    require_shape("past_state_lengths", lengths, (requests.count, 2))
    return Blocks.of(xp, requests, lengths, past, ratio, capacity, keeps_last=keeps_last)


_ONLY_OF_CSA = "gate, position_bias, head_weights, position_ids and past_gate_buffer"


def _budget(token_budget: int | None, ratio: int, index_topk: int | None) -> int:
    budget = token_budget or 0
    if budget < 1 or budget % ratio or index_topk is not None:
        raise ValueError(
            f"token_budget is {token_budget} and index_topk {index_topk}, but 'qsa' needs a "
            f"budget that {ratio} divides, and no index_topk"
        )
    return budget


def _most_entries(index_topk: int | None, token_budget: int | None, updates: int) -> int:
    if index_topk is None or index_topk < 1 or token_budget is not None or updates:
        raise ValueError(
            f"index_topk is {index_topk}, token_budget {token_budget} and state_update_capacity "
            f"{updates}, but 'csa' needs a positive index_topk, and neither of the others"
        )
    return index_topk


@dataclass(frozen=True, slots=True)
class _OfEntries:
    """The inputs that only 'csa' has."""

    gate: Array
    position_bias: Array
    head_weights: Array
    positions: Array
    gate_buffer: Array

    @classmethod
    def of(cls, blocks: Blocks, *inputs: Array | None) -> _OfEntries:
        present = [each for each in inputs if each is not None]
        if len(present) < len(inputs):
            raise ValueError(f"'csa' needs the inputs {_ONLY_OF_CSA}")
        found = cls(*present)
        require_shape("position_ids", found.positions, (blocks.requests.total,))
        width = found.gate.shape[-1] if found.gate.ndim else 0
        blocks.require_projections("gate", found.gate, found.gate_buffer, width)
        return found

    def means(self, xp: Backend, blocks: Blocks, key: Array, buffer: Array) -> Array:
        require_shape("gate", self.gate, key.shape)
        buffers, new = (buffer, self.gate_buffer), (key, self.gate)
        return blocks.gated_means(xp, buffers, new, self.position_bias)

    def weights(self, xp: Backend, heads: int, scale: float | None) -> Array:
        require_shape("head_weights", self.head_weights, (self.positions.shape[0], heads))
        scale = 1 / math.sqrt(heads) if scale is None else scale
        return xp.astype(self.head_weights, xp.dtype(FLOAT32)) * scale


@dataclass(frozen=True, slots=True)
class _Indexer:
    """What both policies need."""

    blocks: Blocks
    angles: Angles
    turns_halves: bool
    query_weight: Array
    key_weight: Array
    epsilon: float
    scale: float

    def keys(self, xp: Backend, state: Array, means: Array) -> Array:
        """Return the state with the keys of new blocks, of which `means` are the means."""
        request, number = self.blocks.places(xp)
        first = (xp.take(self.blocks.entries, request, axis=0) + number) * self.blocks.ratio
        normal = normalized(xp, means, self.key_weight, self.epsilon)
        return self.blocks.keys(xp, state, self._turned(xp, normal, request, first))

    def scores(
        self, xp: Backend, query: Array, keys: Array, positions: Array, weights: Array | None
    ) -> Array:
        """Return (tokens, entries): how much the heads of each token look at its request's keys.

        A token gets scores with the keys of all requests, of which it takes its own.
        """
        size = self.query_weight.shape[0]
        tokens, heads = query.shape[0], query.shape[1] // size
        request, _ = self.blocks.requests.places(xp)
        by_head = xp.reshape(query, (tokens, heads, size))
        normal = normalized(xp, by_head, self.query_weight, self.epsilon)
        turned = xp.reshape(self._turned(xp, normal, request, positions), (tokens * heads, size))
        rows = xp.reshape(xp.astype(keys, turned.dtype), (-1, size))
        looks = Relu(xp, xp.matmul(turned, xp.matrix_transpose(rows))) * self.scale
        looks = xp.reshape(looks, (tokens, heads, keys.shape[0], keys.shape[1]))
        if weights is not None:
            looks = looks * weights[:, :, None, None]
        token = xp.arange(tokens, dtype=request.dtype)
        return xp.gather(xp.sum(looks, axis=1), (token, request))

    def visible(self, xp: Backend, positions: Array) -> tuple[Array, Array]:
        """Return the number of entries that each token sees, and whether its request went well."""
        blocks = self.blocks
        request, _ = blocks.requests.places(xp)
        there = xp.take(blocks.entries + blocks.complete, request, axis=0)
        is_refused = xp.take(blocks.is_refused, request, axis=0)
        return xp.minimum((positions + 1) // blocks.ratio, there), ~is_refused

    def _turned(self, xp: Backend, x: Array, request: Array, positions: Array) -> Array:
        """Rotate (count, ..., size) at positions of requests."""
        angles, place = self.angles.of_requests(xp, request, positions)
        turn = angles.turned_halves if self.turns_halves else angles.turned_pairs
        return turn(xp, x[None, ...], place[None, :])[0, ...]


def _best_tokens(
    xp: Backend, indexer: _Indexer, query: Array, keys: Array, past: Array, budget: int
) -> tuple[Array, Array]:
    """Return the tokens of the best blocks, those after the last block, and their number."""
    request, place = indexer.blocks.requests.places(xp)
    positions = xp.take(xp.astype(past, place.dtype), request, axis=0) + place
    scores = indexer.scores(xp, query, keys, positions, None)
    visible, goes_well = indexer.visible(xp, positions)
    ratio = indexer.blocks.ratio
    index, is_used = tokens_of_blocks(xp, scores, visible, positions + 1, budget, ratio)
    is_used = is_used & goes_well[:, None]
    numbers = xp.sum(xp.astype(is_used, xp.dtype(INT32)), axis=1, dtype=xp.dtype(INT32))
    chosen = xp.where(is_used, index, xp.full_like(index, -1))
    return xp.astype(chosen, xp.dtype(INT32)), numbers


def _best_entries(
    xp: Backend,
    indexer: _Indexer,
    query: Array,
    keys: Array,
    weights: Array,
    positions: Array,
    most: int,
) -> tuple[Array, Array]:
    """Return the best of the entries whose tokens all lie before each query, and their number."""
    scores = indexer.scores(xp, query, keys, positions, weights)
    visible, goes_well = indexer.visible(xp, positions)
    chosen = best_of_first(xp, scores, xp.where(goes_well, visible, xp.zeros_like(visible)), most)
    numbers = xp.sum(xp.astype(chosen >= 0, chosen.dtype), axis=1, dtype=chosen.dtype)
    return chosen, numbers


def _updates(
    xp: Backend,
    blocks: Blocks,
    key: Array,
    keys: Array,
    captured: tuple[Array, Array, Array],
    active: Array | None,
) -> Array:
    """Return what each request's first tokens add: their own keys, or those of their blocks."""
    row, place, is_captured = captured
    is_captured = is_captured & ~blocks.is_refused[:, None]
    if active is not None:
        is_captured = is_captured & xp.not_equal(xp.reshape(active, ()), 0)
    buffer = xp.zeros((keys.shape[0], 1, keys.shape[2]), dtype=key.dtype)
    own = blocks.at(xp, buffer, key, row, place + blocks.held[:, None])
    after = blocks.held[:, None] + place + 1
    block = blocks.entries[:, None] + after // blocks.ratio - 1
    block = xp.minimum(xp.maximum(block, 0), keys.shape[1] - 1)
    is_last = xp.equal(after % blocks.ratio, 0)
    added = xp.where(is_last[..., None], xp.gather(keys, (row, block)), own)
    return xp.where(is_captured[..., None], added, xp.zeros_like(added))
