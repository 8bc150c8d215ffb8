"""The arenas of a program: each call that runs has one of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

# A program keeps at most so many arenas between calls, of all streams together.
MOST_IDLE = 2


@dataclass(frozen=True, eq=False, slots=True)
class Arena:
    """A block of memory, and the arrays that lie in it."""

    block: Any
    # By the numbers of a program's values; None for those that lie elsewhere.
    arrays: tuple[Any, ...]
    # Whose work may use the block next: what was put there before has ended by then.
    stream: Hashable = None


@dataclass(eq=False, slots=True)
class Arenas:
    """Lends arenas to calls. Two calls that run at the same time never share one."""

    new: Callable[[], Arena]
    # The current stream; None if no other call may use its memory.
    stream: Callable[[], Hashable]
    _idle: deque[Arena] = field(default_factory=deque)
    _lock: Lock = field(default_factory=Lock)

    def take(self) -> Arena:
        stream = self.stream()
        with self._lock:
            for arena in self._idle:
                if arena.stream == stream and stream is not None:
                    self._idle.remove(arena)
                    return arena
        return self.new()

    def give_back(self, arena: Arena) -> None:
        """Keep the arena for the next call, in place of the one that was used longest ago."""
        if arena.stream is None or arena.block is None:
            return
        with self._lock:
            self._idle.append(arena)
            dropped = self._idle.popleft() if len(self._idle) > MOST_IDLE else None
        # Outside of the lock: Python may run other code while memory is freed.
        del dropped

    def release(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, deque()
        idle.clear()
