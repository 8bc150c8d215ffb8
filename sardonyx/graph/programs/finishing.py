"""A segment's steps as a stage of a program, bound to weights and constants."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.programs.weight_preparation import Binding, bind
from sardonyx.graph.tracing.recorder import Recorder, TracedSegment
from sardonyx.graph.tracing.registers import Registers
from sardonyx.graph.tracing.steps import Segment, Step


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
    reads = {register for step in steps for register in step.reads}
    fixed = {r for r in reads if r in registers.weights or r in registers.constants}
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
