"""The angles of rotary embeddings: sines of positions, which a narrow type would round away.

bfloat16 has no odd position above 256. So what a sine or cosine is computed from keeps its type, if
it is integers, single numbers and vectors alone; so do the params that serve nothing else.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from sardonyx.backends.dtypes import isdtype
from sardonyx.graph.ir import Node, Source

_PERIODIC = ("Sin", "Cos")


class Phases(NamedTuple):
    """The nodes that compute phases and their sines, and the initializers only they read."""

    nodes: frozenset[Node]
    initializers: frozenset[str]


def phases_of(source: Source) -> Phases:
    """Return the phases of a model's main graph."""
    graph = source.graph
    producers = {name: node for node in graph.nodes for name in node.outputs if name}
    found: set[Node] = set()
    for node in graph.nodes:
        if node.op_type in _PERIODIC and not node.domain and node not in found:
            found |= _behind(node, source, producers) or set()
    readers = defaultdict(set)
    for node in graph.nodes:
        for name in (*node.inputs, *(n for g in node.subgraphs for n in g.captures)):
            readers[name].add(node)
    outputs = {info.name for info in graph.outputs}
    own = {n for n in graph.initializers if readers[n] and readers[n] <= found} - outputs
    return Phases(frozenset(found), frozenset(own))


def _behind(last: Node, source: Source, producers: Mapping[str, Node]) -> set[Node] | None:
    """Return a node and all that it is computed from; None if data or tables are among these."""
    graph = source.graph
    inputs = {info.name: info for info in graph.required_inputs}
    found, pending = {last}, [last]
    while pending:
        node = pending.pop()
        if any(True for _ in node.subgraphs) or source.function_of(node) is not None:
            return None
        if any(_is_table(value) for value in node.attributes.values()):
            return None
        for name in filter(None, node.inputs):
            if name in producers:
                if producers[name] not in found:
                    found.add(producers[name])
                    pending.append(producers[name])
            elif name in inputs:
                dtype = inputs[name].dtype
                if dtype is None or not isdtype(dtype, ("integral", "bool")):
                    return None
            elif _is_table(graph.initializers.get(name)):
                return None
    return found


def _is_table(value: Any) -> bool:
    """Whether it is an array of floats with more than one axis."""
    if not isinstance(value, np.ndarray) or isdtype(value.dtype, ("integral", "bool")):
        return False
    return len([size for size in value.shape if size > 1]) > 1
