"""A traced segment as a stage of a program: rewritten, and bound to weights and constants."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.programs.weight_preparation import Binding, Fixed, bind
from sardonyx.graph.rewriting.phases import rewrite
from sardonyx.graph.tracing.recorder import Recorder, TracedSegment
from sardonyx.graph.tracing.registers import Registers
from sardonyx.graph.tracing.steps import Segment, Step, without_dead_steps


def rewritten(segment: TracedSegment, recorder: Recorder, *, knows_weights: bool) -> Sequence[Step]:
    """The segment's steps after every rewrite, if the model allows any.

    `knows_weights` says that weights are the same at each call, so that rewrites may combine them.
    """
    if not recorder.rewrites:
        return without_dead_steps(segment.steps, segment.results)
    registers, weights = recorder.registers, recorder.weights

    def is_finite(register: int) -> bool:
        """Whether a weight is, as it is now; of what a call passes that is not known."""
        name = registers.weights.get(register)
        return name is not None and weights.is_finite(name)

    return rewrite(
        segment.steps,
        segment.results,
        registers.constants,
        registers.weights if knows_weights else (),
        recorder.backend,
        specs=registers.specs,
        fresh=registers.new_for_rewrite,
        is_finite=is_finite,
    )


def prepared_stage(steps: Sequence[Step], traced: TracedSegment, recorder: Recorder) -> Stage:
    """A stage of these steps; those on weights and constants alone run once, ahead of the calls."""
    if not steps:
        return Stage(outputs=traced.outputs)
    known = recorder.registers
    fixed = Fixed(known.weights, known.constants, known.placed, known.specs)
    return _stage(*bind(steps, traced.results, fixed, recorder.backend), traced, known)


def plain_stage(steps: Sequence[Step], traced: TracedSegment, recorder: Recorder) -> Stage:
    """A stage of these steps, all of which run at each call."""
    if not steps:
        return Stage(outputs=traced.outputs)
    known = recorder.registers
    fixed = {*known.weights, *known.placed}
    segment = Segment(steps, traced.results, fixed, host=traced.on_host)
    binding = Binding.plain(segment, known.weights, known.constants, known.placed)
    return _stage(segment, binding, traced, known)


def _stage(segment: Segment, binding: Binding, traced: TracedSegment, known: Registers) -> Stage:
    return Stage(
        segment,
        binding,
        inputs=tuple(known.specs[register] for register in segment.inputs),
        results=tuple(known.specs[register] for register in segment.results),
        outputs=traced.outputs,
    )
