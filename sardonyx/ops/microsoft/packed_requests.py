"""Requests of any lengths, one after the other in one vector of tokens."""

from __future__ import annotations

from dataclasses import dataclass

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.dtypes import BOOL, INT64

# Maximum number of states that a request may return.
MOST_CAPTURED = 8


@dataclass(frozen=True, slots=True)
class Requests:
    """Where each request lies in the vector of all tokens."""

    starts: Array
    lengths: Array
    total: int
    # How many tokens from before this call each request has.
    past: int

    @classmethod
    def of(
        cls,
        xp: Backend,
        total: int,
        bounds: Array,
        past: int,
        *,
        name: str = "cumulative_sequence_length",
        least: int = 1,
    ) -> Requests:
        """Return the requests between `bounds`, the input `name`, of at least so many tokens."""
        if bounds.ndim != 1 or bounds.shape[0] < 2:
            raise ValueError(
                f"{name} has shape {bounds.shape}, but must be a vector of at least 2 elements"
            )
        count = bounds.shape[0] - 1
        if total < least * count:
            raise ValueError(
                f"{total} tokens are too few for {count} requests, as each must have one"
            )
        xp.require(bounds, Within(name, 0, 0, part=slice(0, 1)))
        xp.require(bounds, Within(name, least, total, part=slice(1, None)))
        xp.require(bounds, Within(name, total, total, part=slice(-1, None)))
        bounds = xp.astype(bounds, xp.dtype(INT64))
        return cls(bounds[:-1], bounds[1:] - bounds[:-1], total, past)

    @property
    def count(self) -> int:
        return self.starts.shape[0]

    def places(self, xp: Backend) -> tuple[Array, Array]:
        """Return the request of each token, and the token's place in it."""
        at = xp.arange(self.total, dtype=self.starts.dtype)
        row = xp.astype(xp.searchsorted(self.starts, at, side="right"), at.dtype) - 1
        return row, at - xp.take(self.starts, row, axis=0)

    def last_places(self, xp: Backend) -> tuple[Array, Array]:
        """Return the last places of each request, with the number of the request."""
        place = xp.expand_dims(self.lengths, axis=1) + self.window(xp)
        return xp.broadcast_to(self._rows(xp), place.shape), place

    def _rows(self, xp: Backend) -> Array:
        return xp.expand_dims(xp.arange(self.count, dtype=self.starts.dtype), axis=1)

    def window(self, xp: Backend) -> Array:
        """Return the places of the last tokens, relative to the end."""
        return xp.arange(-self.past, 0, dtype=self.starts.dtype)

    def at(self, xp: Backend, values: Array, past: Array, row: Array, place: Array) -> Array:
        """Return the values at places in requests; a negative place is before this call."""
        rest = values.shape[1:]
        start = xp.reshape(xp.take(self.starts, xp.reshape(row, (-1,)), axis=0), row.shape)
        here = xp.minimum(start + xp.maximum(place, 0), self.total - 1)
        current = xp.reshape(xp.take(values, xp.reshape(here, (-1,)), axis=0), (*here.shape, *rest))
        if not self.past:
            return current
        before = xp.minimum(xp.maximum(place + self.past, 0), self.past - 1)
        is_here = xp.reshape(place >= 0, (*place.shape, *(1 for _ in rest)))
        return xp.where(is_here, current, xp.gather(past, (row, before)))

    def first_places(
        self, xp: Backend, capture_count: Array | None, capacity: int
    ) -> tuple[Array, Array, Array]:
        """Return the request and the place of first tokens, and which of them are captured."""
        if not 0 <= capacity <= MOST_CAPTURED or (capacity > 0) != (capture_count is not None):
            raise ValueError(
                f"state_update_capacity is {capacity}, but must be 0 to {MOST_CAPTURED}, and "
                "positive exactly if capture_count is present"
            )
        shape = (self.count, capacity)
        place = xp.broadcast_to(xp.arange(capacity, dtype=self.starts.dtype), shape)
        row = xp.broadcast_to(self._rows(xp), shape)
        if capture_count is None:
            return row, place, xp.zeros(shape, dtype=xp.dtype(BOOL))
        require_shape("capture_count", capture_count, (self.count,))
        most = xp.minimum(xp.astype(capture_count, place.dtype), self.lengths)
        return row, place, place < xp.expand_dims(most, axis=1)
