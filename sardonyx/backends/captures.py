"""The graphs that one model holds on a device: how many, and why some segments have none."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import count
from logging import DEBUG, INFO
from threading import Lock
from typing import Any, Protocol, TypeVar
from weakref import WeakSet, WeakValueDictionary

from sardonyx.logs import Log

_LOG = Log("compiling")

# A model holds at most so many graphs. Beyond, the least recently used one goes, unless one of the
# last so many replays was its own: more segments than graphs would else be captured at each call.
MOST_GRAPHS = 16
RECENT = 4 * MOST_GRAPHS


Kept = TypeVar("Kept")


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
        self._shared: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()
        self._turns = count(1)
        self._lock = Lock()

    def note(self, reason: str) -> None:
        with self._lock:
            self.refused[reason] = self.refused.get(reason, 0) + 1
        level = INFO if self.refused[reason] == 1 else DEBUG
        _LOG.log(level, "A segment is not captured as a graph: %s.", reason, reason=reason)

    def turn(self) -> int:
        """Return a number that is greater than all before."""
        return next(self._turns)

    def add(self, holder: Holder) -> None:
        with self._lock:
            self._holders.add(holder)

    def shared(self, name: Hashable, new: Callable[[], Kept]) -> Kept:
        """Return what segments share under a name as long as one of them holds it."""
        with self._lock:
            kept: Kept | None = self._shared.get(name)
            if kept is None:
                self._shared[name] = kept = new()
            return kept

    def make_room(self) -> bool:
        """Whether the model may have one more graph, for which another one may go."""
        with self._lock:
            used = [(turn, h, name) for h in list(self._holders) for turn, name in h.last_used()]
            if len(used) < MOST_GRAPHS:
                return True
            turn, holder, name = min(used, key=lambda one: one[0])
            if self.turn() - turn <= RECENT:
                return False
            holder.drop(name)
            return True

    def release(self) -> None:
        """Free all memory that segments keep for their next calls."""
        with self._lock:
            holders = list(self._holders)
        for holder in holders:
            holder.release()
