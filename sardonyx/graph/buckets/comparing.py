"""Compares two traces of one model, for a call's sizes and for padded ones, step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from sardonyx.backends.base import Backend
from sardonyx.backends.padding.axes import (
    Different,
    Layout,
    Slot,
    Unpaddable,
    padded_form,
    unpadded_layout,
)
from sardonyx.backends.padding.protocols import Call, PaddedStep, Prover
from sardonyx.graph.buckets.segment_collector import SegmentCollector
from sardonyx.graph.tracing.recorder import TracedSegment
from sardonyx.graph.tracing.steps import Embedded, Operand, Step
from sardonyx.graph.values.kinds import digest


@dataclass(frozen=True, eq=False, slots=True)
class PaddedCall:
    """The call of a padded step. Its first arrays are the runtime arguments."""

    run: PaddedStep
    runtime_args: int
    # Equal for equal steps of proofs with equal decisions.
    key: Any

    is_unsized: ClassVar[bool] = False
    is_view: ClassVar[bool] = False

    def __call__(self, xp: Backend, arrays: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(self.run(arrays[: self.runtime_args], arrays[self.runtime_args :]))


@dataclass(frozen=True, eq=False, slots=True)
class ProvedStep:
    """A step of the padded program, its replacement if it needs one, and its operands."""

    step: Step
    run: PaddedStep | None
    operands: tuple[Operand, ...]
    key: Any

    def padded(self, runtime_args: Sequence[int], decisions: tuple[bool, ...]) -> Step:
        """Return the step as it runs, with the runtime arguments in these registers."""
        if self.run is None:
            return self.step
        key = None if self.key is None else (self.key, decisions)
        return replace(
            self.step,
            call=PaddedCall(self.run, len(runtime_args), key),
            operands=(*runtime_args, *self.operands),
            blocks=(),
            renamed=self.step.title,
        )


@dataclass(eq=False, slots=True)
class Comparison:
    """The padded program's steps, and the counterpart of each register of the true program."""

    true: SegmentCollector
    padded: SegmentCollector
    prover: Prover
    # For each register of the true program: its padded register, and the layout of the array.
    counterparts: dict[int, tuple[int, Layout]]
    proved: list[ProvedStep] = field(default_factory=list)
    # The registers of the true program that steps on the host read, and those that they write.
    read_on_host: set[int] = field(default_factory=set)
    written_on_host: set[int] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        true: SegmentCollector,
        padded: SegmentCollector,
        inputs: Mapping[int, Layout],
        prover: Prover,
    ) -> Comparison:
        """Compare all steps of two traces; `inputs` has the layouts of the padded inputs.

        Raises `Different` if the traces have different steps, and `Unpaddable` if there is no proof
        that padding does not change the results. Both name the node.
        """
        layouts = {**inputs, padded.registers.key: unpadded_layout((2,))}
        counterparts = {register: (register, layout) for register, layout in layouts.items()}
        comparison = cls(true, padded, prover, counterparts)
        if len(true.segments) != len(padded.segments):
            raise Different("the graph is divided into other segments")
        for one, other in zip(true.segments, padded.segments, strict=True):
            if len(one.steps) != len(other.steps) or one.on_host != other.on_host:
                raise Different(_first_difference(one.steps, other.steps))
            compare = comparison._compare_on_host if one.on_host else comparison._prove
            for pair in zip(one.steps, other.steps, strict=True):
                compare(*pair)
        return comparison

    def segments(self, runtime_args: Sequence[int]) -> list[TracedSegment]:
        """Return the padded program's segments, with runtime arguments in these registers."""
        proved, decisions = iter(self.proved), tuple(self.prover.decisions)
        return [
            replace(
                segment, steps=[next(proved).padded(runtime_args, decisions) for _ in segment.steps]
            )
            for segment in self.padded.segments
        ]

    @property
    def inputs(self) -> dict[int, Layout]:
        """The layouts of the inputs."""
        registers = sorted(self.padded.registers.inputs)
        return {register: self.counterparts[register][1] for register in registers}

    def _prove(self, true: Step, padded: Step) -> None:
        label = f"{padded.node.label} ({padded.title})"
        if true.title != padded.title or len(true.operands) != len(padded.operands):
            raise Different(f"{label} does not run")
        try:
            operands = list(map(self._operand, true.operands, padded.operands))
            slots = {i: slot for i, (_, slot) in enumerate(operands) if slot is not None}
            forms = tuple((padded_form(layout), slot) for layout, slot in operands)
            pairs = enumerate(zip(true.operands, padded.operands, strict=True))
            constants = {i: self._constants(*pair) for i, pair in pairs}
            key = padded.call.key, forms, self.prover.position
            layouts, run = self.prover.step(
                _call(true, self.true),
                _call(padded, self.padded),
                [layout for layout, _ in operands],
                slots,
                {i: values for i, values in constants.items() if values},
            )
        except (Unpaddable, Different) as reason:
            raise type(reason)(f"{label}: {reason}") from None
        results = zip(padded.results, layouts, strict=True)
        self.counterparts.update(zip(true.results, results, strict=True))
        rest = tuple(o for i, o in enumerate(padded.operands) if i not in slots)
        self.proved.append(ProvedStep(padded, run, rest, None if key[0] is None else key))

    def _compare_on_host(self, true: Step, padded: Step) -> None:
        """Require that a step on the host is the same for both sizes: it runs on true arrays."""
        label = f"{padded.node.label} ({padded.title})"
        is_same = true.title == padded.title and len(true.operands) == len(padded.operands)
        if not is_same or true.call.key is None or true.call.key != padded.call.key:
            raise Different(f"{label} runs on the host, in another form for another size")
        for one, other in zip(true.operands, padded.operands, strict=True):
            if not self._are_same_on_host(one, other):
                raise Different(f"{label}: it reads other values for another size")
        for one_result, other_result in zip(true.results, padded.results, strict=True):
            # Without axes nothing is cut off.
            self.counterparts[one_result] = other_result, ()
        self.written_on_host.update(true.results)
        self.proved.append(ProvedStep(padded, None, (), None))

    def _are_same_on_host(self, true: Operand, padded: Operand) -> bool:
        if isinstance(true, Embedded) and isinstance(padded, Embedded):
            return digest(true.value) == digest(padded.value)
        if isinstance(true, Embedded) or isinstance(padded, Embedded):
            return False
        name = self.padded.weight_name(padded)
        if name is not None:
            return name == self.true.weight_name(true)
        if true not in self.written_on_host:
            self.read_on_host.add(true)
        return self.counterparts.get(true, (None, ()))[0] == padded

    def _constants(self, true: Operand, padded: Operand) -> Sequence[Any]:
        """Return the two values of an operand; none if it is not a constant in both traces."""
        values = self.true.constant(true), self.padded.constant(padded)
        return () if values[0] is None or values[1] is None else values

    def _operand(self, true: Operand, padded: Operand) -> tuple[Layout, Slot | None]:
        """Return an operand's layout, and its slot if it is a runtime argument."""
        if true in self.written_on_host:
            raise Unpaddable("it reads what the host computes, which is not padded")
        values = self._constants(true, padded)
        if values:
            return self.prover.constant(*values)
        if not (isinstance(true, int) and isinstance(padded, int)):
            raise Different("a value is a constant for one size only")
        name = self.padded.weight_name(padded)
        if name is not None and name == self.true.weight_name(true):
            return unpadded_layout(self.padded.spec(padded).shape), None
        register, layout = self.counterparts.get(true, (None, ()))
        if register != padded:
            raise Different("it reads other values for another size")
        return layout, None


def _call(step: Step, recorder: SegmentCollector) -> Call:
    def function(*arrays: Any) -> Sequence[Any]:
        return step.call(recorder.backend.for_ops, arrays)

    return Call(function, step.call.key, [recorder.spec(operand) for operand in step.operands])


def _first_difference(true: Sequence[Step], padded: Sequence[Step]) -> str:
    for one, other in zip(true, padded, strict=False):
        if one.title != other.title or one.node is not other.node:
            return f"{other.node.label} ({other.title}) does not run"
    longer = max(true, padded, key=len)
    extra = longer[min(len(true), len(padded))]
    return f"{extra.node.label} ({extra.title}) runs for some sizes only"
