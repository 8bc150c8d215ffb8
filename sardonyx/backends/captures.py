"""The graphs that one model holds on a device: how many, and why some segments have none."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from itertools import count
from threading import Lock
from typing import Protocol
from weakref import WeakSet

# A model holds at most so many graphs; beyond, the least recently used one goes.
MOST_GRAPHS = 16


class Holder(Protocol):
    """A segment that holds graphs, and other memory for its next calls."""

    def last_used(self) -> Iterable[tuple[int, Hashable]]:
        """Return when each of its graphs was last used, and the graph's name."""

    def drop(self, name: Hashable) -> None: ...
    def release(self) -> None:
        """Free all memory for the next calls."""


class Captures:
    """Bounds the graphs of a model, and counts the segments that cannot be captured."""

    def __init__(self) -> None:
        # The reasons, and for how many segments each holds.
        self.refused: dict[str, int] = {}
        self._holders: WeakSet[Holder] = WeakSet()
        self._turns = count(1)
        self._lock = Lock()

    def note(self, reason: str) -> None:
        with self._lock:
            self.refused[reason] = self.refused.get(reason, 0) + 1

    def turn(self) -> int:
        """Return a number that is greater than all before."""
        return next(self._turns)

    def add(self, holder: Holder) -> None:
        with self._lock:
            self._holders.add(holder)

    def make_room(self) -> None:
        """Drop graphs until the model may have one more."""
        with self._lock:
            used = [(turn, h, name) for h in list(self._holders) for turn, name in h.last_used()]
            used.sort(key=lambda one: one[0])
            for _, holder, name in used[: max(len(used) + 1 - MOST_GRAPHS, 0)]:
                holder.drop(name)

    def release(self) -> None:
        """Free all memory that segments keep for their next calls."""
        with self._lock:
            holders = list(self._holders)
        for holder in holders:
            holder.release()
