"""What a node makes of values: computed eagerly on NumPy, with the noise that its results carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary
from zlib import crc32

import numpy as np

import sardonyx
from tests.fuzz.bodies import carried_out
from tests.fuzz.exactness import (
    GATED,
    MOST_OF_GATES,
    PRODUCTS,
    SHAPED,
    SIGNED,
    STEPS,
    is_exact,
)
from tests.fuzz.graph import INPUT, Graph, Leaf, Node
from tests.fuzz.mutes import is_muted
from tests.fuzz.values import (
    COPIES,
    Unstable,
    Value,
    is_float,
    largest,
    parts,
    require_stable,
    with_noise,
)
from tests.property.case import Case

Values = Mapping[str, Value]


def apply(
    node: Node, values: Values, opsets: Mapping[str, int], copies: int = COPIES
) -> list[Value]:
    """The values of a node's outputs; an error where it is invalid, or not to be compared."""
    if any(isinstance(value, Graph) for value in node.attributes.values()):
        return carried_out(node, values, lambda body, outer: _walked(body, outer, opsets, copies))
    run = _eager(node, values, opsets)
    held = [values[name] for name in node.inputs if name]
    exact = all(value.exact for value in held)
    results = run({name: values[name].data for name in node.reads})
    _refuse_incomparable(node, values, opsets, results)
    if node.op in SHAPED:
        return [Value(result) for result in results]
    entering = [array for value in held for array in value.arrays]
    leaving = [array for result in results for array in parts(result)]
    if exact and is_exact(node.op, entering, leaving):
        return [Value(result) for result in results]
    scale = node.scale * _growth(node.op, entering)
    rows = []
    for index in range(copies):
        noisy = results
        if not exact:
            noisy = run({name: values[name].copy(index) for name in node.reads})
        rng = np.random.default_rng([crc32(node.outputs[0].encode()), index])
        rows.append([_moved(r, node.ulps, scale, rng) for r in noisy])
        for result, moved in zip(results, rows[-1], strict=True):
            for one, other in zip(parts(result), parts(moved), strict=True):
                require_stable(one, other)
    return [Value(r, copies) for r, copies in zip(results, zip(*rows, strict=True), strict=True)]


def _refuse_incomparable(
    node: Node, values: Values, opsets: Mapping[str, int], results: Sequence[Any]
) -> None:
    """Refuse a node on which runtimes may differ though none of them is wrong."""
    if is_muted(_case(node, values, opsets)):
        raise Unstable("runtimes are known to differ on it")
    leaving = [array for result in results for array in parts(result)]
    exact = all(values[name].exact for name in node.inputs if name)
    makes_steps = node.op in STEPS or any(not is_float(array.dtype) for array in leaving)
    if not exact and node.op not in SHAPED and makes_steps:
        raise Unstable("it makes steps, and an input is not exact")
    if node.op in GATED and max(map(largest, leaving)) > MOST_OF_GATES:
        raise Unstable("its gates may overflow on the way")
    if node.op in SIGNED:
        array = values[node.inputs[SIGNED[node.op]]].data
        if is_float(array.dtype) and np.any(array == 0):
            raise Unstable("it tells the sign of a zero, which sums may lose")


def evaluate(graph: Graph, copies: int = COPIES) -> dict[str, Value]:
    """All values of a graph."""
    return _walked(graph, {}, graph.opsets, copies)


def _walked(
    graph: Graph, outer: Values, opsets: Mapping[str, int], copies: int
) -> dict[str, Value]:
    values = {**outer, **{leaf.name: Value(leaf.array) for leaf in graph.leaves}}
    for node in graph.nodes:
        values |= zip(node.outputs, apply(node, values, opsets, copies), strict=True)
    return values


def _eager(node: Node, values: Values, opsets: Mapping[str, int]) -> _Eager:
    """One node as a model; the same again for inputs of the same types and shapes."""
    held = [array for name in node.reads for array in values[name].arrays]
    key = tuple((array.dtype, array.shape) for array in held)
    known = _KNOWN.setdefault(node, {})
    if key not in known:
        known[key] = _Eager(node, values, opsets)
    return known[key]


_KNOWN: WeakKeyDictionary[Node, dict[Any, _Eager]] = WeakKeyDictionary()


class _Eager:
    """One node as a model of its own, on NumPy."""

    def __init__(self, node: Node, values: Values, opsets: Mapping[str, int]) -> None:
        lists = [name for name in node.reads if isinstance(values[name].data, list)]
        self.lists = lists
        leaves, nodes = [], [node]
        for name in node.reads:
            if name in lists:
                names = [f"{name}_{i}" for i in range(len(values[name].data))]
                leaves += [Leaf(*p) for p in zip(names, values[name].data, strict=True)]
                nodes.insert(0, Node("SequenceConstruct", tuple(names), (name,)))
            else:
                leaves.append(Leaf(name, values[name].data, INPUT))
        graph = Graph(opsets, tuple(leaves), tuple(nodes), node.outputs)
        self.model = sardonyx.load(graph.model, backend="numpy")

    def __call__(self, held: Mapping[str, Any]) -> list[Any]:
        feeds = {}
        for name, data in held.items():
            if name in self.lists:
                feeds |= {f"{name}_{i}": array for i, array in enumerate(data)}
            else:
                feeds[name] = data
        results = self.model.run(None, feeds)
        return [[np.asarray(a) for a in r] if isinstance(r, list) else r for r in results]


def _case(node: Node, values: Values, opsets: Mapping[str, int]) -> Case:
    inputs = tuple(values[name].data if name else None for name in node.inputs)
    opset, count = opsets[node.domain], len(node.outputs)
    return Case(node.op, opset, inputs, node.attributes, count, domain=node.domain)


def _moved(result: Any, ulps: float, scale: float, rng: np.random.Generator) -> Any:
    moved = [with_noise(array, ulps, scale, rng) for array in parts(result)]
    return moved if isinstance(result, list) else moved[0]


def _growth(op: str, arrays: list[np.ndarray]) -> float:
    """How much larger what is added up may be than in the examples for which scales were written.

    Their elements are at most 4. Products may be smaller, too; elsewhere constants come in.
    """
    growth = 1.0
    for array in arrays:
        if is_float(array.dtype):
            ratio = largest(array) / 4
            growth *= ratio if op in PRODUCTS else max(ratio, 1)
    return growth
