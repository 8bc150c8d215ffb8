"""Requests of any lengths, one after the other in one vector of tokens."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.dtypes import INT64

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
    def of(cls, xp: Backend, input_ids: Array, bounds: Array, past: int) -> Requests:
        if input_ids.ndim != 1 or bounds.ndim != 1 or bounds.shape[0] < 2:
            raise ValueError(
                f"input_ids has shape {input_ids.shape} and cumulative_sequence_length has shape "
                f"{bounds.shape}, but both must be vectors, the second of at least 2 elements"
            )
        total, count = input_ids.shape[0], bounds.shape[0] - 1
        if total < count:
            raise ValueError(
                f"{total} tokens are too few for {count} requests, as each must have one"
            )
        name = "cumulative_sequence_length"
        xp.require(bounds, Within(name, 0, 0, part=slice(0, 1)))
        xp.require(bounds, Within(name, 1, total, part=slice(1, None)))
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
        row = xp.arange(self.count, dtype=self.starts.dtype)
        return xp.expand_dims(row, axis=1), xp.expand_dims(self.lengths, axis=1) + self._window(xp)

    def _window(self, xp: Backend) -> Array:
        """Return the places of the last tokens, relative to the end."""
        return xp.arange(-self.past, 0, dtype=self.starts.dtype)

    def at(self, xp: Backend, values: Array, past: Array, row: Array, place: Array) -> Array:
        """Return the values at places in requests; a negative place is before this call."""
        start = xp.reshape(xp.take(self.starts, xp.reshape(row, (-1,)), axis=0), row.shape)
        here = xp.minimum(start + xp.maximum(place, 0), self.total - 1)
        before = xp.minimum(xp.maximum(place + self.past, 0), self.past - 1)
        current = xp.reshape(xp.take(values, xp.reshape(here, (-1,)), axis=0), here.shape)
        return xp.where(place >= 0, current, xp.gather(past, (row, before)))

    def captured(
        self,
        xp: Backend,
        input_ids: Array,
        past_ids: Array,
        capture_count: Array | None,
        *,
        pad_id: int,
        capacity: int,
    ) -> Array:
        """Return the last tokens as of each of a request's first tokens; unused rows are padded."""
        if not 0 <= capacity <= MOST_CAPTURED or (capacity > 0) != (capture_count is not None):
            raise ValueError(
                f"state_update_capacity is {capacity}, but must be 0 to {MOST_CAPTURED}, and "
                "positive exactly if capture_count is present"
            )
        if capture_count is None:
            return xp.zeros((self.count, 0, self.past), dtype=input_ids.dtype)
        require_shape("capture_count", capture_count, (self.count,))
        ends = xp.reshape(xp.arange(1, capacity + 1, dtype=self.starts.dtype), (1, -1, 1))
        shape = (self.count, capacity, self.past)
        row = xp.reshape(xp.arange(self.count, dtype=ends.dtype), (-1, 1, 1))
        row, place = (xp.broadcast_to(x, shape) for x in (row, ends + self._window(xp)))
        states = self.at(xp, input_ids, past_ids, row, place)
        most = xp.minimum(xp.astype(capture_count, ends.dtype), self.lengths)
        is_used = ends <= xp.reshape(most, (-1, 1, 1))
        return xp.where(is_used, states, xp.asarray(np.asarray(pad_id), dtype=states.dtype))
