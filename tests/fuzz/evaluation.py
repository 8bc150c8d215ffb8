"""What a node makes of values: computed eagerly on NumPy, with the noise that its results carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from zlib import crc32

import numpy as np

import sardonyx
from tests.fuzz.exactness import SHAPED, STEPS, is_exact
from tests.fuzz.graph import INPUT, Graph, Leaf, Node
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

Values = Mapping[str, Value]


def apply(node: Node, values: Values, opsets: Mapping[str, int], copies: int = COPIES) -> list[Value]:
    """The values of a node's outputs; an error where it is invalid, or not to be compared."""
    run = _Eager(node, values, opsets)
    held = [values[name] for name in node.reads]
    exact = all(value.exact for value in held)
    results = run({name: values[name].data for name in node.reads})
    if not exact and node.op in SHAPED:
        return [Value(result) for result in results]
    if not exact and (node.op in STEPS or any(_is_discrete(result) for result in results)):
        raise Unstable("it makes steps, and an input is not exact")
    entering = [array for value in held for array in value.arrays]
    leaving = [array for result in results for array in parts(result)]
    if exact and is_exact(node.op, entering, leaving):
        return [Value(result) for result in results]
    scale = node.scale * _growth(entering)
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


def evaluate(graph: Graph, copies: int = COPIES) -> dict[str, Value]:
    """All values of a graph."""
    values = {leaf.name: Value(leaf.array) for leaf in graph.leaves}
    for node in graph.nodes:
        results = apply(node, values, graph.opsets, copies)
        values |= zip(node.outputs, results, strict=True)
    return values


class _Eager:
    """One node as a model of its own, on NumPy."""

    def __init__(self, node: Node, values: Values, opsets: Mapping[str, int]) -> None:
        lists = [name for name in node.reads if isinstance(values[name].data, list)]
        self.node, self.lists = node, lists
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


def _is_discrete(result: Any) -> bool:
    return any(not is_float(array.dtype) for array in parts(result))


def _moved(result: Any, ulps: float, scale: float, rng: np.random.Generator) -> Any:
    moved = [with_noise(array, ulps, scale, rng) for array in parts(result)]
    return moved if isinstance(result, list) else moved[0]


def _growth(arrays: list[np.ndarray]) -> float:
    """How much larger what is added up may be than in the examples for which scales were written.

    Their elements are at most 4.
    """
    growth = 1.0
    for array in arrays:
        if is_float(array.dtype):
            growth *= max(largest(array) / 4, 1)
    return growth
