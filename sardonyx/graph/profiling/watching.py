"""Watches the segments of a call, which otherwise runs as every call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Replay
from sardonyx.backends.numpy import HOST
from sardonyx.graph.buckets.plans import PaddedCallPlan, PaddedProgram
from sardonyx.graph.buckets.recording import PaddedRecording
from sardonyx.graph.programs.compiler import NEVER, Compiler
from sardonyx.graph.programs.host_segments import replaying_on_host
from sardonyx.graph.programs.interpretation import Interpretation
from sardonyx.graph.programs.replay import NewKey, Recording, Shortcut
from sardonyx.graph.programs.stages import Bound, Stage
from sardonyx.graph.tracing.steps import Frame, Segment
from sardonyx.graph.values.params import Weights


class TimedSegment(Segment):
    """A segment that notes the time of each step when it is replayed."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(segment.steps, segment.results, set(segment.fixed), host=segment.host)
        self.seconds: list[float] = []

    def replay(self, xp: Backend, *arguments: Any) -> list[Any]:
        """Run the steps one by one, and note their times."""
        frame: Frame = dict(zip(self.arguments, arguments, strict=True))
        stopwatch = xp.stopwatch()
        stopwatch.note(())
        for step, releases in zip(self.steps, self.releases, strict=True):
            step.run(xp, frame)
            stopwatch.note([frame[register] for register in step.results])
            for register in releases:
                del frame[register]
        results = [frame[register] for register in self.results]
        self.seconds = stopwatch.seconds()
        return results


# When a segment began, and when its results were computed.
Span: TypeAlias = tuple[float, float]


@dataclass(eq=False)
class WatchedStage:
    """A stage of the call, with the times of its runs."""

    stage: Stage
    segment: Segment
    # "compiled", "fused", "written out", "step by step" or "host".
    tier: str
    label: str
    # What calls run, and the arrays of weights and constants that they pass after the inputs.
    function: Replay
    arrays: Sequence[Any]
    # Those that the function has already, if NumPy runs it; its steps need them.
    held: Sequence[Any]
    # How often a call runs it: once for each of its pieces.
    runs: int = 1
    # The times of the steps in each run that took them one by one.
    steps: list[list[float]] = field(default_factory=list)

    @cached_property
    def _timed(self) -> TimedSegment:
        return TimedSegment(self.segment)

    @property
    def is_whole(self) -> bool:
        """Whether calls run the segment as one piece of compiled code."""
        return self.tier in ("compiled", "fused", "written out")

    def run_steps(self, backend: Backend, arrays: Sequence[Any]) -> Any:
        """Run the steps one by one, note their times, and return the results."""
        timed = self._timed
        replay = self.stage.binding.replaying(timed)
        results = self._run(timed, replay, backend, [*arrays, *self.held])
        self.steps.append(timed.seconds)
        return results

    def _run(
        self, timed: TimedSegment, replay: Any, backend: Backend, arrays: Sequence[Any]
    ) -> Any:
        if self.segment.host:
            return replaying_on_host(timed, backend)(*arrays)
        if self.stage.is_on_numpy:
            with HOST.scope():
                return replay(HOST, *map(np.asarray, arrays))
        if isinstance(self.stage.executable, Interpretation):
            tier = backend.first_tier(lambda: False)
            try:
                return tier.run(replay, arrays, self.stage.results)
            finally:
                tier.close()
        return replay(backend.uncompiled() if backend.compiled else backend, *arrays)


@dataclass(eq=False)
class Watch:
    """Notes when the segments of a call begin and end.

    `prepare` runs the call once, and finds its stages. The recording that `watched` returns runs
    the very code of calls, but each function of a segment is replaced by one that notes the time.
    """

    compiler: Compiler
    stages: list[WatchedStage] = field(default_factory=list)
    # Of the last call.
    spans: list[Span] = field(default_factory=list)
    # The stages that the call went through, after the root, with the keys that led there.
    path: list[tuple[tuple[Any, ...], Stage]] = field(default_factory=list)
    # How a segment runs: one of the methods below.
    way: Callable[[WatchedStage, Sequence[Any]], Any] = field(init=False)
    around: Callable[[str], AbstractContextManager[object]] = lambda _: nullcontext()

    def __post_init__(self) -> None:
        self.way = self.timed

    def timed(self, watched: WatchedStage, arrays: Sequence[Any]) -> Any:
        """Run a segment as calls do, and wait for it.

        One that runs several times, for pieces of a call, lasts from its first run to its last.
        """
        start, number = time.perf_counter(), int(watched.label)
        results = watched.function(*arrays)
        self.compiler.backend.wait(results)
        if number < len(self.spans):
            start, _ = self.spans.pop(number)
        self.spans.append((start, time.perf_counter()))
        return results

    def labelled(self, watched: WatchedStage, arrays: Sequence[Any]) -> Any:
        """Run a segment as calls do, under its label in the compiler's profiler."""
        with self.around(watched.label):
            results = watched.function(*arrays)
            self.compiler.backend.wait(results)
        return results

    def stepped(self, watched: WatchedStage, arrays: Sequence[Any]) -> Any:
        """Take the steps one by one where calls do."""
        if watched.is_whole:
            return watched.function(*arrays)
        return watched.run_steps(self.compiler.backend, arrays)

    def shared(self, watched: WatchedStage, arrays: Sequence[Any]) -> Any:
        """Take the steps of compiled segments one by one, beside the segment itself."""
        if watched.is_whole:
            watched.run_steps(self.compiler.backend, arrays)
        return watched.function(*arrays)

    def prepare(
        self, recording: Recording, inputs: Sequence[Any], weights: Weights, new_key: NewKey
    ) -> bool:
        """Compile and run the call once; return whether a call has taken its path yet."""
        self.stages.clear()
        self.path.clear()
        plan = _plan(recording, inputs, weights)
        if plan is None:
            root: Any = _Followed(recording.root, self)
            found = Recording(self.compiler, False, tree=root).run(inputs, weights, new_key)
            return found is not None
        assert isinstance(recording, PaddedRecording)
        if plan.program.draws:
            inputs = [*inputs, new_key()]

        def noted(program: PaddedProgram) -> PaddedProgram:
            shown: Any = _Shown(program.shown, self)
            return replace(program, shown=shown)

        recording.buckets.run(plan.with_programs(noted), inputs, weights)
        return True

    def note(self, stage: Stage, frame: Frame, weights: Weights) -> None:
        """Run a stage while the call is prepared."""
        segment, compiler = stage.segment, self.compiler
        if segment is None:
            return
        again = next((each for each in self.stages if each.stage is stage), None)
        if again is not None:
            again.runs += 1
            stage.run(frame, compiler, weights, inline=False)
            return
        if compiler.mode != NEVER:
            stage.compile(compiler, weights)
        inputs = [frame[register] for register in segment.inputs]
        function, arrays = stage.bind(segment, inputs, compiler, weights)
        held = stage.binding.arrays(weights) if stage.is_on_numpy else ()
        stage.run(frame, compiler, weights, inline=False)
        compiler.backend.wait([frame[register] for register in segment.results])
        tier, label = _tier(stage, segment, compiler), str(len(self.stages))
        self.stages.append(WatchedStage(stage, segment, tier, label, function, arrays, held))

    def watched(self, recording: Recording, inputs: Sequence[Any], weights: Weights) -> Recording:
        """Return the recording whose segments this watch runs."""
        followed = copy(recording)
        plan = _plan(recording, inputs, weights)
        if plan is not None:
            assert isinstance(followed, PaddedRecording)

            def under_watch(program: PaddedProgram) -> PaddedProgram:
                shown = copy(program.shown)
                shown.stages = tuple([self._watched(stage, weights) for stage in shown.stages])
                return replace(program, shown=shown)

            followed.plans = dict.fromkeys(followed.plans, plan.with_programs(under_watch))
            return followed
        followed.tree = last = copy(recording.root)
        for key, stage in self.path:
            following = self._watched(stage, weights)
            last._following = {key: following}
            last = following
        if recording.shortcut is not None:
            followed.shortcut = Shortcut(last, recording.shortcut.segment)
            if recording.shortcut.on_numpy is not None:
                followed.shortcut.note_numpy(recording.inputs)
        return followed

    def _watched(self, stage: Stage, weights: Weights) -> Stage:
        """Return a copy of a stage whose function runs under the watch."""
        copied = copy(stage)
        for watched in self.stages:
            if watched.stage is stage:
                function, needs_no_scope = self._function(watched), stage.needs_no_scope
                copied.bound = Bound(weights.version, function, watched.arrays, needs_no_scope)
        return copied

    def _function(self, watched: WatchedStage) -> Replay:
        def run(*arrays: Any) -> Any:
            return self.way(watched, arrays)

        return run


def _plan(recording: Recording, inputs: Sequence[Any], weights: Weights) -> PaddedCallPlan | None:
    return recording.plan(inputs, weights) if isinstance(recording, PaddedRecording) else None


def _tier(stage: Stage, segment: Segment, compiler: Compiler) -> str:
    """Return how a segment runs."""
    if segment.host:
        return "host"
    if stage.is_on_numpy:
        return "written out"
    if isinstance(stage.executable, Interpretation):
        return "step by step"
    if compiler.backend.compiled:
        return "compiled"
    return "fused" if compiler.backend.joins_steps else "step by step"


class _Followed:
    """A stage of a recording, as the call that prepares follows it."""

    def __init__(self, stage: Stage, watch: Watch) -> None:
        self._stage, self._watch, self.segment = stage, watch, stage.segment
        self.draws, self.outputs = stage.draws, stage.outputs
        self.reads, self.measures = stage.reads, stage.measures
        self.arrays_of_outputs = stage.arrays_of_outputs

    @property
    def needs_no_scope(self) -> bool:
        """Whether NumPy runs the stage, without a scope; known once it has run."""
        return self._stage.needs_no_scope

    def next(self, key: tuple[Any, ...]) -> _Followed | None:
        """Return the stage that follows."""
        stage = self._stage.next(key)
        if stage is None:
            return None
        self._watch.path.append((key, stage))
        return _Followed(stage, self._watch)

    def run(self, frame: Frame, compiler: Compiler, weights: Weights, *, inline: bool) -> None:
        """Run the stage, and note it."""
        self._watch.note(self._stage, frame, weights)


class _Shown:
    """The program of a bucket, as the call that prepares runs it."""

    def __init__(self, program: Any, watch: Watch) -> None:
        self.inputs = program.inputs
        self.stages = [_Followed(stage, watch) for stage in program.stages]
