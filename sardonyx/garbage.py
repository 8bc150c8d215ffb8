"""Python's garbage collector, which comes rarely while a model is loaded or traced."""

from __future__ import annotations

import gc
from threading import Lock
from typing import Any

# The least number of new objects between two collections. Loading and tracing make many objects
# that live on, and by default the collector would look at all of them again after each 700.
LEAST = 50_000


class RareCollections:
    """A context in which collections are rare; any number of threads may be in it."""

    def __init__(self) -> None:
        self._inside = 0
        self._before = gc.get_threshold()
        self._lock = Lock()

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._before = gc.get_threshold()
                # With 0 somebody has switched them off.
                if 0 < self._before[0] < LEAST:
                    gc.set_threshold(LEAST, *self._before[1:])

    def __exit__(self, *_: Any) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside and gc.get_threshold()[0] == LEAST:
                gc.set_threshold(*self._before)


RARELY_COLLECTED = RareCollections()
