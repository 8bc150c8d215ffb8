"""Shapes and dtypes of results: asked of the backend once for all calls that are alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from sardonyx.backends.base import Backend, Spec
from sardonyx.graph.calls import OpCall, Probe
from sardonyx.graph.program import Embedded, Operand
from sardonyx.graph.subgraphs import BodyCall
from sardonyx.graph.values import digest

# What the results are, and for each the number of the argument that it is, if it is one.
Found: TypeAlias = "tuple[Sequence[Spec], Sequence[int | None]]"


class Inferred:
    """What was found so far: real networks repeat themselves."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._outline = backend.outline()
        self._found: dict[Any, Found] = {}

    def of(
        self, call: OpCall | BodyCall, operands: Sequence[Operand], specs: Mapping[int, Spec]
    ) -> Found:
        """What a call makes of operands; `specs` tells what is in those that are registers."""
        own = call.key
        if own is None:
            return self._asked(call, operands, specs)
        known = (digest(o.value) if isinstance(o, Embedded) else specs[o] for o in operands)
        key = (own, *known)
        if key not in self._found:
            self._found[key] = self._asked(call, operands, specs)
        return self._found[key]

    def clear(self) -> None:
        """Forget it all."""
        self._found.clear()

    def _asked(
        self, call: OpCall | BodyCall, operands: Sequence[Operand], specs: Mapping[int, Spec]
    ) -> Found:
        probe = Probe(call, self._outline)
        holes = [specs[o] for o in operands if not isinstance(o, Embedded)]
        made = self._backend.infer(_with_embedded(probe, operands), *holes)
        return made, probe.same


def _with_embedded(probe: Probe, operands: Sequence[Operand]) -> Callable[..., Sequence[Any]]:
    def function(*arrays: Any) -> Sequence[Any]:
        given = iter(arrays)
        return probe(
            *(
                probe.xp.asarray(o.value) if isinstance(o, Embedded) else next(given)
                for o in operands
            )
        )

    return function
