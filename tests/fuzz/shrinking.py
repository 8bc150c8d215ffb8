"""Makes a graph on which runtimes differ as small as it can be while they still do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from tests.fuzz.comparing import with_other_inputs
from tests.fuzz.evaluation import evaluate
from tests.fuzz.graph import INITIALIZER, INPUT, Graph, Leaf, Node
from tests.property.strategies import is_packed

Fails = Callable[[Graph], bool]
Pass = Callable[[Graph], Iterator[Graph]]


def shrunk(graph: Graph, fails: Fails, seconds: float = 60) -> Graph:
    """The smallest graph found in that time on which `fails` still holds."""
    end = time.monotonic() + seconds
    other = with_other_inputs(graph)
    if _still(other, fails):
        graph = other
    passes: tuple[Pass, ...] = (
        _single_outputs,
        _cuts,
        _bypasses,
        _bare_bodies,
        _inlined,
        _fewer_attributes,
        _plain,
        _smaller,
    )
    progress = True
    while progress and time.monotonic() < end:
        progress = False
        for candidates in passes:
            found = True
            while found and time.monotonic() < end:
                found = False
                for candidate in candidates(graph):
                    if time.monotonic() > end:
                        break
                    if _still(candidate, fails):
                        graph, found, progress = candidate, True, True
                        break
    return graph


def _still(candidate: Graph, fails: Fails) -> bool:
    try:
        return bool(candidate.nodes) and fails(candidate)
    except Exception:
        return False


def _single_outputs(graph: Graph) -> Iterator[Graph]:
    if len(graph.outputs) > 1:
        for output in graph.outputs:
            yield replace(graph, outputs=(output,)).pruned()


def _cuts(graph: Graph) -> Iterator[Graph]:
    """A node's results become inputs: half of the nodes at once, then one by one."""
    values = evaluate(graph, copies=1)
    count = len(graph.nodes)
    groups = [graph.nodes[: count // 2], graph.nodes[: count // 4]] if count > 3 else []
    for group in (*groups, *([node] for node in graph.nodes)):
        made = [name for node in group for name in node.outputs]
        if any(isinstance(values[name].data, list) for name in made):
            continue
        leaves = tuple(Leaf(name, values[name].data, _kind(values[name].data)) for name in made)
        kept = tuple(node for node in graph.nodes if node not in group)
        for kind in (None, INITIALIZER):
            again = leaves if kind is None else tuple(replace(leaf, kind=kind) for leaf in leaves)
            outputs = tuple(name for name in graph.outputs if name not in made)
            if outputs:
                cut = replace(graph, leaves=(*graph.leaves, *again), nodes=kept, outputs=outputs)
                yield cut.pruned()
        if len(group) == 1 and len(graph.nodes) > 1:
            yield replace(graph, outputs=group[0].outputs).pruned()


def _bypasses(graph: Graph) -> Iterator[Graph]:
    """A node's result becomes one of its inputs, where that has the same dtype and shape."""
    values = evaluate(graph, copies=1)
    for node in graph.nodes:
        result = values[node.outputs[0]].data
        for name in node.reads:
            held = values[name].data
            if isinstance(result, list) or isinstance(held, list):
                continue
            if (result.dtype, result.shape) == (held.dtype, held.shape):
                yield _renamed(graph, node, name)


def _renamed(graph: Graph, node: Node, name: str) -> Graph:
    def swapped(other: Node) -> Node:
        inputs = tuple(name if one == node.outputs[0] else one for one in other.inputs)
        return replace(other, inputs=inputs)

    kept = tuple(swapped(other) for other in graph.nodes if other is not node)
    return replace(graph, nodes=kept).pruned()


def _bare_bodies(graph: Graph) -> Iterator[Graph]:
    """Subgraphs without what their results do not depend on."""
    for place, node in enumerate(graph.nodes):
        for name, body in node.attributes.items():
            if isinstance(body, Graph) and len(body.pruned().nodes) < len(body.nodes):
                nodes = list(graph.nodes)
                attributes = {**node.attributes, name: body.pruned()}
                nodes[place] = replace(node, attributes=attributes)
                yield replace(graph, nodes=tuple(nodes)).pruned()


def _inlined(graph: Graph) -> Iterator[Graph]:
    """Either branch of an If in its place."""
    for place, node in enumerate(graph.nodes):
        if node.op != "If":
            continue
        for body in node.attributes.values():
            if not isinstance(body, Graph):
                continue
            pairs = zip(body.outputs, node.outputs, strict=True)
            ends = [Node("Identity", (one,), (other,)) for one, other in pairs]
            nodes = (*graph.nodes[:place], *body.nodes, *ends, *graph.nodes[place + 1 :])
            yield replace(graph, nodes=nodes, leaves=(*graph.leaves, *body.leaves)).pruned()


def _fewer_attributes(graph: Graph) -> Iterator[Graph]:
    for place, node in enumerate(graph.nodes):
        for name, value in node.attributes.items():
            if isinstance(value, Graph):
                continue
            fewer = {n: v for n, v in node.attributes.items() if n != name}
            nodes = list(graph.nodes)
            nodes[place] = replace(node, attributes=fewer)
            yield replace(graph, nodes=tuple(nodes))


def _plain(graph: Graph) -> Iterator[Graph]:
    """Named sizes, inputs in place of weights, and fewer kinds of elements."""
    if graph.symbolic:
        yield replace(graph, symbolic=False)
    for place, leaf in enumerate(graph.leaves):
        if leaf.kind != INPUT and not is_packed(leaf.array.dtype):
            yield _with_leaf(graph, place, replace(leaf, kind=INPUT))
        if leaf.array.size and leaf.array.dtype.kind != "O":
            for number in (0, 1):
                plain = np.full_like(leaf.array, number)
                if plain.tobytes() != leaf.array.tobytes() and np.any(leaf.array != plain):
                    yield _with_leaf(graph, place, replace(leaf, array=plain))


def _smaller(graph: Graph) -> Iterator[Graph]:
    """All axes of one size cut to a smaller one."""
    sizes = sorted({n for leaf in graph.leaves for n in leaf.array.shape if n > 1}, reverse=True)
    for size in sizes:
        for fewer in {1, size // 2, size - 1}:
            leaves = [
                replace(
                    leaf,
                    array=leaf.array[
                        tuple(slice(fewer if n == size else n) for n in leaf.array.shape)
                    ],
                )
                for leaf in graph.leaves
            ]
            yield replace(graph, leaves=tuple(leaves))
    for place, leaf in enumerate(graph.leaves):
        for axis, size in enumerate(leaf.array.shape):
            if size > 1:
                array = leaf.array[(slice(None),) * axis + (slice(1),)]
                yield _with_leaf(graph, place, replace(leaf, array=array))


def _with_leaf(graph: Graph, place: int, leaf: Leaf) -> Graph:
    leaves = list(graph.leaves)
    leaves[place] = leaf
    return replace(graph, leaves=tuple(leaves))


def _kind(array: np.ndarray) -> str:
    return INITIALIZER if is_packed(array.dtype) else INPUT
