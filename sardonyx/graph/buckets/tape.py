"""A tape for programs that are compared: all on the device, and nothing is run while tracing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from sardonyx.backends.base import HoldsNoStrings, Spec
from sardonyx.errors import InvalidInput
from sardonyx.graph.calls import OpCall
from sardonyx.graph.compiling import Compiler
from sardonyx.graph.params import Constants, Params
from sardonyx.graph.program import Embedded, Operand, Step, without_dead_steps
from sardonyx.graph.stages import Stage
from sardonyx.graph.structure import Node
from sardonyx.graph.subgraphs import BodyCall
from sardonyx.graph.tape import Tape
from sardonyx.graph.values import Device, Static, Value, digest, static
from sardonyx.ops.definition import NeedsHost

_WAY_OUT = "load the model without buckets"


class Piece(NamedTuple):
    """The steps of one segment, before rewrites, which look at sizes, and at kernels for them."""

    steps: Sequence[Step]
    results: Sequence[int]
    outputs: tuple[Value, ...] | None


class WholeTape(Tape):
    """Collects the pieces of a program, which must not depend on what it computes."""

    def __init__(
        self, compiler: Compiler, params: Params, inferred: dict[Any, Any], padded: Collection[int]
    ) -> None:
        held = _Unplaced(compiler.backend)
        super().__init__(
            Stage(), compiler, params, held, inferred=inferred, inline=False, execute=False
        )
        self.pieces: list[Piece] = []
        # The inputs, by number, that are padded, so that nobody may read them.
        self._padded = padded

    # -- what tracing asks ------------------------------------------------------------------------

    def emit(
        self, node: Node, call: OpCall | BodyCall, sources: Sequence[Static | Device]
    ) -> list[Value]:
        if self._open_blocks:
            return super().emit(node, call, sources)
        try:
            if not self._runs_on_host(call, sources):
                return self._emit(node, call, sources, on_host=False)
        except HoldsNoStrings:
            pass
        raise InvalidInput(f"it runs on the host, where nothing is padded; {_WAY_OUT}")

    def _read(self, devices: Sequence[Device]) -> None:
        if not devices:
            return
        if self._open_blocks:
            raise NeedsHost
        for device in devices:
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


class _Unplaced(Constants):
    """Constants that stay on the host: of most traces nothing is run."""

    def place(self, key: Any, value: np.ndarray[Any, Any]) -> Any:
        return value
