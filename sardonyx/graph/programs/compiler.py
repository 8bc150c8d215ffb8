"""Segments made into functions: each once, however many segments are alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Executable, Replay
from sardonyx.graph.programs.stable_keys import name_of
from sardonyx.graph.tracing.steps import Segment, key_of

Watch = Callable[[str], AbstractContextManager[object]]


def unwatched(title: str) -> AbstractContextManager[object]:
    return nullcontext()


@dataclass(eq=False)
class Compiler:
    """Compiles for one model, shares what is alike, and counts."""

    backend: Backend
    # Entered while a segment compiles, with its title.
    watch: Watch = unwatched
    compiles: int = 0
    shared: int = 0
    seconds: float = 0.0
    _made: WeakValueDictionary[Any, Executable] = field(default_factory=WeakValueDictionary)
    _locks: dict[Any, Lock] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def compile(
        self,
        replay: Replay,
        segment: Segment,
        arguments: Sequence[Any],
        form: Any,
        donated: Sequence[int],
    ) -> Executable:
        """The segment's function for arguments like these.

        `replay` is the segment with its arguments in the form that `form` tells apart.
        """
        if not self.backend.compiled:
            return self.backend.compile(replay, arguments)
        alike = key_of(segment)
        if alike is None:
            return self._compiled(replay, segment, arguments, donated, None)
        specs = tuple(self.backend.spec(argument) for argument in arguments)
        # Programs that report what is wrong with data name their own nodes.
        places = tuple(step.place for step in segment.steps) if self.backend.reports else ()
        key = alike, form, specs, tuple(donated), places
        with self._lock:
            lock = self._locks.setdefault(key, Lock())
        with lock:
            made = self._made.get(key)
            if made is not None:
                self.shared += 1
                return made
            self._made[key] = made = self._compiled(replay, segment, arguments, donated, key)
        with self._lock:
            self._locks.pop(key, None)
        return made

    def _compiled(
        self,
        replay: Replay,
        segment: Segment,
        arguments: Sequence[Any],
        donated: Sequence[int],
        key: Any,
    ) -> Executable:
        start = time.perf_counter()
        keeps = self.backend.folder is not None and key is not None
        with self.watch(_title(segment)), self.backend.scope():
            made = self.backend.compile(
                replay, arguments, donated=donated, name=name_of(key) if keeps else None
            )
        with self._lock:
            self.compiles += 1
            self.seconds += time.perf_counter() - start
        return made


def _title(segment: Segment) -> str:
    count = len(segment.steps)
    return f"{count} step{'s' * (count != 1)}"
