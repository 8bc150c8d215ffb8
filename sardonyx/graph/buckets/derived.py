"""Recordings of calls with new sizes, derived from traces of the same model for a few others.

A trace of a large network takes as long as a call of it. Where the traces for the smallest and the
largest sizes, and for two that neighbour each other, differ in numbers only, and these numbers are
linear in the sizes, all sizes between have the same steps, with numbers by the same formulas; see
`folded` for why.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from sardonyx.backends.blas_choice import BlasChoice
from sardonyx.backends.executable import Spec
from sardonyx.graph.buckets.folded import are_regular
from sardonyx.graph.buckets.formulas import SizeVector, determine_formulas
from sardonyx.graph.buckets.merging import Irregular, Merger, Numbers, Part
from sardonyx.graph.buckets.segment_collector import SegmentCollector
from sardonyx.graph.buckets.sized_binding import packed_alike
from sardonyx.graph.buckets.sized_call import SizedCall
from sardonyx.graph.buckets.written_sizes import WrittenSizes
from sardonyx.graph.ir import Node
from sardonyx.graph.programs.replay import Recording
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.programs.weight_preparation import Binding, Pack
from sardonyx.graph.tracing.op_call import OpCall
from sardonyx.graph.tracing.steps import Block, Call, Operand, Segment, Step
from sardonyx.graph.values.kinds import Value, digest
from sardonyx.graph.values.params import Constants
from sardonyx.logs import Log
from sardonyx.ops.fused_products import packed
from sardonyx.printable import first_line

_LOG = Log("buckets")


class OpenStep(NamedTuple):
    """What a step consists of."""

    node: Node
    call: Call
    operands: tuple[Operand, ...]
    results: tuple[int, ...]
    # None for a weight that is packed: its form says them.
    specs: tuple[Spec, ...] | None
    blocks: tuple[Block, ...]
    renamed: str | None
    fused: tuple[Node, ...]
    path: str
    chained: tuple[Node, ...]

    @classmethod
    def of(cls, step: Step) -> OpenStep:
        """Take a step apart."""
        specs = None if _form_of(step.call) else step.specs
        return cls(
            *(step.node, step.call, step.operands, step.results, specs, step.blocks),
            *(step.renamed, step.fused, step.path, step.chained),
        )

    def closed(self) -> Step:
        """Put the step together."""
        specs = self.specs
        if specs is None:
            specs = (Spec(*_form_of(self.call).packed),)
        return Step(
            *(self.node, self.call, self.operands, self.results, specs, self.blocks),
            *(self.renamed, self.fused, self.path, self.chained),
        )


@dataclass(frozen=True, eq=False, slots=True)
class Originals:
    """The steps of one trace, by what they consist of. Sizes that share one share the step."""

    steps: Mapping[int, tuple[OpenStep, Step]]

    @classmethod
    def of(cls, stages: Sequence[Stage], sketches: Sequence[Sketch]) -> Originals:
        """Return those of these stages."""
        pairs: list[tuple[OpenStep, Step]] = []
        for stage, sketch in zip(stages, sketches, strict=True):
            if stage.segment is not None:
                pairs += zip(sketch.steps, stage.segment.steps, strict=True)
            for opened, group in zip(sketch.prepared, stage.binding.prepared, strict=True):
                pairs += zip(opened, group.steps, strict=True)
        return cls({id(opened): (opened, step) for opened, step in pairs})

    def with_steps(self, segment: Segment, opened: Sequence[OpenStep]) -> Segment:
        """Return a segment whose steps have the same registers, and other numbers."""
        steps = tuple(map(self._closed, opened))
        if all(map(operator.is_, steps, segment.steps)):
            return segment
        changed = copy(segment)
        changed.steps = steps
        return changed

    def _closed(self, opened: OpenStep) -> Step:
        known = self.steps.get(id(opened))
        # Another one may have got the place in memory of one that is gone.
        return known[1] if known is not None and known[0] is opened else opened.closed()


class Sample(NamedTuple):
    """A trace of certain sizes, and the stages of calls of these sizes."""

    sizes: SizeVector
    trace: SegmentCollector
    stages: Sequence[Stage]

    @classmethod
    def of(cls, sizes: SizeVector, trace: SegmentCollector, constants: Constants) -> Sample:
        """Return the sample of a trace."""
        return cls(sizes, trace, trace.own_stages(constants))

    @property
    def form(self) -> Any:
        """A key of the registers that the stages read and write."""
        return tuple(map(_fixed_form, self.stages))

    @property
    def is_special(self) -> bool:
        """Whether calls need more than the stages: values of inputs, or random keys."""
        segments = [stage.segment for stage in self.stages if stage.segment is not None]
        draws = any(self.trace.registers.key in segment.inputs for segment in segments)
        return draws or bool(self.trace.registers.inputs_read)


@dataclass(eq=False, slots=True)
class Derivation:
    """Derives the recordings of calls whose sizes lie between those of a few traces."""

    smallest: SizeVector
    largest: SizeVector
    numbers: Callable[[SizeVector], Numbers]
    # The stages of one trace, and for each of them what differs in the others.
    stages: Sequence[Stage]
    parts: Sequence[Part]
    originals: Originals
    constants: Constants
    # The samples, until somebody writes the stages out as one function of sizes; and that function.
    samples: Sequence[Sample] = ()
    written: WrittenSizes | None = None
    # The part of a call that a program may save, if the stages run step by step; half is a guess.
    savable: float = 0.5
    # What chooses the threads of such calls, if their times can be compared.
    choice: BlasChoice | None = None

    @classmethod
    def of(cls, samples: Sequence[Sample], constants: Constants) -> Derivation | None:
        """Return what these samples have in common; None if they differ in more than numbers."""
        sampled = [sample.sizes for sample in samples]
        if not determine_formulas(sampled) or any(sample.is_special for sample in samples):
            return None
        if not are_regular(sampled, [sample.trace.folded for sample in samples]):
            return None
        merged = Merged.of(samples, constants)
        numbers = None if merged is None else merged.merger.numbers()
        if merged is None or numbers is None:
            return None
        smallest, largest = (tuple(map(end, zip(*sampled, strict=True))) for end in (min, max))
        samples, stages = merged.samples, merged.samples[0].stages
        known = numbers, stages, merged.parts, merged.originals, constants
        return cls(smallest, largest, *known, tuple(samples))

    def write_out(self) -> None:
        """Write the stages out as one function of sizes, if that can be done."""
        samples, self.samples = self.samples, ()
        stages, sampled = [s.stages for s in samples], [s.sizes for s in samples]
        try:
            # What grows has other sizes in each call.
            joins = self.choice is None
            written = WrittenSizes.of(sampled, stages, samples[0].trace.weights, joins=joins)
            if written is not None:
                written.decide_ahead(self.smallest)
            self.written = written
        except Exception as error:  # Calls go on without the function.
            _LOG.info("Such calls run step by step: %s.", partial(first_line, error))

    def holds(self, sizes: SizeVector) -> bool:
        """Whether the sizes lie between those of the traces."""
        bounds = zip(self.smallest, sizes, self.largest, strict=True)
        return all(least <= size <= most for least, size, most in bounds)

    def reaches(self, sizes: SizeVector) -> bool:
        """Whether the sizes are not larger than those of the traces."""
        return all(size <= most for size, most in zip(sizes, self.largest, strict=True))

    def count_steps(self) -> int:
        """Return how many steps a call takes."""
        return sum(len(s.segment.steps) for s in self.stages if s.segment is not None)

    def prepare(
        self, recording: Recording, sizes: SizeVector, note_time: Callable[[float], bool] | None
    ) -> None:
        """Let a recording run calls of these sizes, if it can.

        An empty one gets stages when they are needed: when the written function cannot run, or
        somebody asks for them. `note_time` gets the seconds of each run, and returns whether the
        stages shall run next.
        """
        if not self.holds(sizes):
            return
        if self.written is None:
            self.fill(recording, sizes)
            return
        recording.sized = SizedCall(self.written, sizes, note_time, self.choice)
        if not recording.tree.following:
            recording.fill = partial(self.fill, sizes=sizes)

    def fill(self, recording: Recording, sizes: SizeVector) -> bool:
        """Put the stages of a call with these sizes into an empty recording; False if it cannot."""
        if not self.holds(sizes):
            return False
        numbers, stages = self.numbers(sizes), []
        try:
            for stage, part in zip(self.stages, self.parts, strict=True):
                sketch: Any = part.at(numbers)
                stages.append(self._stage(stage, sketch))
        except Irregular:
            return False
        recording.embeds_arrays, last = False, recording.tree
        for stage in stages:
            stage.from_numpy = recording.from_numpy
            stage.begins_stepwise = recording.compiler.backend.joins_steps
            stage.decide = recording.tree.decide
            last.lead_to((), stage)
            last = stage
        recording.settle()
        return True

    def _stage(self, sample: Stage, sketch: Sketch) -> Stage:
        segment = sample.segment
        if segment is None:
            return Stage(outputs=sketch.outputs)
        return Stage(
            self.originals.with_steps(segment, sketch.steps),
            self._binding(sample.binding, sketch),
            inputs=sketch.inputs,
            results=sketch.results,
            outputs=sketch.outputs,
        )

    def _binding(self, sample: Binding, sketch: Sketch) -> Binding:
        arrays, place = sketch.constants, self.constants.place
        prepared = tuple(map(self.originals.with_steps, sample.prepared, sketch.prepared))
        steps = (step for group in prepared for step in group.steps)
        specs = {r: s for step in steps for r, s in zip(step.results, step.specs, strict=True)}
        return replace(
            sample,
            constants=arrays,
            placed={r: place(digest(arrays[r]), arrays[r]) for r in sample.placed},
            prepared=prepared,
            packs=sketch.packs,
            specs={register: specs[register] for register in sample.specs},
            _bound=[],
        )


class Sketch(NamedTuple):
    """All of a stage that may depend on the sizes."""

    steps: Sequence[OpenStep]
    # The steps of each group that prepares weights.
    prepared: Sequence[Sequence[OpenStep]]
    inputs: tuple[Spec, ...]
    results: tuple[Spec, ...]
    outputs: tuple[Value, ...] | None
    constants: dict[int, Any]
    packs: tuple[Pack, ...]

    @classmethod
    def of(cls, stage: Stage) -> Sketch:
        """Return that of a stage."""
        steps = () if stage.segment is None else stage.segment.steps
        binding, outputs = stage.binding, stage.outputs
        prepared = tuple([_opened(group.steps) for group in binding.prepared])
        constants, packs = dict(binding.constants), binding.packs
        return cls(_opened(steps), prepared, stage.inputs, stage.results, outputs, constants, packs)


class Merged(NamedTuple):
    """What the stages of samples have in common; the samples pass the same weights in packs."""

    samples: Sequence[Sample]
    merger: Merger
    parts: Sequence[Part]
    originals: Originals

    @classmethod
    def of(cls, samples: Sequence[Sample], constants: Constants) -> Merged | None:
        """Return it; None if the samples differ in more than numbers."""
        samples = _packed_alike(samples, constants)
        if any(sample.form != samples[0].form for sample in samples):
            return None
        merger = Merger([sample.sizes for sample in samples])
        sketches = [list(map(Sketch.of, sample.stages)) for sample in samples]
        try:
            parts = [merger.merged(column) for column in zip(*sketches, strict=True)]
        except Irregular:
            return None
        # Of what is the same in all samples, the merger keeps that of the first.
        return cls(samples, merger, parts, Originals.of(samples[0].stages, sketches[0]))


def _packed_alike(samples: Sequence[Sample], constants: Constants) -> list[Sample]:
    """Return samples whose stages pass the same weights and constants in packs."""
    if len({len(sample.stages) for sample in samples}) > 1:
        return list(samples)
    columns = []
    for stages in zip(*(sample.stages for sample in samples), strict=True):
        bindings = packed_alike(stages[0].segment, [s.binding for s in stages], constants)
        column = list(map(copy, stages))
        for stage, binding in zip(column, bindings, strict=True):
            stage.binding = binding
        columns.append(column)
    rows = zip(samples, zip(*columns, strict=True), strict=True)
    return [sample._replace(stages=stages) for sample, stages in rows]


def _fixed_form(stage: Stage) -> Any:
    """Return a key of the registers that a stage reads and writes."""
    binding = stage.binding
    segments = [stage.segment, *binding.prepared]
    return (
        tuple([s and (s.results, s.inputs, s.fixed, s.host, s.releases) for s in segments]),
        tuple(binding.weights.items()),
        tuple(binding.placed),
        tuple(binding.specs),
        tuple([pack.registers for pack in binding.packs]),
        binding.loose,
    )


def _opened(steps: Sequence[Step]) -> tuple[OpenStep, ...]:
    return tuple(map(OpenStep.of, steps))


def _form_of(call: Call) -> Any:
    """Return the form of a weight that a call packs; None if it does something else."""
    if not isinstance(call, OpCall) or call.function is not packed:
        return None
    return call.attributes["form"]
