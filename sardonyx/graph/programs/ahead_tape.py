"""A tape for programs that are traced ahead of any call: all of it on the device, nothing run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from sardonyx.backends.operations.library import HoldsNoStrings
from sardonyx.errors import InvalidInput
from sardonyx.graph.ir import Node
from sardonyx.graph.programs.compiler import Compiler
from sardonyx.graph.programs.stages import Stage
from sardonyx.graph.tracing.op_call import OpCall
from sardonyx.graph.tracing.shape_inference import Inferred
from sardonyx.graph.tracing.subgraphs import BodyCall
from sardonyx.graph.tracing.tape import Tape
from sardonyx.graph.values.kinds import Device, Static, Value
from sardonyx.graph.values.params import Constants, Weights
from sardonyx.ops.definition import NeedsHost


class AheadTape(Tape):
    """Writes down a whole program, which must not depend on what it computes."""

    # What is wrong with a step that runs on the host, and what to do about it.
    on_host: ClassVar[str]

    def __init__(self, compiler: Compiler, weights: Weights, inferred: Inferred) -> None:
        held = _Unplaced(compiler.backend)
        super().__init__(
            Stage(), compiler, weights, held, inferred=inferred, inline=False, execute=False
        )

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
        raise InvalidInput(self.on_host)

    def _read(self, devices: Sequence[Device]) -> None:
        if devices and self._open_blocks:
            raise NeedsHost
        for device in devices:
            self._learn(device)

    @abstractmethod
    def _learn(self, device: Device) -> None:
        """Know a value that decides a shape or a branch, or say that it cannot be known."""

    @abstractmethod
    def _new_stage(self, results: Sequence[int], outputs: tuple[Value, ...] | None) -> Stage: ...


class _Unplaced(Constants):
    """Constants that stay on the host: nothing is run."""

    def place(self, key: Any, value: np.ndarray[Any, Any]) -> Any:
        return value
