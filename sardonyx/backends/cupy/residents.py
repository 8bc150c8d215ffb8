"""Arrays that calls on all streams read: weights, constants, and what was prepared from them.

CuPy orders the work of one stream, and lends freed memory to the stream that allocated it. Neither
is enough here. So these arrays have a stream of their own. Nobody gets one before that stream is
done, and its memory goes only to later arrays of this kind, which first wait for all readers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from time import monotonic, sleep
from typing import Any

import cupy
from cupy.cuda.runtime import CUDARuntimeError

from sardonyx.backends.cupy.bits import Bits
from sardonyx.backends.cupy.devices import CAPTURING

# CUDA's errors for a wait while a caller captures a stream into a graph, which takes milliseconds.
REFUSED_BY_CAPTURE = (900, 901)
SECONDS_OF_A_CAPTURE = 10.0
SECONDS_BETWEEN_TRIALS = 0.01


class Residents:
    """The arrays of one device that outlive calls."""

    def __init__(self, device: int) -> None:
        self._device = device
        with cupy.cuda.Device(device):
            self._stream = cupy.cuda.Stream(non_blocking=True)
        # Python may collect an array, and so call `_retire`, anywhere: that never waits for it.
        self._lock = Lock()
        # How many threads create such arrays now.
        self._open = 0
        # Whether memory was freed that a stream may still read.
        self._has_freed = False
        # Arrays that nobody holds any more, freed when nobody creates others.
        self._retired: deque[Any] = deque()

    @contextmanager
    def creating(self) -> Iterator[None]:
        """Make the arrays' stream the current one; at the end every stream may read them."""
        with cupy.cuda.Device(self._device):
            self._begin()
            try:
                self._stream.wait_event(cupy.cuda.get_current_stream().record())
                with self._stream:
                    yield
                self._stream.synchronize()
            finally:
                self._end()

    def _begin(self) -> None:
        with CAPTURING, self._lock:
            if self._has_freed:
                _wait_for_device()
                self._has_freed = False
            self._open += 1

    def _end(self) -> None:
        retired = []
        with self._lock:
            self._open -= 1
            while self._retired and not self._open:
                self._has_freed = True
                retired.append(self._retired.popleft())
        # Freed here, without the lock.
        retired.clear()

    def free_retired(self) -> None:
        with self.creating():
            pass

    def lease(self, array: Any) -> Any:
        """Return the same array, such that its memory is freed with care."""
        if not array.size:
            return array
        if isinstance(array, Bits):
            return Bits(self.lease(array.bits), array.dtype)
        lease = Lease(array, self)
        memory = LeasedMemory(array.data.ptr, array.nbytes, lease, self._device)
        pointer = cupy.cuda.MemoryPointer(memory, 0)
        return cupy.ndarray(array.shape, array.dtype, pointer, array.strides)

    def retire(self, array: Any) -> None:
        """Free the array's memory, or let it wait until no other array is being created."""
        if not self._lock.acquire(blocking=False):
            self._retired.append(array)
            return
        if self._open:
            self._retired.append(array)
        else:
            self._has_freed = True
        self._lock.release()


class LeasedMemory(cupy.cuda.UnownedMemory):  # type: ignore[misc]  # CuPy has no types
    """The memory of such an array and of its views."""


class Lease:
    """The owner of an array's memory, in CuPy's eyes."""

    def __init__(self, array: Any, residents: Residents) -> None:
        self._array = array
        self._residents = residents

    def __del__(self) -> None:
        self._residents.retire(self._array)


def _wait_for_device() -> None:
    end = monotonic() + SECONDS_OF_A_CAPTURE
    while True:
        try:
            cupy.cuda.runtime.deviceSynchronize()
        except CUDARuntimeError as error:
            if error.status not in REFUSED_BY_CAPTURE or monotonic() > end:
                raise
            sleep(SECONDS_BETWEEN_TRIALS)
        else:
            return


@cache
def residents_of(device: int) -> Residents:
    return Residents(device)
