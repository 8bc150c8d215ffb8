"""A segment runs step by step on another library until its compiled function is ready."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import Event, Lock
from typing import Any
from weakref import ref

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Executable, FirstTier, Replay, Spec
from sardonyx.backends.interpreter import Overtaken
from sardonyx.graph.loading.custom_ops import Own
from sardonyx.graph.programs.background import COMPILES
from sardonyx.graph.programs.provisional import (
    Decide,
    Provisional,
    Runs,
    TooFewRuns,
    write_out,
)
from sardonyx.graph.tracing.op_call import OpCall
from sardonyx.graph.tracing.steps import Segment, Step
from sardonyx.graph.tracing.subgraphs import BodyCall
from sardonyx.logs import Log, postponed
from sardonyx.ops.on_backend import OnBackend
from sardonyx.printable import first_line

_LOG = Log("compiling")
# Seconds that a run may take before the compiler starts: about as long as that takes itself, since
# it slows the run down. So many steps take as long again, up to a few seconds. Otherwise it starts
# after the second run, so that nothing is compiled for shapes that come only once.
PATIENCE, STEPS, MOST_TIMES = 0.5, 50, 8


class Interpretation(Provisional):
    """The function of a segment: interpreted at first, and compiled in the background meanwhile."""

    def __init__(
        self,
        backend: Backend,
        replay: Replay,
        results: Sequence[Spec],
        donated: Sequence[int],
        compile_segment: Callable[[bool], Executable],
        write_out: Callable[[Callable[[], Runs]], Executable | None],
        *,
        note_run: Callable[[], None],
        note_wait: Callable[[str], None],
    ) -> None:
        self._backend = backend
        self._replay = replay
        self._results = list(results)
        self._donated = donated
        self._compile_segment = compile_segment
        self._write_out = write_out
        self._note_run = note_run
        self._note_wait = note_wait
        self.decide: Decide | None = None
        # How long the first run may take before the compiler starts.
        self.patience = PATIENCE
        # Set when the compiled function is ready, or must be waited for.
        self._is_over = Event()
        # Created by the first run, which waits for the compiled function if that fails.
        self._tier: FirstTier | None = None
        # False if only `compiled` compiles it, or as long as others wait for more runs.
        self.compiles_by_itself = True
        # Whether it is written out after a few runs, though it does not compile by itself.
        self.writes_by_itself = False
        # Whether no program follows unless somebody asks for one.
        self.is_final = False
        self._has_run = False
        self._runs = Runs(PATIENCE)
        # The time from which on the first run takes too long.
        self._deadline = math.inf
        self._is_submitted = False
        self._executable: Executable | None = None
        self._compiling = Lock()

    @property
    def executable(self) -> Executable | None:
        return self._executable

    def compiled(self, *, is_awaited: bool = True) -> Executable:
        """Return the compiled function; wait for it if need be."""
        with postponed(), self._compiling:
            if self._executable is None or self._executable.stands_in:
                runs = Runs if is_awaited else self._known_runs
                self._executable = self._write_out(runs) or self._compile_segment(is_awaited)
                self._close_tier()
            self._is_over.set()
            return self._executable

    def write(self) -> None:
        """Write the segment out, if that is possible."""
        with postponed(), self._compiling:
            self._executable = self._executable or self._write_out(self._known_runs)
            if self._executable is not None:
                self._close_tier()
                self._is_over.set()

    def is_written_out(self) -> bool:
        if self._compiling.acquire(blocking=False):
            try:
                self._executable = self._executable or self._write_out(Runs)
            finally:
                self._compiling.release()
        # Otherwise the compiler has it, and nobody waits for that.
        executable = self._executable
        return executable is not None and executable.on_numpy is not None

    def run(self, *arrays: Any) -> Sequence[Any]:
        results = None if self._is_over.is_set() else self._interpreted(arrays)
        if results is not None:
            return results
        return (self._executable or self.compiled()).run(*arrays)

    def _known_runs(self) -> Runs:
        return self._runs

    def _interpreted(self, arrays: Sequence[Any]) -> list[Any] | None:
        """Run the steps; None if the compiled function is ready before, or has to run instead."""
        start, has_run = time.monotonic(), self._has_run
        if not self._is_submitted:
            self._deadline = start + self.patience
        # What another process is to find is compiled even if it runs only once.
        is_for_others = self.compiles_by_itself and self._backend.folder is not None
        self._has_run = True
        try:
            results = self._stepped(arrays)
        except Exception as error:  # The compiled function says what is wrong, if anything is.
            if not isinstance(error, Overtaken):
                self._note_wait(f"{type(error).__name__}: {first_line(error)}")
            if not self._is_over.is_set():  # Otherwise the program was ready before the end.
                self._note_time(math.inf)
            self.give_up()
        else:
            self._submit_if_late()
            seconds = time.monotonic() - start
            self._note_time(seconds)
            self._note_run()
            if has_run:
                self._runs = self._runs.and_one(seconds)
            is_late = seconds >= self.patience and self.compiles_by_itself
            comes_again = has_run and (self.compiles_by_itself or self.writes_by_itself)
            if is_for_others or is_late or comes_again:
                self._submit()
            return results
        # Without the error, whose frames hold arrays.
        self._close_tier()
        return None

    def _stepped(self, arrays: Sequence[Any]) -> list[Any]:
        backend = self._backend
        donated = [arrays[i] for i in self._donated]
        # The compiled function refuses a donated array that is passed twice, and other devices.
        is_twice = len(set(map(id, donated))) < len(donated)
        if is_twice or backend.watches() or not all(map(backend.is_here, arrays)):
            raise Overtaken
        if self._tier is None:
            # Through a weak reference: a compile that waits for its turn is dropped with its model.
            is_overtaken = partial(_is_overtaken, ref(self))
            self._tier = backend.first_tier(is_overtaken, is_final=self.is_final)
        results = self._tier.run(self._replay, arrays, self._results)
        for array in donated:
            backend.discard(array)
        return results

    def _close_tier(self) -> None:
        if self._tier is not None:
            # After a fault of the device this fails too, and the compiled function says so.
            with suppress(Exception):
                self._tier.close()

    def is_overtaken(self) -> bool:
        """Whether a run ends here; asked before each step."""
        self._submit_if_late()
        return self._is_over.is_set()

    def _submit_if_late(self) -> None:
        # A timer would need a thread, which takes as long to start as a small model to run.
        if time.monotonic() >= self._deadline:
            self._deadline = math.inf
            if not self.compiles_by_itself:
                self._note_time(self.patience, has_ended=False)
            if self.compiles_by_itself:
                self._submit()
            else:  # It may turn out meanwhile that nothing else serves such calls.
                self._deadline = time.monotonic() + self.patience

    def _note_time(self, seconds: float, *, has_ended: bool = True) -> None:
        """Tell those who decide when to compile how long a run took; infinite if it cannot run."""
        if self.decide is not None:
            self.compiles_by_itself = self.decide(seconds, has_ended=has_ended)

    def _submit(self) -> None:
        self._deadline = math.inf
        if not self._is_submitted:
            self._is_submitted = True
            COMPILES.submit(partial(_finish, ref(self)))
            _LOG.debug("Compiles that wait for the background: %d.", COMPILES.count_waiting)

    def wait_for_runs(self) -> None:
        """Ask again after the next run what becomes of the segment."""
        self._is_submitted = False

    def give_up(self) -> None:
        """Let the next run wait for the compiled function."""
        self._is_over.set()


def patience_of(steps: int) -> float:
    """Return the seconds that a run of so many steps may take before the compiler starts."""
    return PATIENCE * min(1 + steps / STEPS, MOST_TIMES)


def _is_overtaken(reference: ref[Interpretation]) -> bool:
    interpretation = reference()
    return interpretation is None or interpretation.is_overtaken()


def _finish(reference: ref[Interpretation]) -> None:
    """Compile a segment or write it out, unless its model is gone."""
    interpretation = reference()
    if interpretation is None:
        return
    if interpretation.writes_by_itself:
        if not write_out(interpretation.write):
            interpretation.wait_for_runs()
        return
    try:
        interpretation.compiled(is_awaited=False)
    except TooFewRuns:
        interpretation.wait_for_runs()
    except Exception as error:  # The next run compiles it again, and raises.
        interpretation.give_up()
        reason = partial(first_line, error)
        _LOG.warning("A compile in the background failed, and a call tries it again: %s.", reason)


def can_be_interpreted(segment: Segment) -> bool:
    """Whether another library can run the steps; padded ones and users' own it cannot."""
    return not segment.host and all(map(_is_for_any_backend, segment.steps))


def _is_for_any_backend(step: Step) -> bool:
    if isinstance(step.call, OpCall) and isinstance(step.call.function, (Own, OnBackend)):
        return False
    inner = (step for block in step.blocks for step in block.steps)
    return isinstance(step.call, (OpCall, BodyCall)) and all(map(_is_for_any_backend, inner))
