"""Where the elements of an array lie in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sardonyx.backends.operations.array_library import Library
from sardonyx.backends.standard import Array
from sardonyx.backends.strides import dense_strides, same_layout


class Memory(Library):
    """Strides, and results written into an array that exists."""

    def strides(self, x: Array) -> tuple[int, ...]:
        """How many elements apart the neighbours of `x` lie in memory, on each axis."""
        return dense_strides(x.shape)

    def elements_at(self, x: Array, steps: Sequence[int]) -> Array:
        """An array of `x`'s shape whose [i, j, ...] is element i * steps[0] + j * steps[1] + ...

        of `x`, counted in row-major order. It may share memory with `x`, and with itself.
        """
        places = np.zeros((), np.int64)
        for size, step in zip(x.shape, steps, strict=True):
            places = places[..., None] + np.arange(size) * step
        flat = self.reshape(x, (-1,))
        return self.reshape(self.take(flat, self.put(places.reshape(-1)), axis=0), x.shape)

    def with_strides(self, x: Array, steps: Sequence[int]) -> Array:
        """A copy of `x` with `steps` as its strides; they have been checked not to overlap."""
        if not same_layout(x.shape, steps, dense_strides(x.shape)):
            raise ValueError(f"arrays of {self.name} have no strides but {dense_strides(x.shape)}")
        return self.asarray(x, copy=True)

    def write(self, out: Array, function: Callable[..., Array], *arguments: Any) -> Array:
        """`function(self, *arguments)` in the buffer of `out`, which may be among the arguments.

        Where arrays cannot change, `out` is given up for it. Use the result, not `out`.
        """
        value = function(self, *arguments)
        if value is not out:
            out[...] = value  # type: ignore[index]  # arrays can change here
        return out
