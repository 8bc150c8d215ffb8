"""Calls that wait for a search of another thread, instead of tracing their own recordings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

from sardonyx.garbage import RARELY_COLLECTED

# Seconds for which a call waits for what derives its recording: to be looked for, and to be found.
MOST_SECONDS_TO_BEGIN, MOST_SECONDS_TO_END = 0.005, 0.5


class Search:
    """Another thread finds out how to derive the recordings of calls."""

    def __init__(self) -> None:
        self._began, self._ended = Event(), Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """What this thread does now is the search."""
        self._began.set()
        try:
            with RARELY_COLLECTED:
                yield
        finally:
            self._ended.set()

    def wait(self) -> bool:
        """Wait until it has ended, for a time; return False if it has not.

        A call that traces its own recording meanwhile takes about as long, and so do the next ones,
        since of two threads in Python each runs half of the time.
        """
        return self._began.wait(MOST_SECONDS_TO_BEGIN) and self._ended.wait(MOST_SECONDS_TO_END)
