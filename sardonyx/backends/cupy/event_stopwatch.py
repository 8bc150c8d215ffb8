"""Measures steps by events on the current stream, so that the host waits once, at the end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import cupy


class EventStopwatch:
    """Notes on the current stream when steps have ended."""

    def __init__(self) -> None:
        self._events: list[Any] = []

    def note(self, results: Sequence[Any]) -> None:
        """Put an event behind the work so far."""
        event = cupy.cuda.Event()
        event.record()
        self._events.append(event)

    def seconds(self) -> list[float]:
        """Return the time on the device between each note and the next one."""
        if self._events:
            self._events[-1].synchronize()
        elapsed = cupy.cuda.get_elapsed_time
        return [elapsed(start, end) / 1000 for start, end in pairwise(self._events)]
