"""Tensor parallelism: matrices are divided by columns and by rows in turn along the graph.

After a product with a matrix divided by columns, each device has some features of the result, and
element-wise operators leave them there. The next matrix is divided by rows, and one sum over the
devices makes the result whole again. Everywhere else XLA moves the data: a layout changes the cost
of a call, never its result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sardonyx.graph.ir import AttributeReference, Function, Graph, Node, Source, ValueInfo
from sardonyx.sharding.layout import Choice, Layout

# Operators whose results do not depend on their inputs' features.
_FORGETFUL = frozenset({"Shape", "Size"})
_MOVED = frozenset({"Identity", "Cast", "CastLike", "DequantizeLinear", "Transpose"})
# Caches of keys and values are (..., heads, positions, size), of one batch or of a pair of them.
_RANKS_OF_CACHES = (4, 5)
_HEADS, _POSITIONS = -3, -2


@dataclass(frozen=True)
class _Value:
    """Facts about a value: whether its features are divided, or which weight's axes it has.

    An input of the graph that is read as it is may be a cache.
    """

    divided: bool = False
    weight: str | None = None
    axes: tuple[int, ...] = ()
    cache: ValueInfo | None = None


@dataclass(frozen=True)
class Divided:
    """The layouts of weights, of caches among the inputs, and of nodes' results."""

    weights: dict[str, Choice]
    caches: dict[str, Choice]
    results: dict[Node, dict[str, Layout]]


def divided_matrices(
    source: Source, weights: Mapping[str, np.ndarray[Any, Any]], axis: str, size: int
) -> Divided:
    """Divide matrices, and what meets their products, along an axis of the mesh.

    The mesh's `axis` has `size` devices.
    """
    follower = _Follower(source, axis, size)
    values = {
        name: _Value(weight=name, axes=tuple(range(array.ndim))) for name, array in weights.items()
    }
    inputs = source.graph.required_inputs
    values |= {info.name: _Value(cache=info) for info in inputs if _may_be_cache(info)}
    follower.walk(source.graph, values)
    agreed = {n: c for n, c in follower.added.items() if n not in follower.whole}
    return Divided({**agreed, **follower.chosen}, follower.caches, follower.results)


class _Follower:
    def __init__(self, source: Source, axis: str, size: int) -> None:
        self.source = source
        self.axis = axis
        self.size = size
        self.chosen: dict[str, Choice] = {}
        # Weights added to divided features, and weights used where features are whole. One weight
        # may be in both: exporters let several nodes share equal weights.
        self.added: dict[str, Choice] = {}
        self.whole: set[str] = set()
        self.caches: dict[str, Choice] = {}
        self.results: dict[Node, dict[str, Layout]] = {}

    def walk(self, graph: Graph | Function, values: dict[str, _Value]) -> None:
        for node in graph.nodes:
            inputs = [values.get(name, _Value()) for name in node.inputs]
            results = self.node(node, inputs)
            values.update(zip(node.outputs, results, strict=False))

    def node(self, node: Node, inputs: Sequence[_Value]) -> Sequence[_Value]:
        called = self.source.functions.get((node.domain, node.op_type, node.overload))
        if called is not None:
            return self.call(called, inputs)
        kind = node.op_type
        if any(isinstance(value, AttributeReference) for value in node.attributes.values()):
            kind = ""  # The caller of the function decides what the node does.
        if kind in _MOVED:
            return [_moved(node, inputs[0])]
        if kind in ("MatMul", "Gemm") and inputs[1].weight:
            return [self.product(node, *inputs)]
        if kind == "Gather" and inputs[0].weight:
            return [self.embedding(node, inputs[0])]
        divided = kind not in _FORGETFUL and any(value.divided for value in inputs)
        self.biases(inputs, node, divided=divided and kind == "Add")
        if divided:
            for value in inputs:
                self.cache(value.cache, node)
        return [_Value(divided)] * len(node.outputs)

    def call(self, function: Function, inputs: Sequence[_Value]) -> Sequence[_Value]:
        values = dict(zip(function.inputs, inputs, strict=False))
        self.walk(function, values)
        return [values.get(name, _Value()) for name in function.outputs]

    def product(self, node: Node, x: _Value, matrix: _Value, *others: _Value) -> _Value:
        """Divide the matrix by rows if the features of `x` are divided, else by columns."""
        if len(matrix.axes) < 2:
            return _Value(x.divided)
        rows, columns = matrix.axes[-2:]
        if node.op_type == "Gemm" and node.attributes.get("transB", 0):
            rows, columns = columns, rows
        name = matrix.weight or ""
        self.divide(name, {"rows": rows} if x.divided else {"columns": columns}, node)
        by_columns = self.chosen[name].layout == Layout.along(columns, self.axis)
        self.biases(others, node, divided=by_columns)
        return _Value(by_columns)

    def embedding(self, node: Node, table: _Value) -> _Value:
        if len(table.axes) == 2 and node.attributes.get("axis", 0) == 0:
            entries, features = table.axes
            self.divide(table.weight or "", {"entries": entries, "features": features}, node)
            # The next nodes add to the embeddings and normalise them: their features stay whole.
            self.results[node] = {node.first_output: Layout(((-1, ()),), open=True)}
        return _Value()

    def biases(self, values: Sequence[_Value], node: Node, *, divided: bool) -> None:
        """Divide weights that are added to divided features in the same way."""
        for value in values:
            name = value.weight
            if name is None or name in self.chosen:
                continue
            if divided and value.axes and self.shape(name)[value.axes[-1]] > 1:
                self.added[name] = self.choice(name, {"features": value.axes[-1]}, node)
            else:
                self.whole.add(name)

    def cache(self, info: ValueInfo | None, node: Node) -> None:
        """Divide an input that meets divided heads by its heads, or else by its positions."""
        if info is None or info.name in self.caches:
            return
        shape = info.shape or ()
        for label, axis in (("heads", _HEADS), ("positions", _POSITIONS)):
            size = shape[axis]
            if isinstance(size, int) and size > 1 and size % self.size == 0:
                layout = Layout.along(axis, self.axis)
                self.caches[info.name] = Choice(layout, f"by {label}, for {node.label}")
                return
        heads, positions = shape[_HEADS], shape[_POSITIONS]
        if isinstance(heads, int) and heads > 1:
            sizes = f"{heads} heads and {positions or 'unknown'} positions"
            self.caches[info.name] = Choice(Layout(), f"{sizes} are no multiple of {self.size}")

    def divide(self, name: str, axes: Mapping[str, int], node: Node) -> None:
        if name not in self.chosen:
            self.chosen[name] = self.choice(name, axes, node)

    def choice(self, name: str, axes: Mapping[str, int], node: Node) -> Choice:
        """Divide the first of these axes of a weight whose size is a multiple of the devices."""
        sizes = {label: self.shape(name)[axis] for label, axis in axes.items()}
        divided = next((n for n, size in sizes.items() if size and size % self.size == 0), None)
        if divided is not None:
            layout = Layout.along(axes[divided], self.axis)
            return Choice(layout, f"by {divided}, for {node.label}")
        counts = " and ".join(f"{size} {label}" for label, size in sizes.items())
        return Choice(Layout(), f"{counts} are no multiple of {self.size}")

    def shape(self, name: str) -> tuple[int, ...]:
        shape: tuple[int, ...] = np.shape(self.source.graph.initializers[name])
        return shape


def _may_be_cache(info: ValueInfo) -> bool:
    return len(info.shape or ()) in _RANKS_OF_CACHES


def _moved(node: Node, value: _Value) -> _Value:
    """Return the facts about a cast or transposed value, with a weight's axes permuted."""
    if node.op_type != "Transpose" or not value.weight:
        return value
    order = node.attributes.get("perm") or range(len(value.axes))[::-1]
    if sorted(order) != list(range(len(value.axes))):
        return _Value()
    return replace(value, axes=tuple(value.axes[axis] for axis in order))
