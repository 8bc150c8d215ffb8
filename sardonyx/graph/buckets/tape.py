"""A tape for programs that are compared, piece by piece."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.errors import InvalidInput
from sardonyx.graph.programs.ahead_tape import AheadTape
from sardonyx.graph.programs.compiler import Compiler
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.tracing.shape_inference import Inferred
from sardonyx.graph.tracing.steps import Embedded, Operand, Step, without_dead_steps
from sardonyx.graph.values.kinds import Device, Value, digest, static
from sardonyx.graph.values.params import Constants, Weights

_WAY_OUT = "load the model without buckets"


class Piece(NamedTuple):
    """The steps of one segment, before rewrites, which look at sizes, and at kernels for them."""

    steps: Sequence[Step]
    results: Sequence[int]
    outputs: tuple[Value, ...] | None


class WholeTape(AheadTape):
    """Collects the pieces of a program."""

    on_host = f"it runs on the host, where nothing is padded; {_WAY_OUT}"

    def __init__(
        self, compiler: Compiler, weights: Weights, inferred: Inferred, padded: Collection[int]
    ) -> None:
        super().__init__(compiler, weights, inferred)
        self.pieces: list[Piece] = []
        # The inputs, by number, that are padded, so that nobody may read them.
        self._padded = padded

    # -- what tracing asks ------------------------------------------------------------------------

    def _learn(self, device: Device) -> None:
        register = device.register
        if register not in self._inputs or register in self._padded:
            raise InvalidInput(
                "a value that is computed, or an input that is padded, decides a shape or a "
                f"branch, so that it is unknown how padding spreads; {_WAY_OUT}"
            )
        value = self._frame[register]
        host = self.backend.fetch(value) if self.backend.owns(value) else value
        self._known[register] = static(np.array(host))
        self.inputs_read[register] = self._known[register].value

    def _new_stage(self, results: Sequence[int], outputs: tuple[Value, ...] | None) -> Stage:
        steps = without_dead_steps(self._steps, results)
        self.pieces.append(Piece(steps, results, outputs))
        return Stage(outputs=outputs)

    # -- what a comparison asks -------------------------------------------------------------------

    def spec(self, operand: Operand) -> Spec:
        if isinstance(operand, Embedded):
            return Spec(operand.value.shape, operand.value.dtype)
        return self._specs[operand]

    def constant(self, operand: Operand) -> np.ndarray[Any, Any] | None:
        return operand.value if isinstance(operand, Embedded) else self._sources.get(operand)

    def weight_name(self, operand: Operand) -> str | None:
        return self._weights.get(operand) if isinstance(operand, int) else None

    @property
    def key_register(self) -> int:
        return self._key_register

    # -- what is made of it -----------------------------------------------------------------------

    def let_go(self) -> None:
        """Hold no array of the call that was traced."""
        self._frame.clear()

    def argument(self, spec: Spec) -> int:
        """A register for something more that calls pass."""
        return self._next_register(spec)

    def stages(self, pieces: Sequence[Piece], constants: Constants) -> list[Stage]:
        """These pieces, rewritten and ready to run; their constants are placed on the device."""
        made = []
        for piece in pieces:
            self._steps = list(piece.steps)
            steps = self._rewritten(piece.results)
            for register in {r for step in steps for r in step.reads if r in self._sources}:
                value = self._sources[register]
                self._constants[register] = constants.place(digest(value), value)
            made.append(self._stage_of(steps, piece.results, piece.outputs))
        self._steps = []
        inputs = [stage.segment.inputs for stage in made if stage.segment]
        self.draws = any(self._key_register in registers for registers in inputs)
        return made
