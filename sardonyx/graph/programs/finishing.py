"""Finishes a traced segment: rewrites its steps, and binds them to weights and constants."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.programs.weight_preparation import Binding, bind
from sardonyx.graph.rewriting.phases import rewrite
from sardonyx.graph.tracing.recorder import Recorder, TracedSegment
from sardonyx.graph.tracing.registers import Registers
from sardonyx.graph.tracing.steps import Segment, Step


def rewritten(segment: TracedSegment, recorder: Recorder, *, knows_weights: bool) -> Sequence[Step]:
    """Return the segment's steps after all rewrites.

    With `knows_weights` the weights are the same at each call, so that rewrites may combine them.
    """
    registers, weights = recorder.registers, recorder.weights

    def is_finite(register: int) -> bool:
        """Whether a register holds a weight that is finite now."""
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
    """Return a stage of these steps; those on weights and constants alone run ahead of calls."""
    if not steps:
        return Stage(outputs=traced.outputs)
    registers = recorder.registers
    return _stage(*bind(steps, traced.results, registers, recorder.backend), traced, registers)


def plain_stage(steps: Sequence[Step], traced: TracedSegment, recorder: Recorder) -> Stage:
    """Return a stage of these steps, all of which run at each call."""
    if not steps:
        return Stage(outputs=traced.outputs)
    registers = recorder.registers
    fixed = {*registers.weights, *registers.constants}
    segment = Segment(steps, traced.results, fixed, host=traced.on_host)
    return _stage(segment, Binding.plain(segment, registers), traced, registers)


def _stage(
    segment: Segment, binding: Binding, traced: TracedSegment, registers: Registers
) -> Stage:
    return Stage(
        segment,
        binding,
        inputs=tuple(registers.specs[register] for register in segment.inputs),
        results=tuple(registers.specs[register] for register in segment.results),
        outputs=traced.outputs,
    )
