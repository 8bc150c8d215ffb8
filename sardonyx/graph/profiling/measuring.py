"""Measures a call: as it runs, and by turns with that, the parts of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from sardonyx.backends.stopwatch import OpTimes
from sardonyx.errors import InvalidInput
from sardonyx.graph.ir import Node
from sardonyx.graph.profiling.listing import by_step
from sardonyx.graph.profiling.measurements import NodeTime, SegmentTime
from sardonyx.graph.profiling.profile import Profile
from sardonyx.graph.profiling.watching import Span, Watch, WatchedStage
from sardonyx.graph.programs.work import Work, weights_for_sharing, work_of
from sardonyx.graph.tracing.steps import Step, scopes_of
from sardonyx.graph.values.params import Weights

# Runs under the compiler's profiler, of which the shares of steps are taken: the fastest counts.
PROFILED_RUNS, MOST_PROFILED, PROFILED_SECONDS = 5, 20, 0.1
STEPPED_RUNS = 5

# How many calls are measured if nobody says it: at least `LEAST`, and until as many fastest ones as
# `AGREEING` took the same time or `SOME` seconds are over; `FEW` if that takes longer than `LONG`.
LEAST, AGREEING, FEW = 10, 3, 3
SHORT, SOME, LONG = 0.1, 2.0, 4.0

COMPILER = "compiler's profiler"
STEPS = "steps one by one"
SHARES = "shares of steps one by one"
NOTHING = "segments only"


@dataclass(frozen=True, eq=False)
class MeasuredCall:
    """One call that can be repeated. Both functions return when the results are computed."""

    title: str
    weights: Weights
    # A call as every other.
    plain: Callable[[], None]
    # The same call, whose segments the watch runs.
    watched: Callable[[], None]


@dataclass(eq=False)
class Rounds:
    """The times of the calls that were measured by turns."""

    totals: list[float] = field(default_factory=list)
    # The whole of each watched call, and its parts.
    watched: list[tuple[float, list[Span], dict[str, float]]] = field(default_factory=list)

    @property
    def are_settled(self) -> bool:
        """Whether the fastest calls of either kind took the same time, but for 2 %.

        The two kinds are not compared with each other.
        """
        return all(map(_is_settled, (self.totals, [whole for whole, *_ in self.watched])))


def _is_settled(times: Sequence[float]) -> bool:
    fastest = sorted(times)[:AGREEING]
    return len(fastest) == AGREEING and fastest[-1] < 1.02 * fastest[0]


def measured(call: MeasuredCall, watch: Watch, calls: int | None) -> Profile:
    """Return the profile of a call that the watch has prepared."""
    rounds = _rounds(call, watch, calls)
    if not rounds.watched:
        raise InvalidInput("Each call with these inputs takes another path: nothing can be timed.")
    stages = watch.stages
    _, spans, rest = min(rounds.watched, key=lambda each: each[0])
    profiled = _op_times(call, watch)
    if profiled is None and any(stage.is_whole for stage in stages):
        _take_shares(call, watch)
    segments, nodes = [], []
    for i, (stage, (begin, end)) in enumerate(zip(stages, spans, strict=True)):
        seconds = end - begin
        work = [each.times(stage.runs) for each in work_of(stage.stage, call.weights)]
        found = _steps(stage, seconds, work, profiled)
        segments.append(_segment(i, stage, seconds, found, work))
        nodes += _nodes(i, stage, found.seconds, work)
    total, count = min(rounds.totals), len(rounds.totals)
    return Profile(call.title, count, total, tuple(segments), tuple(nodes), rest)


def _rounds(call: MeasuredCall, watch: Watch, calls: int | None) -> Rounds:
    """Measure the kinds of calls by turns, since a machine may be slower at times."""
    rounds, begin = Rounds(), time.perf_counter()
    takes_steps = any(not each.is_whole and len(each.segment.steps) > 1 for each in watch.stages)
    while not _is_enough(rounds, calls, time.perf_counter() - begin):
        start = time.perf_counter()
        call.plain()
        rounds.totals.append(time.perf_counter() - start)
        watched = _watched_parts(call, watch)
        if watched is not None:
            rounds.watched.append(watched)
        if takes_steps and len(rounds.totals) <= STEPPED_RUNS:
            _run(call, watch, watch.stepped)
    return rounds


def _is_enough(rounds: Rounds, calls: int | None, seconds: float) -> bool:
    count = len(rounds.totals)
    if calls is not None:
        return count >= calls
    if seconds > LONG or count < FEW:
        return count >= FEW
    return count >= LEAST and seconds > (SHORT if rounds.are_settled else SOME)


def _run(call: MeasuredCall, watch: Watch, way: Any) -> None:
    watch.way = way
    try:
        call.watched()
    finally:
        watch.way = watch.timed


def _take_shares(call: MeasuredCall, watch: Watch) -> None:
    """Take the steps of whole segments one by one, a few times: the first may prepare something."""
    begin = time.perf_counter()
    with suppress(Exception):  # Then there are no shares.
        for _ in range(STEPPED_RUNS):
            _run(call, watch, watch.shared)
            if time.perf_counter() - begin > SOME:
                break


def _watched_parts(
    call: MeasuredCall, watch: Watch
) -> tuple[float, list[Span], dict[str, float]] | None:
    """Return the seconds of a watched call, of its segments, and outside of them."""
    spans: list[Span] = []
    watch.spans = spans
    start = time.perf_counter()
    call.watched()
    end = time.perf_counter()
    if len(spans) != len(watch.stages):
        return None
    first, last = (spans[0][0], spans[-1][1]) if spans else (end, end)
    rest = {
        "arguments in": first - start,
        "between segments": sum(then[0] - now[1] for now, then in pairwise(spans)),
        "results out": end - last,
    }
    return end - start, spans, rest


def _op_times(call: MeasuredCall, watch: Watch) -> OpTimes | None:
    """Return what the compiler's profiler says of the compiled segments; None if it cannot."""
    context = watch.compiler.backend.op_times()
    if context is None or all(s.tier != "compiled" for s in watch.stages):
        return None
    outer = watch.around
    try:
        with context as times:
            watch.around = times.around
            begin = time.perf_counter()
            for i in range(MOST_PROFILED):
                if i >= PROFILED_RUNS and time.perf_counter() - begin > PROFILED_SECONDS:
                    break
                _run(call, watch, watch.labelled)
    except RuntimeError:  # Somebody else traces already.
        return None
    finally:
        watch.around = outer
    return times


class FoundSteps(NamedTuple):
    """The seconds of the steps of a segment, the method, and the factor that scaled them."""

    seconds: Sequence[float]
    method: str
    scale: float = 1.0


def _steps(
    stage: WatchedStage, seconds: float, work: Sequence[Work], profiled: OpTimes | None
) -> FoundSteps:
    """Return the seconds of each step of a segment, and how they were found."""
    if len(stage.segment.steps) == 1:
        return FoundSteps([seconds], STEPS)
    if profiled is not None and stage.tier == "compiled":
        found = _from_compiler(stage, seconds, work, profiled)
        if found is not None:
            return found
    own = [stage.runs * each for each in min(stage.steps, key=sum, default=[])]
    if not sum(own):
        return FoundSteps([0.0] * len(stage.segment.steps), NOTHING)
    scale = seconds / sum(own)
    if not stage.is_whole:
        # Steps that took less than the segment leave the rest to no node.
        scale = min(scale, 1.0)
    method = SHARES if stage.is_whole else STEPS
    return FoundSteps([scale * each for each in own], method, scale)


def _from_compiler(
    stage: WatchedStage, seconds: float, work: Sequence[Work], profiled: OpTimes
) -> FoundSteps | None:
    executable: Any = stage.stage.executable
    whole, operations = profiled.of(stage.label)
    if executable.listing is None or not whole:
        return None
    scopes = executable.scopes or scopes_of(stage.segment.steps)
    steps = by_step(operations, executable.listing(), scopes, weights_for_sharing(work))
    scale = seconds / whole
    found = FoundSteps([scale * each for each in steps], COMPILER, scale)
    return found if any(steps) else None


def _segment(
    number: int,
    stage: WatchedStage,
    seconds: float,
    found: FoundSteps,
    work: Sequence[Work],
) -> SegmentTime:
    return SegmentTime(
        number=number,
        tier=stage.tier,
        method=found.method,
        scale=found.scale,
        steps=len(stage.segment.steps),
        seconds=seconds,
        overhead=max(seconds - sum(found.seconds), 0.0),
        bytes=sum(each.bytes for each in work),
        operations=sum(each.operations for each in work),
    )


def _nodes(
    number: int, stage: WatchedStage, seconds: Sequence[float], work: Sequence[Work]
) -> list[NodeTime]:
    rows = zip(stage.segment.steps, seconds, work, strict=True)
    return [node for step, each, done in rows for node in _of_step(number, step, each, done)]


def _of_step(number: int, step: Step, seconds: float, work: Work) -> list[NodeTime]:
    """Return the node of a step; for a chain of products those of all, by their operations."""
    if not step.chained or len(step.chained) != len(work.chained) or not all(work.chained):
        return [_node(number, step, step.node, step.title, seconds, work)]
    whole, nodes, left = sum(work.chained), [], work
    for node, operations in zip(step.chained, work.chained, strict=True):
        is_last = node is step.chained[-1]
        own = left if is_last else Work(work.bytes * operations // whole, operations)
        left = Work(left.bytes - own.bytes, left.operations - own.operations)
        part = seconds * operations / whole
        nodes.append(_node(number, step, node, node.operator, part, own))
    return nodes


def _node(
    number: int, step: Step, node: Node, operator: str, seconds: float, work: Work
) -> NodeTime:
    name = node.name or node.first_output
    return NodeTime(
        name=f"{step.path}{name}",
        operator=operator,
        scope=f"{step.path}{name}".rpartition("/")[0],
        segment=number,
        seconds=seconds,
        bytes=work.bytes,
        operations=work.operations,
    )
