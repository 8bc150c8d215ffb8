"""Nodes with subgraphs that read values from outside: If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tests.fuzz.bodies import mapped
from tests.fuzz.graph import INITIALIZER, INPUT, Graph, Node, Typed
from tests.fuzz.values import Unstable, Value

if TYPE_CHECKING:
    from tests.fuzz.building import Builder


def add_if(outer: Builder) -> None:
    """Two branches with results of the same types, before opset 11 of the same shapes."""
    condition = _flag(outer)
    one, other = outer.nested({}), outer.nested({})
    one.grow(outer.random.randint(1, 4))
    other.grow(outer.random.randint(1, 4))
    results = _results(one, outer.random.randint(1, 2))
    same = outer.opset < 11 or outer.random.random() < 0.7
    matching = [_alike(other, one.values[name], same) for name in results]
    bodies = {"then_branch": one.body(results), "else_branch": other.body(matching)}
    outer.append(Node("If", (condition,), outer.fresh(len(results)), bodies))


def add_loop(outer: Builder) -> None:
    """Up to four iterations over states that the body changes, with what they were stacked."""
    random = outer.random
    count = outer.leave(np.array(random.randint(1, 4), np.int64), random.choice(SCALAR_KINDS))
    condition = _flag(outer, value=True) if random.random() < 0.4 else ""
    states = _states(outer)
    formals = {
        outer.new(): Value(np.array(0, np.int64)),
        outer.new(): Value(np.array(True)),
        **{outer.new(): outer.values[name] for name in states},
    }
    inner = outer.nested(formals)
    inner.grow(random.randint(1, 5))
    number, go, *held = formals
    nexts = [_next(inner, name) for name in held]
    if condition and random.random() < 0.5:
        bound = inner.leave(np.array(random.randint(0, 3), np.int64))
        go = inner.emit("Less", number, bound)
    else:
        go = inner.emit("Identity", go)
    scans = _results(inner, random.randint(0, 2)) if inner.nodes else []
    body = inner.body([go, *nexts, *scans], formals)
    inputs = (count, condition, *states)
    outer.append(Node("Loop", inputs, outer.fresh(len(nexts) + len(scans)), {"body": body}))


def add_scan(outer: Builder) -> None:
    """A state, and the slices of one or two arrays along an axis of each."""
    random = outer.random
    axes, sequences, length = _sequences(outer)
    if outer.opset < 9 or not sequences or not length:
        raise Unstable("there is nothing to scan")
    ways = [random.randint(0, 1) for _ in sequences]
    states = _states(outer)
    slices = [
        mapped(outer.values[name], _first(axis, length - 1 if way else 0))
        for name, axis, way in zip(sequences, axes, ways, strict=True)
    ]
    held = {outer.new(): outer.values[name] for name in states}
    formals = held | {outer.new(): value for value in slices}
    inner = outer.nested(formals)
    inner.grow(random.randint(1, 5))
    nexts = [_alike(inner, value, same_shape=True) for value in held.values()]
    scans = _results(inner, random.randint(0, 2)) if inner.nodes else []
    attributes = {
        "body": inner.body([*nexts, *scans], formals, shaped=True),
        "num_scan_inputs": len(sequences),
        "scan_input_axes": axes,
        "scan_input_directions": ways,
    }
    count = len(nexts) + len(scans)
    outer.append(Node("Scan", (*states, *sequences), outer.fresh(count), attributes))


SCALAR_KINDS = [INPUT, INITIALIZER]
NESTED: Sequence[Callable[[Builder], None]] = (add_if, add_loop, add_scan)


def _flag(outer: Builder, value: bool | None = None) -> str:
    """A truth value: one of the graph's own, or a new one."""
    names = [
        name
        for name, held in outer.values.items()
        if not isinstance(held.data, list) and held.data.dtype == bool and held.data.shape == ()
    ]
    if value is None and names and outer.random.random() < 0.8:
        return outer.random.choice(names)
    value = outer.random.random() < 0.5 if value is None else value
    return outer.leave(np.array(value), outer.random.choice(SCALAR_KINDS))


def _states(outer: Builder) -> list[str]:
    names = [n for n, v in outer.values.items() if _is_carried(v)]
    return [outer.random.choice(names) for _ in range(outer.random.randint(1, 2)) if names]


def _is_carried(value: Value) -> bool:
    return not isinstance(value.data, list) and value.data.dtype.kind in "fiub"


def _sequences(outer: Builder) -> tuple[list[int], list[str], int]:
    names = [n for n, v in outer.values.items() if _is_carried(v) and v.data.ndim and v.data.size]
    if not names:
        return [], [], 0
    first = outer.random.choice(names)
    axis = outer.random.randrange(outer.values[first].data.ndim)
    length = outer.values[first].data.shape[axis]
    axes, chosen = [axis], [first]
    others = [n for n in names if length in outer.values[n].data.shape]
    if outer.random.random() < 0.5:
        chosen.append(outer.random.choice(others))
        axes.append(outer.values[chosen[-1]].data.shape.index(length))
    return axes, chosen, length


def _first(axis: int, step: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda array: np.asarray(np.take(array, step, axis=axis))


def _results(inner: Builder, count: int) -> list[str]:
    """Some of what a body's nodes compute."""
    names = [
        name
        for node in inner.nodes
        for name in node.outputs
        if name in inner.values and _is_carried(inner.values[name])
    ]
    if not names:
        raise Unstable("the body computes nothing")
    return [inner.emit("Identity", inner.random.choice(names)) for _ in range(count)]


def _alike(inner: Builder, wanted: Value, same_shape: bool) -> str:
    names = [
        name
        for name, value in inner.values.items()
        if not isinstance(value.data, list)
        and value.data.dtype == wanted.data.dtype
        and (not same_shape or value.data.shape == wanted.data.shape)
    ]
    if not names:
        raise Unstable("no value is of the other branch's type")
    return inner.emit("Identity", inner.random.choice(names[-6:]))


def _next(inner: Builder, name: str) -> str:
    """What becomes of a state: some result of its type, mostly of its shape."""
    return _alike(inner, inner.values[name], inner.random.random() < 0.85)


def body_of(
    inner: Builder, outputs: Sequence[str], formals: Mapping[str, Value], shaped: bool
) -> Graph:
    """A builder's nodes as a subgraph; what decides on a loop has a shape in any case."""

    def typed(value: Value, decides: bool = False) -> Typed:
        return Typed(value.data.dtype, value.data.shape if shaped or decides else None)

    return Graph(
        inner.opsets,
        tuple(inner.leaves),
        tuple(inner.nodes),
        tuple(outputs),
        formals={n: typed(v, place < 2) for place, (n, v) in enumerate(formals.items())},
        results=tuple(typed(inner.values[name]) for name in outputs),
    )
