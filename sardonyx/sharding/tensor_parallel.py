"""Tensor parallelism: matrices divided by columns and by rows in turn, following the graph.

After a product with a matrix divided by columns each device has some features of the result, and
what is element-wise leaves them there; the next matrix is divided by rows, and one sum over the
devices makes the result whole again. Wherever that is not so XLA moves the data, so that a layout
decides what a call costs and never what it computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from sardonyx.graph.ir import AttributeReference, Function, Graph, Node, Source
from sardonyx.graph.values.params import is_static
from sardonyx.sharding.layout import Layout

# Results that say nothing of their arguments' features.
_FORGETFUL = frozenset({"Shape", "Size"})
_MOVED = frozenset({"Identity", "Cast", "CastLike", "DequantizeLinear", "Transpose"})


@dataclass(frozen=True)
class Choice:
    """A weight's layout, and why."""

    layout: Layout
    reason: str


@dataclass(frozen=True)
class _Value:
    """What is known of a value: whether its features are divided, or which weight's axes it has."""

    divided: bool = False
    weight: str | None = None
    axes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Choices:
    """The layouts of weights, and of the values that nodes make."""

    weights: Mapping[str, Choice]
    made: Mapping[Node, Mapping[str, Layout]]


def choices(source: Source, axis: str, size: int) -> Choices:
    """What is divided over the mesh's `axis`, which has `size` devices."""
    follower = _Follower(source, axis, size)
    values = {
        name: _Value(weight=name, axes=tuple(range(array.ndim)))
        for name, array in source.graph.initializers.items()
        if not is_static(array)
    }
    follower.walk(source.graph, values)
    agreed = {n: c for n, c in follower.added.items() if n not in follower.whole}
    return Choices({**agreed, **follower.chosen}, follower.made)


class _Follower:
    def __init__(self, source: Source, axis: str, size: int) -> None:
        self.source = source
        self.axis = axis
        self.size = size
        self.chosen: dict[str, Choice] = {}
        # What is added to divided features; and what is used where features are whole, as exporters
        # let several nodes share weights that are equal.
        self.added: dict[str, Choice] = {}
        self.whole: set[str] = set()
        self.made: dict[Node, dict[str, Layout]] = {}

    def walk(self, graph: Graph | Function, values: dict[str, _Value]) -> None:
        for node in graph.nodes:
            inputs = [values.get(name, _Value()) for name in node.inputs]
            made = self.node(node, inputs)
            values.update(zip(node.outputs, made, strict=False))

    def node(self, node: Node, inputs: Sequence[_Value]) -> Sequence[_Value]:
        called = self.source.functions.get((node.domain, node.op_type, node.overload))
        if called is not None:
            return self.call(called, inputs)
        kind = node.op_type
        if any(isinstance(value, AttributeReference) for value in node.attributes.values()):
            kind = ""  # What it does is up to the caller of a function.
        if kind in _MOVED:
            return [_moved(node, inputs[0])]
        if kind in ("MatMul", "Gemm") and inputs[1].weight:
            return [self.product(node, *inputs)]
        if kind == "Gather" and inputs[0].weight:
            return [self.embedding(node, inputs[0])]
        divided = kind not in _FORGETFUL and any(value.divided for value in inputs)
        self.biases(inputs, node, divided=divided and kind == "Add")
        return [_Value(divided)] * len(node.outputs)

    def call(self, function: Function, inputs: Sequence[_Value]) -> Sequence[_Value]:
        values = dict(zip(function.inputs, inputs, strict=False))
        self.walk(function, values)
        return [values.get(name, _Value()) for name in function.outputs]

    def product(self, node: Node, x: _Value, matrix: _Value, *others: _Value) -> _Value:
        """By rows where the features of `x` are divided, and otherwise by columns."""
        if len(matrix.axes) < 2:
            return _Value(x.divided)
        rows, columns = matrix.axes[-2:]
        if node.op_type == "Gemm" and node.attributes.get("transB", 0):
            rows, columns = columns, rows
        name = matrix.weight or ""
        if x.divided:
            self.divide(name, {"rows": rows}, node)
        else:
            self.divide(name, {"columns": columns}, node)
        by_columns = self.chosen[name].layout == Layout.along(columns, self.axis)
        self.biases(others, node, divided=by_columns)
        return _Value(by_columns)

    def embedding(self, node: Node, table: _Value) -> _Value:
        if len(table.axes) == 2 and node.attributes.get("axis", 0) == 0:
            entries, features = table.axes
            self.divide(table.weight or "", {"entries": entries, "features": features}, node)
            # What is gathered is added to and normalised as a whole.
            self.made[node] = {node.made: Layout(((-1, ()),), open=True)}
        return _Value()

    def biases(self, values: Sequence[_Value], node: Node, *, divided: bool) -> None:
        """What is added to divided features is divided as they are."""
        for value in values:
            name = value.weight
            if name is None or name in self.chosen:
                continue
            if divided and value.axes and self.shape(name)[value.axes[-1]] > 1:
                self.added[name] = self.choice(name, {"features": value.axes[-1]}, node)
            else:
                self.whole.add(name)

    def divide(self, name: str, axes: Mapping[str, int], node: Node) -> None:
        if name not in self.chosen:
            self.chosen[name] = self.choice(name, axes, node)

    def choice(self, name: str, axes: Mapping[str, int], node: Node) -> Choice:
        """The first of these axes of a weight that is a multiple of the size is divided."""
        sizes = {way: self.shape(name)[axis] for way, axis in axes.items()}
        way = next((way for way, size in sizes.items() if size and size % self.size == 0), None)
        if way is not None:
            layout = Layout.along(axes[way], self.axis)
            return Choice(layout, f"by {way}, for {node.label}")
        counts = " and ".join(f"{size} {way}" for way, size in sizes.items())
        return Choice(Layout(), f"{counts} are no multiple of {self.size}")

    def shape(self, name: str) -> tuple[int, ...]:
        shape: tuple[int, ...] = np.shape(self.source.graph.initializers[name])
        return shape


def _moved(node: Node, value: _Value) -> _Value:
    """A transpose or a cast of a value: which axes of the weight it has, where it is one."""
    if node.op_type != "Transpose" or not value.weight:
        return value
    order = node.attributes.get("perm") or range(len(value.axes))[::-1]
    if sorted(order) != list(range(len(value.axes))):
        return _Value()
    return replace(value, axes=tuple(value.axes[axis] for axis in order))
