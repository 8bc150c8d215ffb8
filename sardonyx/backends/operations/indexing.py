"""Reading and writing at many places at once, and the places of the largest elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.backends.operations.array_library import Library
from sardonyx.backends.standard import Array

# How many of the best boxes of a class `first_selected` looks at: as many as an integer has bits.
MOST_BEGUN = 64
# What it has in the place of a box.
NOT_SELECTED, UNSETTLED = -1, -2


class Indexing(Library):
    """Elements by their indices."""

    def take_in_range(self, x: Array, indices: Array) -> Array:
        """Elements along axis 0, at indices that are in range and not negative whatever the data.

        JAX then needs no arithmetic to bound them, and programs of less than 1,000 operations run
        in the caller's thread.
        """
        return self.take(x, indices, axis=0)

    def gather(self, x: Array, places: Sequence[Array]) -> Array:
        """`x[places[0], places[1], ...]`, where the places are integers and may be negative."""
        sizes, rest = x.shape[: len(places)], x.shape[len(places) :]
        rows = self.zeros((), dtype=places[0].dtype)
        for place, size in zip(places, sizes, strict=True):
            rows = rows * size + self.where(place < 0, place + size, place)
        x = self.reshape(x, (math.prod(sizes), *rest))
        return self.reshape(self.take(x, self.reshape(rows, (-1,)), axis=0), (*rows.shape, *rest))

    def scatter(
        self, x: Array, places: Sequence[Array], updates: Array, combine: str | None = None
    ) -> Array:
        """A copy of `x` with `updates` written to `x[places[0], places[1], ...]`.

        `combine` may be "add", "mul", "max" or "min", to combine them with the elements there.
        Places may be negative. The updates are written one by one, because the standard cannot
        write to many places at once.
        """
        sizes, rest = x.shape[: len(places)], x.shape[len(places) :]
        chosen = self.broadcast_arrays(*places)
        count = math.prod(chosen[0].shape)
        flat = [self.fetch(self.reshape(place, (-1,))).tolist() for place in chosen]
        result = self.asarray(x, copy=True)
        writable: Any = result  # As all of the standard's are, if not all of every library's.
        updates = self.reshape(updates, (count, *rest))
        into = {"add": self.add, "mul": self.multiply, "max": self.maximum, "min": self.minimum}
        for i, place in enumerate(zip(*flat, strict=True)):
            if not all(-size <= p < size for p, size in zip(place, sizes, strict=True)):
                raise ValueError(f"the index {list(place)} is out of bounds for {list(sizes)}")
            key = (*place, ...)
            value = updates[i, ...]
            writable[key] = value if combine is None else into[combine](result[key], value)
        return result

    def write_rows(self, x: Array, rows: Array, updates: Array, *, axis: int) -> Array:
        """A copy of `x` with `updates` written to rows of an axis, by `scatter`.

        `rows` are (batch, count), where the batch is axis 0 of `x` and of the updates.
        """
        rank, size = axis + 1, rows.shape[1]
        lead = [self._along(n, i, rank) for i, n in enumerate(x.shape[:axis])]
        by_axis = self.reshape(rows, (rows.shape[0], *(1,) * (axis - 1), size))
        return self.scatter(x, (*lead, by_axis), updates)

    def _along(self, size: int, axis: int, rank: int) -> Array:
        """0, 1, ... along one axis of several."""
        numbers = self.arange(size, dtype=self.dtype(np.dtype(np.int64)))
        return self.reshape(numbers, tuple(size if i == axis else 1 for i in range(rank)))

    def top_k(self, x: Array, k: int, *, axis: int, largest: bool) -> Array:
        """Where the `k` largest (or least) along an axis are: in order, and equal ones in theirs.

        NaN is greater than all numbers.
        """
        order = self.argsort(x, axis=axis, descending=largest, stable=True)
        first = order[(*(slice(None),) * axis, slice(0, k), ...)]
        return self.astype(first, self.dtype(np.dtype(np.int64)))

    def runs(self, keys: Array) -> tuple[Array, Array]:
        """The stable ascending order of a vector's elements, and where in it a new value starts.

        NaN equals NaN.
        """
        order = self.argsort(keys, stable=True)
        return order, self.is_new(self.take(keys, order, axis=0))

    def is_new(self, arranged: Array) -> Array:
        """Whether each element of a sorted vector differs from the one before."""
        lead = min(arranged.size, 1)
        a, b = arranged[lead:], arranged[: arranged.size - lead]
        differs = self.not_equal(a, b) & (self.equal(a, a) | self.equal(b, b))
        return self.concat([self.ones((lead,), dtype=differs.dtype), differs])

    def ranks(self, order: Array, is_new: Array) -> Array:
        """The rank of each element among the distinct values, from 0, for the results of `runs`."""
        counted = self.cumulative_sum(self.astype(is_new, self.dtype(np.dtype(np.int64))))
        return self.scatter(counted, (order,), counted - 1)

    def distinct(self, keys: Array) -> tuple[Array, Array, Array]:
        """The first place of each distinct value, the ranks of all elements, and the counts.

        Values ascend; NaN equals NaN, and zeros are equal.
        """
        order, is_new = self.runs(keys)
        (starts,) = self.nonzero(is_new)
        ends = self.concat([starts, self.full((1,), keys.size, dtype=starts.dtype)])[1:]
        return self.take(order, starts, axis=0), self.ranks(order, is_new), ends - starts

    def distinct_values(self, keys: Array) -> Array:
        """The distinct values in ascending order, each as it first occurs."""
        arranged = self.sort(keys, stable=True)
        (starts,) = self.nonzero(self.is_new(arranged))
        return self.take(arranged, starts, axis=0)

    def first_selected(
        self,
        boxes: Array,
        scores: Array,
        limit: Array,
        threshold: Array,
        least: Array | None,
        *,
        has_centres: bool,
    ) -> Array:
        """The numbers of the boxes that `suppressed` selects among the best of each class.

        Where one is not selected is `NOT_SELECTED`. All are `UNSETTLED` where more boxes have to be
        looked at, or where this is not a few kernels of a program.
        """
        images, classes, count = scores.shape
        shape = images * classes, min(count, MOST_BEGUN)
        return self.full(shape, UNSETTLED, dtype=self.dtype(np.dtype(np.int64)))

    def suppressed(
        self,
        boxes: Array,
        scores: Array,
        *,
        limit: int,
        threshold: float,
        least: float | None,
        has_centres: bool,
    ) -> Array | None:
        """Image, class and number of each box that non-maximum suppression selects, best first.

        A class has up to `limit` of them, with scores above the `least`, which overlap by no more
        than the threshold. None where the library has no kernel for it.
        """
        return None
