"""A loaded model as plain, immutable data without protobufs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from sardonyx.deviations import Departure
from sardonyx.limits import DEFAULT, Limits
from sardonyx.ops import OPS
from sardonyx.ops.definition import Op
from sardonyx.printable import LONGEST_NAME, printable

# Maximum characters of a declared value in a message or a listing.
_LONGEST = 600

Dimension = int | str | None
FunctionKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class AttributeReference:
    """A reference, inside a function, to the value of one of the function's attributes."""

    name: str


# -- device annotations (ONNX's IR 11) -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Configuration:
    """A device configuration: a number of devices, which annotations refer to by index."""

    name: str
    devices: int
    device_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shards:
    """One dimension, of size `blocks` (None if not declared), split into `count` shards."""

    blocks: int | None
    count: int


@dataclass(frozen=True, slots=True)
class DividedAxis:
    """The sharding of one axis; several parts describe an axis that was fused from several."""

    axis: int
    parts: tuple[Shards, ...]

    @property
    def shards(self) -> int:
        """The number of shards of the axis."""
        return math.prod(part.count for part in self.parts)


@dataclass(frozen=True, slots=True)
class Division:
    """The sharding of one tensor of a node; the last sharded axis varies fastest.

    Each shard is on all devices of its group.
    """

    tensor: str
    groups: tuple[tuple[int, ...], ...]
    axes: tuple[DividedAxis, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """The device annotations of a node under one configuration."""

    configuration: str
    divisions: tuple[Division, ...]
    stage: int | None = None


# -- the graph -------------------------------------------------------------------------------------


# Nothing changes one; it is not frozen, because frozen ones take six times as long to create.
@dataclass(eq=False, slots=True)
class Node:
    """One call of an operator or of a function of the model."""

    op_type: str
    domain: str
    overload: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    placements: tuple[Placement, ...] = ()
    # The graphs in the attributes. Computed once, since every pass over the nodes asks for them.
    subgraphs: tuple[Graph, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.subgraphs = tuple(_graphs_in(self.attributes))

    @property
    def operator(self) -> str:
        """The operator's name, with its domain if that is not ONNX's own."""
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    @property
    def function_key(self) -> FunctionKey:
        """The key of the model's function that the node calls, if it calls one."""
        return self.domain, self.op_type, self.overload

    @property
    def first_output(self) -> str:
        """The first output with a name, which identifies the node in its graph."""
        return next((name for name in self.outputs if name), "")

    @property
    def label(self) -> str:
        """The node in the middle of a message: by name, or by its first output."""
        return f"node '{self.name}'" if self.name else f"the node with output '{self.first_output}'"

    def title(self, opset: int | None = None) -> str:
        """Return the node, its operator and opset as the beginning of a message."""
        version = "" if opset is None else f", opset {opset}"
        return f"{self.label[0].upper()}{self.label[1:]} ({self.operator}{version})"


def _graphs_in(attributes: Mapping[str, Any]) -> Iterator[Graph]:
    for value in attributes.values():
        if isinstance(value, Graph):
            yield value
        elif isinstance(value, tuple) and value and isinstance(value[0], Graph):
            yield from value


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """A declared input or output: its name, ONNX type, and shape with names for free dimensions."""

    name: str
    type: str | None
    dtype: np.dtype[Any] | None
    shape: tuple[Dimension, ...] | None

    @property
    def container(self) -> str:
        """The type around the arrays: "optional", "seq" or "map"; empty for an array."""
        kind = (self.type or "").partition("(")[0]
        return kind if kind in ("optional", "seq", "map") else ""

    def __str__(self) -> str:
        if self.type is None:
            return printable(self.name, LONGEST_NAME)
        dimensions = "" if self.shape is None else str(list(self.shape)).replace("'", "")
        return printable(f"{printable(self.name, LONGEST_NAME)}: {self.type}{dimensions}", _LONGEST)

    def __repr__(self) -> str:
        return printable(f"<{self}>", _LONGEST)


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in an order in which they can run, with the inputs, outputs and initializers."""

    name: str
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    nodes: tuple[Node, ...]
    initializers: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    @cached_property
    def required_inputs(self) -> tuple[ValueInfo, ...]:
        """The inputs that a caller must pass: those without an initializer as default."""
        return tuple(i for i in self.inputs if i.name not in self.initializers)

    @cached_property
    def optional_inputs(self) -> tuple[ValueInfo, ...]:
        """The inputs that a caller may pass: those with an initializer as default."""
        return tuple(i for i in self.inputs if i.name in self.initializers)

    @cached_property
    def has_fixed_sizes(self) -> bool:
        """Whether all inputs are arrays with a declared size for each dimension."""
        shapes = [info.shape for info in self.inputs]
        return all(s is not None and all(isinstance(n, int) for n in s) for s in shapes)

    @cached_property
    def captures(self) -> frozenset[str]:
        """The names that this subgraph reads from the graphs around it."""
        used = {name for node in self.nodes for name in names_read(node)}
        used.update(output.name for output in self.outputs)
        defined = {name for node in self.nodes for name in node.outputs}
        defined.update(value.name for value in self.inputs)
        return frozenset(used - defined - set(self.initializers))

    @cached_property
    def last_reads(self) -> tuple[tuple[str, ...], ...]:
        """For each node the names that no later node reads, so that their values can be freed."""
        return last_reads(self.nodes, [output.name for output in self.outputs])

    @cached_property
    def unread(self) -> frozenset[str]:
        """The outputs of nodes that nothing reads."""
        return unread_outputs(self.nodes, self.last_reads)


@dataclass(frozen=True, eq=False)
class Function:
    """A function: an operator that the model, or the ONNX standard, defines by nodes."""

    name: str
    domain: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    defaults: Mapping[str, Any]
    nodes: tuple[Node, ...]
    opsets: Mapping[str, int]

    @cached_property
    def last_reads(self) -> tuple[tuple[str, ...], ...]:
        """For each node the names that no later node reads, so that their values can be freed."""
        return last_reads(self.nodes, self.outputs)

    @cached_property
    def unread(self) -> frozenset[str]:
        """The outputs of nodes that nothing reads."""
        return unread_outputs(self.nodes, self.last_reads)


@dataclass(frozen=True, eq=False)
class Source:
    """A whole loaded model: graph, functions, opsets, metadata, and what the caller asked for."""

    graph: Graph
    opsets: Mapping[str, int]
    functions: Mapping[FunctionKey, Function]
    ir_version: int
    metadata: Mapping[str, str]
    configurations: Mapping[str, Configuration] = field(default_factory=dict)
    # The caller's operators, by domain and name; they take precedence over all others.
    custom: Mapping[tuple[str, str], Op[Any]] = field(default_factory=dict)
    limits: Limits = DEFAULT
    # Whether rewrites may change the steps that are traced.
    rewrites: bool = True
    # Whether deviations from the standard are refused, and those that loading found.
    to_the_letter: bool = False
    departures: tuple[Departure, ...] = ()
    # The model as it was written, for `sardonyx.save`: a serialized ModelProto, in which large
    # weights have no data. And the file whose folder has its external data.
    written: bytes = field(default=b"", repr=False)
    file: Path | None = None

    def op_of(self, node: Node) -> Op[Any] | None:
        """Return the definition of the node's operator, or None if it has only a function body."""
        key = node.domain, node.op_type
        return self.custom.get(key) or OPS.get(key)

    def function_of(self, node: Node) -> Function | None:
        """Return the function of the model that the node calls, or None."""
        if (node.domain, node.op_type) in self.custom:
            return None
        return self.functions.get(node.function_key)


def every_node(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield the nodes, each followed by those of its subgraphs."""
    for node in nodes:
        yield node
        for graph in node.subgraphs:
            yield from every_node(graph.nodes)


def names_read(node: Node) -> Iterator[str]:
    """Yield the values that a node reads, including those that its subgraphs capture."""
    yield from filter(None, node.inputs)
    for graph in node.subgraphs:
        yield from graph.captures


def last_reads(nodes: Sequence[Node], outputs: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return for each node the names that it is the last to read, and its unused outputs."""
    seen = set(outputs)
    releases: list[tuple[str, ...]] = []
    for node in reversed(nodes):
        names = {*names_read(node), *(name for name in node.outputs if name)}
        releases.append(tuple(sorted(names - seen)))
        seen |= names
    return tuple(reversed(releases))


def unread_outputs(nodes: Sequence[Node], releases: Sequence[tuple[str, ...]]) -> frozenset[str]:
    """Return the outputs that nothing reads: they are released after their own node."""
    pairs = zip(nodes, releases, strict=True)
    return frozenset(name for node, released in pairs for name in released if name in node.outputs)


def outputs_read(node: Node, unread: Collection[str]) -> int:
    """Return how many outputs a node has, up to the last one that is read; at least one."""
    read = [i for i, name in enumerate(node.outputs, 1) if name and name not in unread]
    return max(read, default=1)
