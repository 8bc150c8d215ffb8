"""Compiles segments, once for all equal ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Executable, Replay
from sardonyx.graph.programs.stable_keys import name_of
from sardonyx.graph.tracing.steps import Segment, key_of

Watch: TypeAlias = Callable[[str], AbstractContextManager[object]]


@dataclass(eq=False)
class Compiler:
    """Compiles the segments of one model, shares executables of equal ones, and counts."""

    backend: Backend
    # Entered while a segment compiles, with its title.
    watch: Watch = nullcontext
    compiles: int = 0
    shared: int = 0
    seconds: float = 0.0
    _executables: WeakValueDictionary[Any, Executable] = field(default_factory=WeakValueDictionary)
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
        """Return the segment's function for arguments like these.

        `replay` is the segment as a function of them; `form` is a key of how it takes them.
        """
        if not self.backend.compiled:
            return self.backend.compile(replay, arguments)
        compiled = partial(self._compiled, segment, replay, arguments, donated=donated)
        segment_key = key_of(segment)
        if segment_key is None:
            return compiled(name=None)
        specs = tuple(self.backend.spec(argument) for argument in arguments)
        # Programs that report bad data name their own nodes.
        places = tuple(step.place for step in segment.steps) if self.backend.reports else ()
        key = segment_key, form, specs, tuple(donated), places
        with self._lock:
            lock = self._locks.setdefault(key, Lock())
        with lock:
            executable = self._executables.get(key)
            if executable is not None:
                self.shared += 1
                return executable
            name = None if self.backend.folder is None else name_of(key)
            self._executables[key] = executable = compiled(name=name)
        with self._lock:
            self._locks.pop(key, None)
        return executable

    def _compiled(self, segment: Segment, *arguments: Any, **options: Any) -> Executable:
        start = time.perf_counter()
        count = len(segment.steps)
        title = f"{count} step{'s' * (count != 1)}"
        with self.watch(title), self.backend.scope():
            executable = self.backend.compile(*arguments, **options)
        with self._lock:
            self.compiles += 1
            self.seconds += time.perf_counter() - start
        return executable
