"""A random graph as plain data, and as a model that any runtime can load."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from sardonyx.graph.standard.types import DType, number_of

Array = np.ndarray
INPUT, INITIALIZER, CONSTANT = "input", "initializer", "constant"


@dataclass(frozen=True, eq=False)
class Leaf:
    """An array that a graph starts from, and how the model holds it."""

    name: str
    array: Array
    kind: str = INPUT


@dataclass(frozen=True, eq=False)
class Node:
    """One operator. An attribute may be a `Graph`, which reads values from outside by name."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    # How far results may be apart; see tests/property/case.py.
    ulps: float = 4
    scale: float = 0

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """All values that it takes, those that its subgraphs read from outside included."""
        bodies = [value for value in self.attributes.values() if isinstance(value, Graph)]
        captured = [name for body in bodies for name in body.captured]
        return tuple(dict.fromkeys(name for name in (*self.inputs, *captured) if name))

    @cached_property
    def proto(self) -> onnx.NodeProto:
        attributes = {
            name: value.body(name) if isinstance(value, Graph) else value
            for name, value in self.attributes.items()
        }
        return helper.make_node(
            self.op, self.inputs, self.outputs, domain=self.domain, **attributes
        )


@dataclass(frozen=True)
class Typed:
    """The dtype of what enters or leaves a subgraph, and its shape where the model says it."""

    dtype: DType
    shape: tuple[int, ...] | None = None

    def named(self, name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, number_of(self.dtype), self.shape)


@dataclass(frozen=True, eq=False)
class Graph:
    """Leaves, nodes in order, and the names of the results."""

    opsets: Mapping[str, int]
    leaves: tuple[Leaf, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    # Whether the sizes of inputs are symbols in the model.
    symbolic: bool = False
    # Of a subgraph: the types of what it is called with, by name, and of its results.
    formals: Mapping[str, Typed] = field(default_factory=dict)
    results: tuple[Typed, ...] = ()

    @cached_property
    def captured(self) -> tuple[str, ...]:
        """What a subgraph reads and does not define."""
        own = {leaf.name for leaf in self.leaves} | set(self.formals)
        own |= {name for node in self.nodes for name in node.outputs}
        read = [name for node in self.nodes for name in node.reads]
        return tuple(dict.fromkeys(n for n in (*read, *self.outputs) if n not in own))

    @cached_property
    def feeds(self) -> dict[str, Array]:
        return {leaf.name: leaf.array for leaf in self.leaves if leaf.kind == INPUT}

    @cached_property
    def model(self) -> onnx.ModelProto:
        typed = [self._typed(leaf) for leaf in self.leaves if leaf.kind == INPUT]
        results = [onnx.ValueInfoProto(name=name) for name in self.outputs]
        graph = helper.make_graph(self._nodes(), "fuzz", typed, results, self._initializers())
        imports = [helper.make_opsetid(*pair) for pair in self.opsets.items()]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)

    def body(self, name: str) -> onnx.GraphProto:
        formals = [typed.named(formal) for formal, typed in self.formals.items()]
        pairs = zip(self.outputs, self.results, strict=True)
        results = [typed.named(output) for output, typed in pairs]
        return helper.make_graph(self._nodes(), name, formals, results, self._initializers())

    def pruned(self) -> Graph:
        """The graph without what no result depends on."""
        needed, kept = set(self.outputs), []
        for node in reversed(self.nodes):
            if needed.intersection(node.outputs):
                kept.append(node)
                needed.update(node.reads)
        leaves = tuple(leaf for leaf in self.leaves if leaf.name in needed)
        return replace(self, nodes=tuple(reversed(kept)), leaves=leaves)

    def walk(self) -> Iterator[Node]:
        """All nodes, those of subgraphs included."""
        for node in self.nodes:
            yield node
            for value in node.attributes.values():
                if isinstance(value, Graph):
                    yield from value.walk()

    def _nodes(self) -> list[onnx.NodeProto]:
        constants = [
            helper.make_node(
                "Constant", [], [leaf.name], value=numpy_helper.from_array(leaf.array, leaf.name)
            )
            for leaf in self.leaves
            if leaf.kind == CONSTANT
        ]
        return [*constants, *(node.proto for node in self.nodes)]

    def _initializers(self) -> list[onnx.TensorProto]:
        held = [leaf for leaf in self.leaves if leaf.kind == INITIALIZER]
        return [numpy_helper.from_array(leaf.array, leaf.name) for leaf in held]

    def _typed(self, leaf: Leaf) -> onnx.ValueInfoProto:
        sizes: list[Any] = list(leaf.array.shape)
        if self.symbolic:
            sizes = [f"n{size}" for size in sizes]
        return helper.make_tensor_value_info(leaf.name, number_of(leaf.array.dtype), sizes)
