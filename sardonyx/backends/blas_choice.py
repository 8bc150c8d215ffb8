"""Whether calls that follow each other get one thread of NumPy's BLAS, or all: by their times.

OpenBLAS divides a product among its threads and waits for all of them. Where other processes use
the processors, that takes a time slice of 8 ms in place of 0.05, for each product of a decoder.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext

from sardonyx.backends.blas_threads import AtMost

# Seconds until the other choice is tried for a call, at first and later; and how many times as long
# as that call at least.
FIRST_TRIAL, LATER_TRIALS, LEAST_TIMES = 0.25, 1.0, 20.0
# The other choice has to take at most this part of the time.
FASTER = 0.8


class BlasChoice:
    """The choice for calls that take about the same time."""

    def __init__(self) -> None:
        self._is_alone = False
        # How long the last call took with the present choice.
        self._last = 0.0
        self._due = time.monotonic() + FIRST_TRIAL

    def begin(self) -> bool:
        """Return whether a call that begins gets one thread."""
        return self._is_alone ^ (self._last > 0 and time.monotonic() >= self._due)

    def note(self, seconds: float, *, is_alone: bool) -> None:
        """Remember how long a call took, and choose."""
        if is_alone == self._is_alone:
            self._last = seconds
            return
        if seconds < FASTER * self._last:
            self._is_alone, self._last = is_alone, seconds
        self._due = time.monotonic() + max(LATER_TRIALS, LEAST_TIMES * seconds)


def scope(*, is_alone: bool) -> AbstractContextManager[object]:
    """Return the context of a call with one thread, or with all."""
    return AtMost(1) if is_alone else nullcontext()
