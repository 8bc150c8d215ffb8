"""The walk that ops with subgraphs get: they read values, apply functions and run bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from sardonyx.backends.executable import Spec
from sardonyx.graph.ir import Graph, Node, ValueInfo, names_read
from sardonyx.graph.tracing.op_call import HOLE, OpCall
from sardonyx.graph.tracing.scope import Scope
from sardonyx.graph.tracing.subgraphs import BodyCall, Subgraph
from sardonyx.graph.tracing.tape import Tape
from sardonyx.graph.values.kinds import Device, Static, Value, as_value, leaves
from sardonyx.ops.definition import NeedsHost


class Walker(Protocol):
    """The part of the tracer that the walk of a node uses."""

    tape: Tape
    # Notes of ops on values, by register.
    notes: dict[int, Any]

    def emit(
        self, node: Node, call: OpCall, arrays: Sequence[Static | Device]
    ) -> Sequence[Value]: ...

    def renew(self, old: Value, new: Value) -> None: ...

    def subgraph(self, node: Node, graph: Graph, scope: Scope, name: str) -> Subgraph: ...


class NodeWalk:
    """The walk of a tracer, at one node."""

    def __init__(self, tracer: Walker, node: Node, scope: Scope) -> None:
        self._tracer = tracer
        self._node = node
        self._scope = scope

    def knows(self, value: Value) -> bool:
        return all(map(self._tracer.tape.knows, leaves(as_value(value))))

    def read(self, value: Value) -> np.ndarray[Any, Any]:
        (fetched,) = self._tracer.tape.fetch(_arrays([value]))
        assert isinstance(fetched, Static)
        return fetched.value

    def apply(self, function: Callable[..., Any], *values: Value, **options: Any) -> Any:
        arrays = _arrays(values)
        call = OpCall(function, (HOLE,) * len(arrays), options, ())
        return tuple(self._tracer.emit(self._node, call, arrays))

    def look_up(
        self, function: Callable[..., Any], places: Value, names: np.ndarray[Any, Any]
    ) -> Value:
        tape = self._tracer.tape
        waits = tape.backend.compiled and not tape.recorder.is_inline
        if not waits or not isinstance(places, Device):
            (found,) = self.apply(function, places, names=names)
            return as_value(found)
        call = OpCall(function, (HOLE,), {"names": names}, ())
        return tape.defer(self._node, call, places, Spec(places.shape, names.dtype))

    def on_device(self, function: Callable[..., Any], *values: Value, **options: Any) -> Any:
        arrays = [as_value(value) for value in values]
        fit = all(isinstance(a, (Static, Device)) and a.dtype != object for a in arrays)
        if fit and self._tracer.tape.backend.compiled:
            with suppress(NeedsHost):
                return self.with_body(function, *values, **options)
        return None

    def shapes(self, body: Subgraph, *values: Any, iteration: Any = None) -> Any:
        if self._tracer.tape.backend.compiled:
            with suppress(NeedsHost):
                return body.shapes(*values, iteration=iteration)
        return None

    def with_body(self, function: Callable[..., Any], *values: Value, **options: Any) -> Any:
        arrays = _arrays(values)
        return self.step(OpCall(function, (HOLE,) * len(arrays), options, ()), arrays)

    def step(self, call: OpCall, arrays: Sequence[Static | Device]) -> tuple[Value, ...]:
        """Write one step that calls subgraphs; this records them as blocks."""
        tape = self._tracer.tape
        body_call = BodyCall.of(call, len(arrays), tape.stand_in)
        results = tuple(tape.emit(self._node, body_call, arrays))
        body_call.settle()
        return results

    def renew(self, old: Value, new: Value) -> None:
        self._tracer.renew(old, new)

    def note(self, value: Value, fact: Any) -> None:
        if isinstance(value, Device):
            self._tracer.notes[value.register] = fact

    def noted(self, value: Value) -> Any:
        return self._tracer.notes.get(value.register) if isinstance(value, Device) else None

    def between(self, inputs: Sequence[str], output: str) -> Subgraph:
        graph = self._scope.graph
        if graph is None:
            raise ValueError("there is no graph around this node")
        nodes = _nodes_between(graph.nodes, inputs, output, self._scope)
        infos = tuple(ValueInfo(name, None, None, None) for name in inputs)
        part = Graph(output, infos, (ValueInfo(output, None, None, None),), nodes)
        return self._tracer.subgraph(self._node, part, self._scope, output)


def _arrays(values: Sequence[Value]) -> list[Static | Device]:
    arrays = [value for value in map(as_value, values) if isinstance(value, (Static, Device))]
    if len(arrays) < len(values):
        raise TypeError("a tensor is needed here, not a sequence, a map or an absent optional")
    return arrays


def _nodes_between(
    nodes: Sequence[Node], inputs: Sequence[str], output: str, scope: Scope
) -> tuple[Node, ...]:
    """Return the nodes that compute `output` from `inputs` and from values still in scope."""
    changed = set(inputs)
    for node in nodes:
        if changed.intersection(names_read(node)):
            changed.update(node.outputs)
    if output not in changed:
        raise ValueError(f"'{output}' does not depend on {', '.join(inputs)}")
    needed, chosen = {output}, []
    for node in reversed(nodes):
        computed = needed.intersection(node.outputs).difference(inputs)
        if any(name in changed or name not in scope for name in computed):
            chosen.append(node)
            needed.update(names_read(node))
    return tuple(reversed(chosen))
