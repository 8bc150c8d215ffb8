"""What PackedSparseAttentionIndexer keeps of each request, in arrays whose shapes never change.

Keys of complete blocks lie in a state, and tokens that belong to no complete block in a buffer. A
call that needs more room than the state has leaves both as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.dtypes import FLOAT32, INT32, INT64
from sardonyx.ops.microsoft.compressed_keys import mean_of_windows
from sardonyx.ops.microsoft.packed_requests import Requests


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks that this call completes: each request has its own number of them."""

    requests: Requests
    ratio: int
    # By request: the keys in the state, and the tokens in the buffer, before this call.
    entries: Array
    held: Array
    # The first tokens in the buffer, if they belong to a block that is complete already.
    overlap: Array
    complete: Array
    # Whether a request has too little room, or lengths that contradict each other.
    is_refused: Array
    # Whether the buffer keeps the tokens of the last complete block.
    keeps_last: bool

    @classmethod
    def of(
        cls,
        xp: Backend,
        requests: Requests,
        lengths: Array,
        past: Array,
        ratio: int,
        capacity: int,
        *,
        keeps_last: bool,
    ) -> Blocks:
        """Count them, from the two `lengths` of each request and its `past` tokens."""
        if capacity < 1:
            raise ValueError(f"state_capacity is {capacity}, but must be positive")
        entries, held, past = (
            xp.astype(each, xp.dtype(INT64)) for each in (lengths[:, 0], lengths[:, 1], past)
        )
        overlap = xp.where(held >= ratio, xp.full_like(held, ratio), xp.zeros_like(held))
        complete = (held - overlap + requests.lengths) // ratio
        is_sound = (entries >= 0) & (held >= 0) & (past >= 0)
        if keeps_last:
            is_sound = is_sound & (held < 2 * ratio)
        else:
            is_sound = is_sound & (held < ratio) & xp.equal(entries * ratio + held, past)
        is_refused = ~(is_sound & (entries + complete <= capacity))
        complete = xp.where(is_refused, xp.zeros_like(complete), complete)
        return cls(requests, ratio, entries, held, overlap, complete, is_refused, keeps_last)

    def require_projections(self, name: str, new: Array, buffer: Array, width: int) -> None:
        """Raise a ValueError unless tokens and a buffer of tokens have this width."""
        require_shape(name, new, (self.requests.total, width))
        shape = (self.requests.count, 2 * self.ratio - 1, width)
        require_shape(f"the buffer of {name}", buffer, shape)

    @property
    def most(self) -> int:
        """The greatest number of blocks that this call can complete, of all requests."""
        waiting = self.requests.count * (self.ratio - 1)
        return (self.requests.total + waiting) // self.ratio

    def places(self, xp: Backend) -> tuple[Array, Array]:
        """Return the request of each block, and the block's number among the request's new ones."""
        ends = xp.cumulative_sum(self.complete)
        block = xp.arange(self.most, dtype=ends.dtype)
        row = xp.astype(xp.searchsorted(ends, block, side="right"), ends.dtype)
        row = xp.minimum(row, self.requests.count - 1)
        return row, block - xp.take(ends - self.complete, row, axis=0)

    def tokens(self, xp: Backend, row: Array, number: Array) -> tuple[Array, Array]:
        """Return the request and the place of each token of blocks, counted from the buffer's."""
        first = xp.take(self.overlap, row, axis=0) + number * self.ratio
        place = first[:, None] + xp.arange(self.ratio, dtype=first.dtype)
        return xp.broadcast_to(row[:, None], place.shape), place

    def at(self, xp: Backend, buffer: Array, new: Array, row: Array, place: Array) -> Array:
        """Return the tokens at places in requests: those of the buffer, then those of this call."""
        inside = xp.minimum(xp.maximum(place, 0), buffer.shape[1] - 1)
        waiting = xp.gather(buffer, (row, inside))
        if not self.requests.total:
            return waiting
        ahead = place - _per_request(xp, self.held, row)
        last = self.requests.total - 1
        here = xp.minimum(_per_request(xp, self.requests.starts, row) + xp.maximum(ahead, 0), last)
        current = xp.take(new, xp.reshape(here, (-1,)), axis=0)
        current = xp.reshape(current, (*here.shape, new.shape[1]))
        return xp.where(ahead[..., None] >= 0, current, waiting)

    # -- the state after the call ------------------------------------------------------------------

    def lengths(self, xp: Backend, past: Array) -> Array:
        """Return the numbers of keys and of tokens that each request has after the call."""
        held = self.held + self.requests.lengths - self._dropped(xp)
        after = xp.astype(xp.stack([self.entries + self.complete, held], axis=1), xp.dtype(INT32))
        return xp.where(self.is_refused[:, None], past, after)

    def _dropped(self, xp: Backend) -> Array:
        """Return how many tokens at the start of each request the next call does not need."""
        last = self.ratio if self.keeps_last else 0
        dropped = self.overlap + self.complete * self.ratio - last
        return xp.where(self.complete > 0, dropped, xp.zeros_like(dropped))

    def buffer(self, xp: Backend, buffer: Array, new: Array) -> Array:
        """Return the tokens that the next call needs, each request's from the start."""
        start = self._dropped(xp)
        place = start[:, None] + xp.arange(buffer.shape[1], dtype=start.dtype)
        row = xp.arange(self.requests.count, dtype=start.dtype)[:, None]
        moved = self.at(xp, buffer, new, xp.broadcast_to(row, place.shape), place)
        is_there = place < (self.held + self.requests.lengths)[:, None]
        is_there = is_there & ~self.is_refused[:, None]
        return xp.where(is_there[..., None], moved, buffer)

    def keys(self, xp: Backend, state: Array, new: Array) -> Array:
        """Return the state with the keys of new blocks after those that are there."""
        if not self.most:
            return state
        place = xp.arange(state.shape[1], dtype=self.entries.dtype)
        number = place - self.entries[:, None]
        is_new = (number >= 0) & (number < self.complete[:, None])
        before = (xp.cumulative_sum(self.complete) - self.complete)[:, None]
        block = xp.minimum(before + xp.maximum(number, 0), self.most - 1)
        found = xp.take(xp.astype(new, state.dtype), xp.reshape(block, (-1,)), axis=0)
        return xp.where(is_new[..., None], xp.reshape(found, state.shape), state)

    # -- means -------------------------------------------------------------------------------------

    def means(self, xp: Backend, buffer: Array, new: Array) -> Array:
        """Return (blocks, size): the mean of each block's tokens, in float32."""
        rows = self.at(xp, buffer, new, *self.tokens(xp, *self.places(xp)))
        return xp.mean(xp.astype(rows, xp.dtype(FLOAT32)), axis=1)

    def gated_means(
        self,
        xp: Backend,
        buffers: tuple[Array, Array],
        new: tuple[Array, Array],
        position_bias: Array,
    ) -> Array:
        """Return (blocks, size): the mean of each block and the one before, by gates."""
        row, number = self.places(xp)
        request, place = self.tokens(xp, row, number)
        wide = xp.dtype(FLOAT32)

        def windows(place: Array) -> Array:
            parts = (self.at(xp, *each, request, place) for each in zip(buffers, new, strict=True))
            return xp.astype(xp.stack(list(parts)), wide)

        has_before = ((number > 0) | (xp.take(self.overlap, row, axis=0) > 0))[:, None, None]
        before = windows(place - self.ratio)
        keys = xp.where(has_before, before[0, ...], xp.zeros_like(before[0, ...]))
        gates = xp.where(has_before, before[1, ...], xp.full_like(before[1, ...], -math.inf))
        return mean_of_windows(xp, xp.stack([keys, gates]), windows(place), position_bias)


def _per_request(xp: Backend, values: Array, row: Array) -> Array:
    """Return the values of requests, in the shape of `row`."""
    return xp.reshape(xp.take(values, xp.reshape(row, (-1,)), axis=0), row.shape)
