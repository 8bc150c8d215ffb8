"""Collects the segments of a program, to be compared with those of the program for other sizes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.errors import InvalidInput
from sardonyx.graph.programs.finishing import prepared_stage
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.rewriting.phases import rewritten
from sardonyx.graph.tracing.recorder import TracedSegment
from sardonyx.graph.tracing.registers import Registers
from sardonyx.graph.tracing.steps import Embedded, Operand, without_dead_steps
from sardonyx.graph.values.kinds import Value, digest
from sardonyx.graph.values.params import Constants, Weights

_WAY_OUT = "load the model without buckets"

Array = np.ndarray[Any, Any]


class PieceRecorder:
    """Collects segments before rewrites, which look at sizes, and at kernels for them."""

    is_inline = False

    def __init__(
        self, backend: Backend, weights: Weights, padded: Collection[int], *, rewrites: bool
    ) -> None:
        self.backend = backend
        self.weights = weights
        self.rewrites = rewrites
        self.registers = Registers()
        self.pieces: list[TracedSegment] = []
        # The inputs, by number, that are padded, so that nobody may read them.
        self._padded = padded

    # -- what a tape asks -------------------------------------------------------------------------

    def place(self, key: Any, value: Array) -> Array:
        """The constant itself: it stays on the host, since nothing runs."""
        return value

    def allow_host(self) -> None:
        """Refuse steps on the host."""
        raise InvalidInput(f"it runs on the host, where nothing is padded; {_WAY_OUT}")

    def close(self, segment: TracedSegment) -> None:
        """Keep the segment."""
        self.pieces.append(segment)

    def read(self, registers: Sequence[int], close: Callable[[], None]) -> Sequence[Array]:
        """The values of inputs that are not padded; nothing has to run for these."""
        return [self._read(register) for register in registers]

    def _read(self, register: int) -> Array:
        if register not in self.registers.inputs or register in self._padded:
            raise InvalidInput(
                "a value that is computed, or an input that is padded, decides a shape or a "
                f"branch, so that it is unknown how padding spreads; {_WAY_OUT}"
            )
        value = self.registers.frame[register]
        return np.array(self.backend.fetch(value) if self.backend.owns(value) else value)

    # -- what a comparison asks -------------------------------------------------------------------

    @property
    def outputs(self) -> tuple[Value, ...]:
        """What the program returns."""
        return self.pieces[-1].outputs or ()

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

    def stages(self, pieces: Sequence[TracedSegment], constants: Constants) -> list[Stage]:
        """These pieces, rewritten and ready to run; their constants are placed on the device."""
        return [self._stage(piece, constants) for piece in pieces]

    def _stage(self, piece: TracedSegment, constants: Constants) -> Stage:
        known = self.registers
        live = replace(piece, steps=without_dead_steps(piece.steps, piece.results))
        steps = rewritten(live, self, knows_weights=True)
        for register in {r for step in steps for r in step.reads if r in known.constants}:
            value = known.constants[register]
            known.placed[register] = constants.place(digest(value), value)
        return prepared_stage(steps, piece, self)
