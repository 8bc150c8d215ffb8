"""What an op that runs subgraphs may do: know, read, apply, and leave work to the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from sardonyx.graph.ir import Graph, Node, ValueInfo, names_read
from sardonyx.graph.tracing.op_call import HOLE, OpCall
from sardonyx.graph.tracing.scope import Scope
from sardonyx.graph.tracing.subgraphs import BodyCall, Subgraph
from sardonyx.graph.tracing.tape import Tape
from sardonyx.graph.values.kinds import Device, Static, Value, as_value, leaves
from sardonyx.ops.definition import NeedsHost


class Walker(Protocol):
    """What a node's walk asks of the tracer."""

    tape: Tape
    # What ops have noted of values, by register.
    notes: dict[int, Any]

    def emit(
        self, node: Node, call: OpCall, arrays: Sequence[Static | Device]
    ) -> Sequence[Value]: ...

    def renew(self, old: Value, new: Value) -> None: ...

    def subgraph(self, node: Node, graph: Graph, scope: Scope, name: str) -> Subgraph: ...


class NodeWalk:
    """The walk of a tracer, held at one node."""

    def __init__(self, tracer: Walker, node: Node, scope: Scope) -> None:
        self._tracer = tracer
        self._node = node
        self._scope = scope

    def knows(self, value: Value) -> bool:
        tape = self._tracer.tape
        found = tape.recalled(leaves(as_value(value)))
        return all(isinstance(leaf, Static) or tape.is_at_hand(leaf) for leaf in found)

    def read(self, value: Value) -> np.ndarray[Any, Any]:
        (known,) = self._tracer.tape.fetch(_arrays([value]))
        assert isinstance(known, Static)
        return known.value

    def apply(self, function: Callable[..., Any], *values: Value, **options: Any) -> Any:
        arrays = _arrays(values)
        call = OpCall(function, (HOLE,) * len(arrays), options, ())
        return tuple(self._tracer.emit(self._node, call, arrays))

    def on_device(self, function: Callable[..., Any], *values: Value, **options: Any) -> Any:
        given = [as_value(value) for value in values]
        fit = all(isinstance(v, (Static, Device)) and v.dtype != object for v in given)
        if not fit or not self._tracer.tape.backend.compiled:
            return None
        try:
            return self.with_body(function, *given, **options)
        except NeedsHost:
            return None

    def shapes(self, body: Subgraph, *values: Any, iteration: Any = None) -> Any:
        if not self._tracer.tape.backend.compiled:
            return None
        try:
            return body.shapes(*values, iteration=iteration)
        except NeedsHost:
            return None

    def with_body(self, function: Callable[..., Any], *values: Value, **options: Any) -> Any:
        arrays = _arrays(values)
        bodies = {name: b for name, b in options.items() if isinstance(b, Subgraph)}
        others = {name: value for name, value in options.items() if name not in bodies}
        call = OpCall(function, (HOLE,) * len(arrays), others, ())
        return self.step(call, arrays, bodies)

    def step(
        self, call: OpCall, arrays: Sequence[Static | Device], bodies: Mapping[str, Subgraph]
    ) -> tuple[Value, ...]:
        """One step that calls the bodies, which are recorded on the way."""
        tape = self._tracer.tape
        bodied = BodyCall.of(call, len(arrays), bodies, tape.stand_ins())
        made = tuple(tape.emit(self._node, bodied, arrays))
        bodied.settle()
        return made

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
    given = [as_value(value) for value in values]
    arrays = [value for value in given if isinstance(value, (Static, Device))]
    if len(arrays) < len(given):
        raise TypeError("a tensor is needed here, not a sequence, a map or an absent optional")
    return arrays


def _nodes_between(
    nodes: Sequence[Node], inputs: Sequence[str], output: str, scope: Scope
) -> tuple[Node, ...]:
    """The nodes that make `output` anew of `inputs`, and of what is still known of the rest."""
    changed = set(inputs)
    for node in nodes:
        if changed.intersection(names_read(node)):
            changed.update(node.outputs)
    if output not in changed:
        raise ValueError(f"'{output}' does not depend on {', '.join(inputs)}")
    needed, chosen = {output}, []
    for node in reversed(nodes):
        made = needed.intersection(node.outputs).difference(inputs)
        if any(name in changed or name not in scope for name in made):
            chosen.append(node)
            needed.update(names_read(node))
    return tuple(reversed(chosen))
