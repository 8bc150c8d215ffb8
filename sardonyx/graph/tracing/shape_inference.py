"""Shapes and dtypes of results: asked of the backend once for all calls that are alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.executable import Spec
from sardonyx.graph.tracing.op_call import OpCall, Probe
from sardonyx.graph.tracing.steps import Embedded, Operand
from sardonyx.graph.tracing.subgraphs import BodyCall
from sardonyx.graph.values.kinds import digest

Constant: TypeAlias = Callable[[Operand], "np.ndarray[Any, Any] | None"]


class Found(NamedTuple):
    """What a call makes of operands like these."""

    specs: Sequence[Spec]
    # For each result the number of the argument that it is, if it is one.
    same: Sequence[int | None]
    # The numbers of the arguments whose data must meet a condition.
    asked: Sequence[int]


class Inferred:
    """What was found so far: real networks repeat themselves."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._outline = backend.outline()
        self._found: dict[Any, Found] = {}

    def of(
        self,
        call: OpCall | BodyCall,
        operands: Sequence[Operand],
        specs: Mapping[int, Spec],
        constant: Constant,
    ) -> Found:
        """What a call makes of operands; `specs` tells what is in those that are registers.

        `constant` returns the value of an operand that tracing knows. It must meet the conditions
        of the call, also where the call is known for others of its shape.
        """
        own = call.key
        if own is None:
            return self._asked(call, operands, specs, constant)
        known = (digest(o.value) if isinstance(o, Embedded) else specs[o] for o in operands)
        key = (own, *known)
        found = self._found.get(key)
        if found is None or _asks_for_constants(found, operands, constant):
            found = self._found[key] = self._asked(call, operands, specs, constant)
        return found

    def clear(self) -> None:
        """Forget it all."""
        self._found.clear()

    def _asked(
        self,
        call: OpCall | BodyCall,
        operands: Sequence[Operand],
        specs: Mapping[int, Spec],
        constant: Constant,
    ) -> Found:
        probe = Probe(call, self._outline)
        values = [constant(operand) for operand in operands]
        asked: list[int] = []

        def function(*arrays: Any) -> Sequence[Any]:
            holes = iter(arrays)
            given = [
                probe.xp.asarray(o.value) if isinstance(o, Embedded) else next(holes)
                for o in operands
            ]
            results, asked[:] = probe.looking(given, values)
            return results

        holes = [specs[o] for o in operands if not isinstance(o, Embedded)]
        made = self._backend.infer(function, *holes)
        return Found(made, probe.same, asked)


def _asks_for_constants(found: Found, operands: Sequence[Operand], constant: Constant) -> bool:
    """Whether conditions concern constants that the key does not hold."""
    registers = [operands[i] for i in found.asked if not isinstance(operands[i], Embedded)]
    return any(constant(register) is not None for register in registers)
