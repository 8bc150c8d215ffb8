"""Measures the time between steps that a library runs one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any, Protocol


class Stopwatch(Protocol):
    """Notes when steps have ended."""

    def note(self, results: Sequence[Any]) -> None:
        """Note the time at which these arrays are computed."""

    def seconds(self) -> list[float]:
        """Return the time between each note and the next one."""


class HostStopwatch:
    """The clock of the host; `wait` returns when arrays are computed."""

    def __init__(self, wait: Callable[[Sequence[Any]], None]) -> None:
        self._wait = wait
        self._times: list[float] = []

    def note(self, results: Sequence[Any]) -> None:
        """Wait for the arrays, and note the time."""
        self._wait(results)
        self._times.append(time.perf_counter())

    def seconds(self) -> list[float]:
        """Return the time between each note and the next one."""
        return [end - start for start, end in pairwise(self._times)]


class OpTimes(Protocol):
    """The profile of a compiler's library: the time of each operation of its programs."""

    def around(self, label: str) -> AbstractContextManager[object]:
        """Return the context of a run of one program."""

    def of(self, label: str) -> tuple[float, dict[str, float]]:
        """Return the seconds of the fastest run with a label, and those of each operation in it."""
