"""What nodes with subgraphs of ours compute: their bodies' nodes, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tests.fuzz.graph import Graph, Node, Typed
from tests.fuzz.values import Unstable, Value

Values = Mapping[str, Value]
# Computes a graph's nodes from values that are there, and returns all values.
Walk = Callable[[Graph, Values], Values]
# Loops that go on for longer, by the condition alone, are not drawn.
MOST = 12


def carried_out(node: Node, values: Values, walk: Walk) -> list[Value]:
    """The results of an If, a Loop or a Scan."""
    return {"If": _if, "Loop": _loop, "Scan": _scan}[node.op](node, values, walk)


def _if(node: Node, values: Values, walk: Walk) -> list[Value]:
    condition = _exact(values[node.inputs[0]])
    body = node.attributes["then_branch" if condition.item() else "else_branch"]
    found = walk(body, values)
    return [found[name] for name in body.outputs]


def _loop(node: Node, values: Values, walk: Walk) -> list[Value]:
    body = node.attributes["body"]
    count = _exact(values[node.inputs[0]]).item() if node.inputs[0] else MOST + 1
    go = _exact(values[node.inputs[1]]) if node.inputs[1] else np.array(True)
    states = [values[name] for name in node.inputs[2:]]
    rows: list[list[Value]] = []
    while len(rows) < count and go.item():
        if len(rows) > MOST:
            raise Unstable("it goes on for long")
        formals = [Value(np.array(len(rows), np.int64)), Value(np.asarray(go)), *states]
        found = walk(body, {**values, **dict(zip(body.formals, formals, strict=True))})
        results = [found[name] for name in body.outputs]
        states = results[1 : 1 + len(states)]
        rows.append(results[1 + len(states) :])
        go = _exact(results[0])
    return [*states, *_stacked(rows, len(body.outputs) - 1 - len(states))]


def _scan(node: Node, values: Values, walk: Walk) -> list[Value]:
    body = node.attributes["body"]
    count = node.attributes["num_scan_inputs"]
    held = [values[name] for name in node.inputs]
    states, sequences = held[: len(held) - count], held[len(held) - count :]
    axes = node.attributes.get("scan_input_axes", [0] * count)
    ways = node.attributes.get("scan_input_directions", [0] * count)
    lengths = {value.data.shape[axis] for value, axis in zip(sequences, axes, strict=True)}
    if len(lengths) > 1:
        raise Unstable("what is scanned differs in length")
    length = lengths.pop()
    rows: list[list[Value]] = []
    for step in range(length):
        slices = [
            mapped(sequence, _slice(length - 1 - step if way else step, axis))
            for sequence, axis, way in zip(sequences, axes, ways, strict=True)
        ]
        formals = dict(zip(body.formals, [*states, *slices], strict=True))
        _require_shapes(body.formals.values(), formals.values())
        found = walk(body, {**values, **formals})
        results = [found[name] for name in body.outputs]
        _require_shapes(body.results, results)
        states = results[: len(states)]
        rows.append(results[len(states) :])
    return [*states, *_stacked(rows, len(body.outputs) - len(states))]


def _require_shapes(declared: Iterable[Typed], values: Iterable[Value]) -> None:
    for typed, value in zip(declared, values, strict=True):
        if typed.shape not in (None, value.data.shape):
            raise Unstable("a subgraph is called with other shapes than it declares")


def mapped(value: Value, function: Callable[[Any], Any]) -> Value:
    """What a function makes of a value and of its copies."""
    return Value(function(value.data), tuple(map(function, value.copies)))


def _slice(step: int, axis: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: np.asarray(np.take(array, step, axis=axis))


def _stacked(rows: Sequence[Sequence[Value]], width: int) -> list[Value]:
    if width and not rows:
        raise Unstable("nothing says what shape no iterations stack to")
    return [_stack([row[i] for row in rows]) for i in range(width)]


def _stack(values: Sequence[Value]) -> Value:
    if len({value.data.shape for value in values}) > 1:
        raise Unstable("iterations differ in shape")
    copies = max(len(value.copies) for value in values)
    return Value(
        np.stack([value.data for value in values]),
        tuple(np.stack([value.copy(k) for value in values]) for k in range(copies)),
    )


def _exact(value: Value) -> np.ndarray:
    if not value.exact or value.data.size != 1:
        raise Unstable("what decides is not exact")
    array: np.ndarray = value.data
    return array
