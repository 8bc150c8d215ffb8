"""Computes what follows a tree on the values of its leaves, once for all calls.

The converter of scikit-learn writes an isolation forest as one operator per tree, with 25 nodes
behind each, and adds up the results. After folding it is a single forest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from sardonyx.graph.ir import Graph, Node, Source, names_read
from sardonyx.graph.values.kinds import digest
from sardonyx.ops.definition import Op
from sardonyx.ops.ml.leaf_values import (
    Tree,
    can_be_votes,
    chosen_columns,
    is_elementwise,
    is_sum,
    only_tree,
    regressor_of,
)

Array = np.ndarray[Any, Any]

# Passes over a graph until each tree is read once; afterwards it stays as it is.
MOST_PASSES = 4

# For each graph the digests of the constants that folding read, and the graph after folding; None
# if that is the same, since a reference from here would keep it alive.
_folded: WeakKeyDictionary[Graph, tuple[Mapping[str, Any], Graph | None]] = WeakKeyDictionary()


class Part(NamedTuple):
    """A tree, the node that it comes from, and a value for each leaf, as a column."""

    node: Node
    tree: Tree
    values: Array


class Sum(NamedTuple):
    """A value of the graph that is a sum of trees, which all read one matrix."""

    matrix: str
    parts: tuple[Part, ...]


class Reader(Protocol):
    """Reads constants of the graph, and runs nodes on values that are known."""

    def constant(self, name: str) -> Array | None:
        """Return the value of a constant; None for all other names."""

    def evaluate(self, node: Node, values: Mapping[str, Array]) -> Array | None:
        """Return the result of a node for these inputs; None if it fails."""


def with_folded_trees(source: Source, reader: Reader) -> Graph:
    """Return the graph in which nodes on results of trees are folded into the trees' leaves.

    Results differ in rounding, as NumPy computes them and trees are added up in another order.
    """
    graph = source.graph
    remembered = _folded.get(graph)
    if remembered is not None:
        constants, folded = remembered
        values = {name: reader.constant(name) for name in constants}
        if all(v is not None and digest(v) == constants[name] for name, v in values.items()):
            return folded or graph
    folding = _Folding(source, reader)
    folded = folding.graph()
    read = {name: digest(value) for name, value in folding.constants.items()}
    _folded[graph] = read, None if folded is graph else folded
    return folded


class _Folding:
    def __init__(self, source: Source, reader: Reader) -> None:
        self.source = source
        self.reader = reader
        # The constants that the result depends on.
        self.constants: dict[str, Array] = {}
        self.sums: dict[str, Sum] = {}
        # Matrices of selected columns, in place of which trees can read all columns.
        self.passed_by: set[str] = set()
        self.makers = {name: node for node in source.graph.nodes for name in node.outputs}
        self.widths = {
            info.name: info.shape[1]
            for info in source.graph.inputs
            if info.shape is not None and len(info.shape) == 2 and isinstance(info.shape[1], int)
        }

    def graph(self) -> Graph:
        graph = self.source.graph
        if not any(only_tree(self._op(node), node.attributes) for node in graph.nodes):
            return graph
        if any(self._runs_subgraphs(node) for node in graph.nodes):
            return graph  # Such nodes can refer to any value by name.
        for node in graph.nodes:
            found = self._sum_of(node)
            if found is not None:
                self.sums[node.outputs[0]] = found
        kept_apart: set[Node] = set()
        for _ in range(MOST_PASSES):
            nodes, uses = self._rewritten(kept_apart)
            several = {
                part.node
                for value in self.sums.values()
                for part in value.parts
                if uses[part.node] != 1 and part.node not in kept_apart
            }
            if not several:
                return graph if nodes == graph.nodes else replace(graph, nodes=nodes)
            kept_apart |= several
        return graph

    def _op(self, node: Node) -> Op[Any] | None:
        is_function = self.source.function_of(node) is not None
        return None if is_function else self.source.op_of(node)

    def _runs_subgraphs(self, node: Node) -> bool:
        op = self._op(node)
        return op is not None and op.definitions[-1][1].runs_subgraphs

    # -- forwards: which values are sums of trees -------------------------------------------------

    def _sum_of(self, node: Node) -> Sum | None:
        if len(node.outputs) != 1:
            return None
        op = self._op(node)
        one = only_tree(op, node.attributes)
        if one is not None:
            return self._tree(node, *one)
        sums = [self.sums[name] for name in node.inputs if name in self.sums]
        if not sums:
            return None
        trees = [part.node for value in sums for part in value.parts]
        if len(set(trees)) == 1:
            return self._elementwise(node, op, sums[0])
        are_all = len(sums) == len(node.inputs) > 1 and len(set(trees)) == len(trees)
        return self._added(sums) if are_all and is_sum(op) else None

    def _tree(self, node: Node, tree: Tree, values: Array) -> Sum:
        matrix = node.inputs[0]
        maker = self.makers.get(matrix)
        if maker is not None and len(maker.inputs) == 2 and maker.inputs[0] in self.widths:
            name, index = maker.inputs
            columns = chosen_columns(
                self._op(maker), maker.attributes, self._constant(index), self.widths[name]
            )
            direct = None if columns is None else tree.reading(columns)
            if direct is not None:
                self.passed_by.add(matrix)
                matrix, tree = name, direct
        return Sum(matrix, (Part(node, tree, values),))

    def _elementwise(self, node: Node, op: Op[Any] | None, value: Sum) -> Sum | None:
        constants = {n: self._constant(n) for n in node.inputs if n not in self.sums}
        present = [value for value in constants.values() if value is not None]
        if len(present) < len(constants) or not is_elementwise(op, present):
            return None
        operands = {n: c for n, c in constants.items() if c is not None}
        operands |= {n: self.sums[n].parts[0].values for n in node.inputs if n in self.sums}
        result = self.reader.evaluate(node, operands)
        (part,) = value.parts
        if result is None or result.shape != part.values.shape:
            return None
        return value._replace(parts=(part._replace(values=result),))

    def _added(self, sums: Sequence[Sum]) -> Sum | None:
        parts = tuple(part for value in sums for part in value.parts)
        if len({value.matrix for value in sums}) > 1:
            return None
        return Sum(sums[0].matrix, parts) if all(can_be_votes(p.values) for p in parts) else None

    def _constant(self, name: str) -> Array | None:
        value = self.reader.constant(name) if name else None
        if value is not None:
            self.constants[name] = value
        return value

    # -- backwards: which of these values are needed ----------------------------------------------

    def _rewritten(self, kept_apart: set[Node]) -> tuple[tuple[Node, ...], Counter[Node]]:
        """Return the nodes after folding, and how many of them stand for each tree."""
        needed = {output.name for output in self.source.graph.outputs}
        uses: Counter[Node] = Counter()
        nodes: list[Node] = []
        for node in reversed(self.source.graph.nodes):
            output = node.first_output
            value = self.sums.get(output)
            if value is not None and kept_apart.intersection(part.node for part in value.parts):
                value = None
            if output not in needed and (value is not None or output in self.passed_by):
                continue
            if value is not None and all(can_be_votes(part.values) for part in value.parts):
                uses.update(part.node for part in value.parts)
                nodes.append(self._as_regressor(node, value))
            else:
                nodes.append(node)
            needed.update(names_read(nodes[-1]))
        return tuple(reversed(nodes)), uses

    def _as_regressor(self, node: Node, value: Sum) -> Node:
        first = value.parts[0].node
        if node is first:
            return node
        attributes = regressor_of([(part.tree, part.values) for part in value.parts])
        return replace(
            node,
            op_type=first.op_type,
            domain=first.domain,
            overload=first.overload,
            inputs=(value.matrix,),
            attributes=attributes,
        )
