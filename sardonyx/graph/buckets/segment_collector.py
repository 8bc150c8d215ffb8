"""Collects a program's segments, to compare them with those of the program for other sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.errors import InvalidInput
from sardonyx.graph.buckets.call_arrays import stand_in
from sardonyx.graph.buckets.folded import Folded
from sardonyx.graph.programs.finishing import plain_stage, prepared_stage
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.rewriting.phases import rewritten
from sardonyx.graph.tracing.recorder import TracedSegment
from sardonyx.graph.tracing.registers import Registers
from sardonyx.graph.tracing.steps import Embedded, Operand, without_dead_steps
from sardonyx.graph.values.kinds import Value, digest
from sardonyx.graph.values.params import Constants, Weights

_WAY_OUT = "load the model without buckets"

Array = np.ndarray[Any, Any]


@dataclass(eq=False, slots=True)
class SegmentCollector:
    """Collects segments before rewrites, because rewrites depend on sizes."""

    backend: Backend
    weights: Weights
    # The numbers of the padded inputs, whose values cannot be read.
    padded: Collection[int]
    rewrites: bool
    # Whether it is a trace for sizes of 1, which stand for all.
    single_rows: bool = False
    registers: Registers = field(default_factory=Registers)
    segments: list[TracedSegment] = field(default_factory=list)
    folded: list[Folded] = field(default_factory=list)
    # What a prover has traced of the steps' calls.
    step_traces: dict[Any, Any] = field(default_factory=dict)
    is_inline: bool = field(default=False, init=False)
    knows_weights: bool = field(default=True, init=False)
    only_infers: bool = field(default=True, init=False)

    # -- for the tape -----------------------------------------------------------------------------

    def place(self, key: Any, value: Array) -> Array:
        """Return the constant itself, since nothing runs."""
        return value

    def note_workaround(self, reason: str) -> None:
        """Do nothing, as nothing runs."""

    def allow_host(self) -> None:
        """Do nothing: steps on the host take arrays without padding."""

    def close(self, segment: TracedSegment) -> None:
        """Collect the segment; arrays without data stand for its results in steps on the host."""
        if segment.measured:
            raise InvalidInput(
                f"it runs on the host, and the sizes of its results depend on data; {_WAY_OUT}"
            )
        self.segments.append(segment)
        for register in segment.results:
            if register not in self.registers.frame:
                self.registers.frame[register] = stand_in(self.registers.specs[register])

    def read(self, registers: Sequence[int], close: Callable[[], None]) -> Sequence[Array]:
        """Return the values of inputs without padding; other values are unknown."""
        return [self._read(register) for register in registers]

    def _read(self, register: int) -> Array:
        if register not in self.registers.inputs or register in self.padded:
            raise InvalidInput(
                "a computed value or a padded input decides a shape or a branch, so that it is "
                f"unknown how padding spreads; {_WAY_OUT}"
            )
        value = self.registers.frame[register]
        return np.array(self.backend.fetch(value) if self.backend.owns(value) else value)

    # -- for the comparison -----------------------------------------------------------------------

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The program's outputs."""
        return self.segments[-1].outputs or ()

    def spec(self, operand: Operand) -> Spec:
        if isinstance(operand, Embedded):
            return Spec(operand.value.shape, operand.value.dtype)
        return self.registers.specs[operand]

    def constant(self, operand: Operand) -> Array | None:
        if isinstance(operand, Embedded):
            return operand.value
        return self.registers.constants.get(operand)

    def weight_name(self, operand: Operand) -> str | None:
        return self.registers.weights.get(operand) if isinstance(operand, int) else None

    # -- the program ------------------------------------------------------------------------------

    def stages(self, segments: Sequence[TracedSegment], constants: Constants) -> list[Stage]:
        """Return stages for these segments; their constants are placed on the device."""
        return [self._stage(segment, constants) for segment in segments]

    def own_stages(self, constants: Constants) -> list[Stage]:
        """Return the stages of calls like the traced one, without padding.

        Their registers have the same numbers whatever else was made of this trace.
        """
        return replace(self, registers=self.registers.before_rewrites()).stages(
            self.segments, constants
        )

    def _stage(self, segment: TracedSegment, constants: Constants) -> Stage:
        registers = self.registers
        live = replace(segment, steps=without_dead_steps(segment.steps, segment.results))
        steps = rewritten(
            live, self, knows_weights=self.knows_weights, single_rows=self.single_rows
        )
        for register in registers.constants.keys() & {r for step in steps for r in step.reads}:
            value = registers.constants[register]
            registers.placed[register] = constants.place(digest(value), value)
        return (plain_stage if segment.on_host else prepared_stage)(steps, segment, self)
