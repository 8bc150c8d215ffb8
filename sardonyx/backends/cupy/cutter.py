"""Pads and cuts arrays of another library on CUDA, which would compile a program for each size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cupy

from sardonyx.backends.cupy.backend import CupyBackend
from sardonyx.backends.cupy.own_stream import OwnStreams
from sardonyx.backends.padding.axes import Cut

# Returns arrays of the other library, in memory of their own, for these of CuPy.
TakeAll = Callable[[Sequence[Any]], list[Any]]


class CupyCutter:
    """Shares the other library's arrays, and waits for the device before it returns.

    CuPy lacks some types, and may lack the memory that the other library has.
    """

    def __init__(self, device: int, take: TakeAll) -> None:
        self._xp = CupyBackend(device)
        self._take = take
        self._streams = OwnStreams()

    def pad(self, array: Any, shape: Sequence[int]) -> Any:
        """The array with zeros behind the end of each axis; None if CuPy cannot make it."""

        def padded(array: Any) -> Any:
            result = cupy.zeros(tuple(shape), array.dtype)
            result[tuple(map(slice, array.shape))] = array
            return result

        results = self._made([array], [padded])
        return None if results is None else results[0]

    def cut(self, arrays: Sequence[Any], cuts: Sequence[Cut]) -> list[Any] | None:
        """The arrays without their padding; None if CuPy cannot make them."""
        return self._made(arrays, [cut.applied for cut in cuts])

    def _made(
        self, arrays: Sequence[Any], functions: Sequence[Callable[[Any], Any]]
    ) -> list[Any] | None:
        xp = self._xp
        with xp.scope(), self._streams.current():
            shared = list(map(xp.adopt, arrays))
            if not all(isinstance(array, cupy.ndarray) for array in shared):
                return None
            pairs = zip(functions, shared, strict=True)
            try:
                made = [cupy.ascontiguousarray(function(array)) for function, array in pairs]
            except cupy.cuda.memory.OutOfMemoryError:
                return None
            return self._take(made)
