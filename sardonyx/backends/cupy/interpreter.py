"""CuPy for the steps of a program that XLA is compiling for the same CUDA device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cupy

from sardonyx.backends.cupy.backend import CupyBackend
from sardonyx.backends.cupy.own_stream import OwnStreams
from sardonyx.backends.executable import Replay, Spec
from sardonyx.backends.interpreter import Overtakable, Overtaken

# Returns an array of another backend, in memory of its own, for one of CuPy.
Take = Callable[[Any], Any]


class CupyInterpreter(Overtakable, CupyBackend):
    """CuPy, until the compiled program is ready."""

    # That can take longer than the compiler.
    measures_convolutions = False

    def __init__(self, device: int, is_overtaken: Callable[[], bool]) -> None:
        super().__init__(device)
        self._is_overtaken = is_overtaken


class CupyTier:
    """CuPy for another backend on the same device.

    Arguments are shared. Results are copied by `take`, since the other library could not donate
    memory that is not its own. A run waits for the device before it returns: nobody frees or
    donates an array that CuPy still reads.
    """

    def __init__(self, device: int, take: Take, is_overtaken: Callable[[], bool]) -> None:
        self._xp = CupyInterpreter(device, is_overtaken)
        self._take = take
        self._streams = OwnStreams()

    def run(self, replay: Replay, arrays: Sequence[Any], expected: Sequence[Spec]) -> list[Any]:
        xp = self._xp
        with xp.scope(), self._streams.current():
            entered = [xp.adopt(array) for array in arrays]
            results = list(replay(xp, *entered))
            if [xp.spec(result) for result in results] != list(expected):
                raise Overtaken
            return [self._take(_contiguous(result)) for result in results]

    def close(self) -> None:
        """Give the memory of CuPy's pool back to the device, where the compiled program runs."""
        with self._xp.scope():
            cupy.get_default_memory_pool().free_all_blocks()


def _contiguous(array: Any) -> Any:
    return array if array.flags.c_contiguous else array.copy(order="C")
