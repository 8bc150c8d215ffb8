"""Shapes and dtypes of results: asked of the backend once for all calls that are alike."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from sardonyx.backends.base import Spec
from sardonyx.graph.calls import OpCall, Probe
from sardonyx.graph.compiling import Compiler
from sardonyx.graph.naming import name_of
from sardonyx.graph.program import Embedded, Operand
from sardonyx.graph.structure import Graph
from sardonyx.graph.subgraphs import BodyCall
from sardonyx.graph.values import digest

# What the results are, and for each the number of the argument that it is, if it is one.
Found: TypeAlias = "tuple[Sequence[Spec], Sequence[int | None]]"


class Inferred:
    """What was found so far: real networks repeat themselves."""

    def __init__(self, compiler: Compiler) -> None:
        self._backend = compiler.backend
        self._outline = compiler.backend.outline()
        self._found: dict[Any, Found] = {}
        # While something is kept: what was, and what is used now, by names that last.
        self._kept: Mapping[str, Found] = {}
        self._used: dict[str, Found] | None = None

    def of(
        self, call: OpCall | BodyCall, operands: Sequence[Operand], specs: Mapping[int, Spec]
    ) -> Found:
        """What a call makes of operands; `specs` tells what is in those that are registers."""
        if call.key is None:
            return self._asked(call, operands, specs)
        known = (digest(o.value) if isinstance(o, Embedded) else specs[o] for o in operands)
        key = (call.key, *known)
        name = name_of(key) if self._used is not None else None
        found = self._found.get(key) or self._kept.get(name or "")
        self._found[key] = found = found or self._asked(call, operands, specs)
        if name is not None and self._used is not None:
            self._used[name] = found
        return found

    @contextmanager
    def kept(self, graph: Graph, title: str) -> Iterator[None]:
        """Inside, all is known that was found for such a call before, and afterwards it is kept:

        in the backend's folder, if it has one, for other processes too.
        """
        folder = self._backend.folder
        if folder is None:
            yield
            return
        name = _name(graph, title)
        self._kept, self._used = folder.kept(name) or {}, {}
        try:
            yield
            if not self._used.keys() <= self._kept.keys():
                folder.keep(name, self._used)
        finally:
            self._kept, self._used = {}, None

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


def _name(graph: Graph, title: str) -> str:
    """What to keep it as. Graphs that share a name only share what they look up in."""
    hashed = hashlib.sha256(title.encode())
    for node in graph.nodes:
        hashed.update(f"\n{node.operator} {node.made}".encode())
    return f"shapes {hashed.hexdigest()}"


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
