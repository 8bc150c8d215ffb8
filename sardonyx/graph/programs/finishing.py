"""A segment's steps as a stage of a program, bound to weights and constants."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.programs.weight_preparation import Binding, Fixed, bind
from sardonyx.graph.tracing.recorder import Recorder, TracedSegment
from sardonyx.graph.tracing.registers import Registers
from sardonyx.graph.tracing.steps import Segment, Step


def prepared_stage(steps: Sequence[Step], traced: TracedSegment, recorder: Recorder) -> Stage:
    """A stage of these steps; those on weights and constants alone run once, ahead of the calls."""
    if not steps:
        return Stage(outputs=traced.outputs)
    registers = recorder.registers
    fixed = Fixed(registers.weights, registers.constants, registers.placed, registers.specs)
    return _stage(*bind(steps, traced.results, fixed, recorder.backend), traced, registers)


def plain_stage(steps: Sequence[Step], traced: TracedSegment, recorder: Recorder) -> Stage:
    """A stage of these steps, all of which run at each call."""
    if not steps:
        return Stage(outputs=traced.outputs)
    registers = recorder.registers
    fixed = {*registers.weights, *registers.placed}
    segment = Segment(steps, traced.results, fixed, host=traced.on_host)
    binding = Binding.plain(segment, registers.weights, registers.constants, registers.placed)
    return _stage(segment, binding, traced, registers)


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
