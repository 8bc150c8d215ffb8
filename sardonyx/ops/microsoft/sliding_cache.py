"""A cache of keys and values that holds only the latest tokens, and evicts several at once."""

from __future__ import annotations

from typing import NamedTuple

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_broadcasts
from sardonyx.ops.microsoft.kv_cache import lengthened, written


class SlidingCache(NamedTuple):
    """The buffers have `capacity` rows for each sample, and each query sees `window` of them.

    Rows are in the order of their positions, from row 0 on. How many there are depends on the
    number of tokens so far, but not on the calls that they came in.
    """

    capacity: int
    window: int

    @classmethod
    def of(cls, past: Array | None, window: int) -> SlidingCache:
        if window < 1:
            raise ValueError(
                f"local_window_size is {window}, but sliding_window_cache needs at least 1"
            )
        if past is None or past.ndim != 4 or past.shape[2] < window:
            shape = "missing" if past is None else f"of shape {past.shape}"
            raise ValueError(
                f"past_key is {shape}, but sliding_window_cache needs (batch, heads, length, size) "
                f"with at least {window} rows, the local_window_size"
            )
        return cls(past.shape[2], window)

    def rows(self, xp: Backend, tokens: Array) -> Array:
        """Return how many rows are in use after as many tokens."""
        evicted_at_once = self.capacity - self.window + 1
        excess = xp.maximum(tokens - self.capacity, xp.zeros_like(tokens))
        evictions = (excess + evicted_at_once - 1) // evicted_at_once
        return tokens - evictions * evicted_at_once

    def staged(self, xp: Backend, past: Array, new: Array, start: Array) -> Array:
        """Return the rows of the past, then the new ones; each sample has had `start` tokens."""
        longer = lengthened(xp, past, self.capacity + new.shape[2])
        return written(xp, longer, new, self.rows(xp, start), clears=True)

    def present(self, xp: Backend, staged: Array, start: Array, tokens: Array) -> Array:
        """Return the buffer for the next call; rows that are not in use are zeros."""
        used = self.rows(xp, tokens)
        evicted = (tokens - used) - (start - self.rows(xp, start))
        place = xp.reshape(xp.arange(self.capacity, dtype=tokens.dtype), (1, -1))
        source = xp.minimum(place + xp.reshape(evicted, (-1, 1)), staged.shape[2] - 1)
        sample = xp.reshape(xp.arange(staged.shape[0], dtype=tokens.dtype), (-1, 1))
        by_row = xp.permute_dims(staged, (0, 2, 1, 3))
        chosen = xp.gather(by_row, [xp.broadcast_to(sample, source.shape), source])
        is_used = (place < xp.reshape(used, (-1, 1)))[:, None, :, None]
        chosen = xp.permute_dims(chosen, (0, 2, 1, 3))
        return xp.where(is_used, chosen, xp.zeros_like(chosen))

    def first_positions(self, xp: Backend, start: Array) -> Array:
        """Return the position of the token in the first staged row of each sample."""
        return start - self.rows(xp, start)


def columns_from(
    xp: Backend, bias: Array, first: Array, shape: tuple[int, ...], total: int
) -> Array:
    """Return the columns of a bias that belong to scores of this shape.

    The bias has `total` columns. Those of a sample begin at its number in `first`, and columns
    beyond the last one repeat that one.
    """
    batch, *_, count = shape
    require_broadcasts("attention_bias", bias, (*shape[:3], total))
    bias = xp.broadcast_to(bias, (batch, *bias.shape[1:3], total))
    column = xp.reshape(first, (-1, 1)) + xp.arange(count, dtype=first.dtype)
    column = xp.minimum(column, total - 1)
    sample = xp.reshape(xp.arange(batch, dtype=first.dtype), (-1, 1))
    by_column = xp.permute_dims(bias, (0, 3, 1, 2))
    chosen = xp.gather(by_column, [xp.broadcast_to(sample, column.shape), column])
    return xp.permute_dims(chosen, (0, 2, 3, 1))
