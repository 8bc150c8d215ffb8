"""Compiles segments, once for all equal ones."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from logging import DEBUG, INFO, WARNING
from threading import Lock
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from sardonyx.backends.base import Backend
from sardonyx.backends.captures import Captures
from sardonyx.backends.executable import Executable, Replay, Spec, WrittenOut
from sardonyx.backends.host_memory import retain_results
from sardonyx.graph.programs.background import in_background
from sardonyx.graph.programs.beside_kernels import BesideKernels
from sardonyx.graph.programs.interpretation import (
    Interpretation,
    can_be_interpreted,
    patience_of,
)
from sardonyx.graph.programs.provisional import Decide, Provisional, Runs, TooFewRuns
from sardonyx.graph.programs.stable_keys import name_of
from sardonyx.graph.programs.stepped_segment import SteppedSegment
from sardonyx.graph.programs.written_segment import (
    WrittenSegment,
    kernel_of,
    written_with_kernels,
)
from sardonyx.graph.tracing.steps import Segment, key_of, scopes_of
from sardonyx.logs import Log, postponed

Watch: TypeAlias = Callable[[str], AbstractContextManager[object]]

# When segments are compiled: before their first run, while calls run them step by step, or not.
NOW, BACKGROUND, NEVER = MODES = ("now", "background", "never")


_LOG = Log("compiling")
# Seconds from which on a compile is worth a cache.
LONG_COMPILE = 30.0


# Segments with more steps, or with a result of more elements, are not written out.
MOST_STEPS, MOST_ELEMENTS = 64, 2**16
# Unless what runs beside kernels takes at most this part of the time: compiled programs call the
# same kernels.
MOST_BESIDE_KERNELS = 0.1
# So many runs have to say so, since one may meet a slow moment.
LEAST_RUNS = 2
# NumPy's BLAS has no threads for products of arrays of up to so many elements.
MOST_FOR_ONE_THREAD = 2**12
# What a step costs beside all that it computes, while it runs by itself.
SECONDS_OF_STEP = 15e-6
# Steps that nothing compiles are written out if that saves this part of their time, and if they
# take less than so many seconds: between steps a call can be stopped.
LEAST_SAVED, MOST_SECONDS = 0.02, 1.0


@dataclass(frozen=True, eq=False, slots=True)
class Unit:
    """A segment as a function of arrays, for the compiler."""

    segment: Segment
    # A function of a backend, the segment's inputs, and its weights and constants.
    replay: Replay
    # A key of how it takes them.
    form: Any
    # Arrays like those that it takes, or their specs.
    arguments: Sequence[Any]
    results: Sequence[Spec]
    donated: tuple[int, ...]
    # Whether calls pass NumPy's arrays.
    from_numpy: bool = False
    # Gets the seconds of each run step by step, and returns whether the next starts the compiler.
    decide: Decide | None = None

    @property
    def title(self) -> str:
        count = len(self.segment.steps)
        return f"{count} step{'s' * (count != 1)}"

    @property
    def nbytes(self) -> int:
        """How many bytes the results of its steps have."""
        specs = [spec for step in self.segment.steps for spec in step.specs]
        return sum(math.prod(spec.shape) * spec.dtype.itemsize for spec in specs)


@dataclass(eq=False)
class Compiler:
    """Compiles the segments of one model, shares executables of equal ones, and counts."""

    backend: Backend
    # Entered while a call waits for a segment to compile, with its title.
    watch: Watch = nullcontext
    # None leaves it to the backend whether calls wait, which is asked at the first of them.
    mode: str | None = NOW
    # The name of the compiled functions: that of the graph.
    title: str = "graph"
    compiles: int = 0
    shared: int = 0
    # Segments that run as calls of NumPy.
    written_out: int = 0
    # Runs of segments that were not compiled yet.
    interpreted: int = 0
    # Why segments waited for the compiler, though calls were to go on, and how many.
    uninterpreted: dict[str, int] = field(default_factory=dict)
    # Why segments run step by step on a backend that fuses steps, or which of its libraries refuse
    # a call, and how many.
    unfused: dict[str, int] = field(default_factory=dict)
    # Why steps run on the host although they could run on other devices, or segments are compiled
    # with other options than usual, and how many.
    workarounds: dict[str, int] = field(default_factory=dict)
    # The graphs that such a backend holds.
    captures: Captures = field(default_factory=Captures)
    seconds: float = 0.0
    _executables: WeakValueDictionary[Any, Executable | Provisional] = field(
        default_factory=WeakValueDictionary
    )
    _locks: dict[Any, Lock] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    @property
    def interprets(self) -> bool:
        """Whether calls run without compiled programs until these are ready."""
        return not self._waits and self.backend.interprets

    @property
    def _waits(self) -> bool:
        return self.backend.waits_by_default if self.mode is None else self.mode == NOW

    def interprets_segment(self, segment: Segment) -> bool:
        """Whether calls run this segment step by step until it is compiled."""
        return self.interprets and can_be_interpreted(segment)

    def compile(self, unit: Unit) -> Executable | Provisional:
        """Return the unit's function, which at first may run step by step."""
        if not self.backend.compiled:
            return self._stepped_segment(unit) or self._bound(unit)
        key = self._key(unit)
        if key is None:
            return self._function(unit, None)
        key = key, self._may_write_out(unit)
        with self._lock:
            lock = self._locks.setdefault(key, Lock())
        with postponed(), lock:
            executable = self._executables.get(key)
            if executable is not None:
                self.shared += 1
                return executable
            self._executables[key] = executable = self._function(unit, key)
        with self._lock:
            self._locks.pop(key, None)
        return executable

    def _bound(self, unit: Unit) -> Executable:
        """Return the unit's function on a backend that does not compile whole segments."""
        with self.backend.scope():
            return self.backend.bind(
                unit.replay,
                unit.arguments,
                self._note_unfused,
                inputs=len(unit.segment.inputs),
                captures=self.captures,
            )

    def _stepped_segment(self, unit: Unit) -> SteppedSegment | None:
        """Return the unit's function on NumPy, which is written out later; None for others."""
        backend = self.backend
        is_on_numpy = backend.steps_on_numpy() is backend and not backend.limits_threads
        if not is_on_numpy or unit.donated or not can_be_interpreted(unit.segment):
            return None
        self._retain_results(unit)
        steps, bare = self._bound(unit), self._without_arrays(unit)

        def write_out(runs: Runs) -> Executable | None:
            start, inputs = time.perf_counter(), len(bare.segment.inputs)
            if not _is_worth_writing(bare, runs):
                return None
            written = written_with_kernels(
                bare.replay, bare.arguments, inputs, backend, as_program=False
            )
            return self._running(written, bare, lambda: steps, start) if written else None

        return SteppedSegment(steps, write_out)

    def _retain_results(self, unit: Unit) -> None:
        """Let the memory of large results serve later calls, where NumPy runs the steps."""
        if self.backend.steps_on_numpy() is not None:
            retain_results(unit.nbytes)

    def stepped(self, unit: Unit) -> Replay:
        """Return the unit's function on such a backend as one step after the other."""
        with self.backend.scope():
            inputs = len(unit.segment.inputs)
            return self.backend.stepped(unit.replay, unit.arguments, inputs=inputs).run

    def _note_unfused(self, reason: str) -> None:
        self._count(self.unfused, reason, "A segment is not fused as a whole: %s.")

    def note_workaround(self, reason: str) -> None:
        """Count a step or a segment that runs in another way than most."""
        self._count(self.workarounds, reason, "A step or a segment runs in another way: %s.")

    def _count(self, counts: dict[str, int], reason: str, message: str) -> None:
        """Count a reason, and log the first that is like it."""
        with self._lock:
            counts[reason] = counts.get(reason, 0) + 1
        level = INFO if counts[reason] == 1 else DEBUG
        _LOG.log(level, message, reason, reason=reason)

    def _key(self, unit: Unit) -> Any:
        """Return a key, equal for units with equal functions; None if that is unknown."""
        key = key_of(unit.segment)
        if key is None:
            return None
        specs = tuple(self.backend.spec(argument) for argument in unit.arguments)
        # Programs that report bad data name their own nodes.
        places = tuple(step.place for step in unit.segment.steps) if self.backend.reports else ()
        return key, unit.form, specs, unit.donated, places

    def _without_arrays(self, unit: Unit) -> Unit:
        """Return the unit for later, which does not keep the arrays of the call."""
        specs = [self.backend.spec(argument) for argument in unit.arguments]
        return replace(unit, arguments=specs)

    def _function(self, unit: Unit, key: Any) -> Executable | Interpretation:
        backend = self.backend
        # A program of another process serves all calls.
        name = None if key is None or backend.folder is None else name_of(key[0])
        if not self.interprets_segment(unit.segment):
            if not self._waits and backend.reason_to_wait is not None:
                self._note_uninterpreted(backend.reason_to_wait)
            return self._compiled(unit, name, is_awaited=True)
        if backend.has_started or self.mode == NEVER:
            named = self._named(unit)
            stored = backend.stored(named, unit.arguments, donated=unit.donated, name=name)
            if stored is not None:
                return stored
        bare, is_final = self._without_arrays(unit), self.mode == NEVER

        def compiled(is_awaited: bool) -> Executable:
            return kept(self._compiled(bare, name, is_awaited=is_awaited))

        inputs, xp = len(bare.segment.inputs), backend.steps_on_numpy(is_final=is_final)
        on_numpy = BesideKernels(bare.replay, bare.arguments, inputs, xp)

        def write_out(runs: Callable[[], Runs]) -> Executable | None:
            written = self._written_out(bare, name, runs, on_numpy)
            return None if written is None else kept(written)

        def kept(executable: Executable) -> Executable:
            if key is not None and not executable.stands_in:
                self._executables[key] = executable
            return executable

        self._retain_results(unit)
        _LOG.debug("%s run one by one until they are compiled.", unit.title)
        interpretation = Interpretation(
            backend,
            unit.replay,
            unit.results,
            unit.donated,
            compiled,
            write_out,
            note_run=self.note_interpreted,
            note_wait=self._note_uninterpreted,
        )
        interpretation.decide = unit.decide
        interpretation.patience = patience_of(len(unit.segment.steps))
        interpretation.compiles_by_itself = not is_final and unit.decide is None
        interpretation.is_final = is_final
        interpretation.writes_by_itself = is_final and unit.decide is None
        return interpretation

    def _written_out(
        self,
        unit: Unit,
        name: str | None,
        runs: Callable[[], Runs],
        on_numpy: BesideKernels,
    ) -> Executable | None:
        """Return the unit as calls of NumPy, if they take no longer than what would run instead.

        `runs` returns how long the steps took one by one, which later calls may correct.
        """
        start, inputs = time.perf_counter(), len(unit.segment.inputs)
        written = None
        if self._may_write_out(unit):
            written = self.backend.written_out(unit.replay, unit.arguments, inputs, unit.results)
        if written is None and self._most_seconds(unit, runs()) > 0:
            written = on_numpy.written
            known = runs()  # Other calls went on meanwhile.
            if written and not on_numpy.takes_at_most(self._most_seconds(unit, known)):
                written = None
            if written and known.number < LEAST_RUNS and self.mode != NEVER:
                raise TooFewRuns
        compiled = partial(self._compiled, unit, name, is_awaited=True)
        return self._running(written, unit, compiled, start) if written else None

    def _running(
        self, written: WrittenOut, unit: Unit, instead: Callable[[], Executable], start: float
    ) -> Executable:
        """Return the unit as calls of NumPy, which `instead` replaces where they fail."""
        with self._lock:
            self.written_out += 1
        self._note_ready("Wrote out", unit, time.perf_counter() - start)
        inputs = len(unit.segment.inputs)
        executable = WrittenSegment(written, inputs, self.backend, instead).executable
        stands_in = self.mode == NEVER and self.backend.compiled
        arrays = max((math.prod(spec.shape) for spec in unit.arguments), default=0)
        may_be_limited = max(written.largest, arrays) > MOST_FOR_ONE_THREAD
        needs_scope = self.backend.limits_threads and may_be_limited
        return replace(executable, stands_in=stands_in, needs_scope=needs_scope)

    def _most_seconds(self, unit: Unit, runs: Runs) -> float:
        """Return how long the unit may take on NumPy beside kernels to stay there for good."""
        backend, is_never = self.backend, self.mode == NEVER
        is_plain = self.interprets and unit.from_numpy and not unit.donated
        if not is_plain:
            return 0.0
        if is_never:
            # Somebody asks for a compiled program otherwise.
            return math.inf if runs.number and _is_worth_writing(unit, runs) else 0.0
        # A process that has a cache is to leave compiled programs for the next one there.
        if backend.folder is None and any(kernel_of(step.call) for step in unit.segment.steps):
            return MOST_BESIDE_KERNELS * (runs.seconds - SECONDS_OF_STEP * len(unit.segment.steps))
        return 0.0

    def _may_write_out(self, unit: Unit) -> bool:
        is_small = len(unit.segment.steps) <= MOST_STEPS and all(
            math.prod(spec.shape) <= MOST_ELEMENTS
            for step in unit.segment.steps
            for spec in step.specs
        )
        return is_small and unit.from_numpy and not unit.donated and self.interprets

    def _named(self, unit: Unit) -> Replay:
        """Return the unit as a function of arrays that has the name of the graph."""

        def function(*arrays: Any) -> Sequence[Any]:
            return unit.replay(self.backend.for_ops, *arrays)

        function.__name__ = self.title
        return function

    def note_interpreted(self) -> None:
        """Count a run that no compiled program computed."""
        with self._lock:
            self.interpreted += 1

    def _note_uninterpreted(self, reason: str) -> None:
        self._count(self.uninterpreted, reason, "A call waits for the compiler: %s.")

    def _compiled(self, unit: Unit, name: str | None, *, is_awaited: bool) -> Executable:
        start = time.perf_counter()
        watch = self.watch if is_awaited else nullcontext
        backend = self.backend
        function = self._named(unit)
        with watch(unit.title), backend.scope():
            executable = backend.compile(function, unit.arguments, donated=unit.donated, name=name)
        executable = replace(executable, scopes=scopes_of(unit.segment.steps))
        if executable.workaround is not None:
            self.note_workaround(executable.workaround)
        with self._lock:
            self.compiles += 1
            self.seconds += time.perf_counter() - start
        if not executable.is_stored:
            self._note_ready("Compiled", unit, time.perf_counter() - start)
        return executable

    def _note_ready(self, done: str, unit: Unit, seconds: float) -> None:
        level, advice = INFO, ""
        if seconds > LONG_COMPILE:
            level, advice = WARNING, "; load(cache=...) saves it for other processes"
        is_waiting = not in_background()
        place = "while the caller waited" if is_waiting else "in the background; calls run them now"
        text, words = "%s %s of %s in %.2f s %s%s.", (done, unit.title, self.title, seconds)
        steps = len(unit.segment.steps)
        _LOG.log(level, text, *words, place, advice, seconds=seconds, steps=steps)


def _is_worth_writing(unit: Unit, runs: Runs) -> bool:
    """Whether a unit that takes so long step by step is to be written out, as far as is known."""
    saved = SECONDS_OF_STEP * len(unit.segment.steps)
    is_worth = runs.seconds < MOST_SECONDS and saved >= LEAST_SAVED * runs.seconds
    if not is_worth and runs.number < LEAST_RUNS:
        raise TooFewRuns
    return is_worth
