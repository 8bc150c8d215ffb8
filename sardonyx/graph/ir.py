"""What a model is once it is loaded: plain, immutable data without protobufs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from sardonyx.limits import DEFAULT, Limits
from sardonyx.ops import OPS
from sardonyx.ops.definition import Op
from sardonyx.printable import LONGEST_NAME, printable

# Characters of a declared value in a message or a listing.
_LONGEST = 600

Dimension = int | str | None


@dataclass(frozen=True, slots=True)
class AttributeReference:
    """Inside a function: the value that the caller gave to one of the function's attributes."""

    name: str


# -- what a model says of many devices (ONNX's IR 11) ------------------------------------------


@dataclass(frozen=True, slots=True)
class Configuration:
    """A number of devices that the model's nodes may speak of, by their places in it."""

    name: str
    devices: int
    device_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shards:
    """Blocks that are dealt out to a number of shards; of how many blocks may be left open."""

    blocks: int | None
    count: int


@dataclass(frozen=True, slots=True)
class DividedAxis:
    """How one axis is divided; several parts stand for an axis that was fused of several."""

    axis: int
    parts: tuple[Shards, ...]

    @property
    def shards(self) -> int:
        """Into how many shards the axis is divided."""
        count = 1
        for part in self.parts:
            count *= part.count
        return count


@dataclass(frozen=True, slots=True)
class Division:
    """Where the shards of one tensor of a node are: the last axis that is divided counts fastest.

    Each shard is on all devices of its group.
    """

    tensor: str
    groups: tuple[tuple[int, ...], ...]
    axes: tuple[DividedAxis, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """What a node says of its tensors under one configuration."""

    configuration: str
    divisions: tuple[Division, ...]
    stage: int | None = None


# -- the graph -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Node:
    """One application of an operator or of a function of the model."""

    op_type: str
    domain: str
    overload: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    placements: tuple[Placement, ...] = ()

    @property
    def operator(self) -> str:
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    @property
    def made(self) -> str:
        """The first value that it makes: what tells it from all other nodes of its graph."""
        return next((name for name in self.outputs if name), "")

    @property
    def label(self) -> str:
        """How messages name this node: its name, or what it makes where it has none."""
        return f"node '{self.name}'" if self.name else f"the node that makes '{self.made}'"

    @property
    def subgraphs(self) -> Iterator[Graph]:
        for value in self.attributes.values():
            if isinstance(value, Graph):
                yield value
            elif isinstance(value, tuple):
                yield from (one for one in value if isinstance(one, Graph))


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """A declared input or output: its name, ONNX type, and shape with names for free dimensions."""

    name: str
    type: str | None
    dtype: np.dtype[Any] | None
    shape: tuple[Dimension, ...] | None

    def __str__(self) -> str:
        if self.type is None:
            return printable(self.name, LONGEST_NAME)
        dimensions = "" if self.shape is None else str(list(self.shape)).replace("'", "")
        return printable(f"{printable(self.name, LONGEST_NAME)}: {self.type}{dimensions}", _LONGEST)

    def __repr__(self) -> str:
        return printable(f"<{self}>", _LONGEST)


@dataclass(frozen=True, eq=False)
class Graph:
    """Nodes in an order in which they can run, and the names that tie them together."""

    name: str
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    nodes: tuple[Node, ...]
    initializers: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    @cached_property
    def required_inputs(self) -> tuple[ValueInfo, ...]:
        """The inputs a caller must give: those without an initializer as their default."""
        return tuple(i for i in self.inputs if i.name not in self.initializers)

    @cached_property
    def optional_inputs(self) -> tuple[ValueInfo, ...]:
        """The inputs a caller may give: an initializer is their default."""
        return tuple(i for i in self.inputs if i.name in self.initializers)

    @cached_property
    def captures(self) -> frozenset[str]:
        """The names that this graph, a subgraph, takes from the graphs around it."""
        used = {name for node in self.nodes for name in names_read(node)}
        used.update(output.name for output in self.outputs)
        made = {name for node in self.nodes for name in node.outputs}
        made.update(value.name for value in self.inputs)
        return frozenset(used - made - set(self.initializers))

    @cached_property
    def last_reads(self) -> tuple[tuple[str, ...], ...]:
        """For each node the names nobody reads after it, so that what they hold can be let go."""
        return last_reads(self.nodes, [output.name for output in self.outputs])


@dataclass(frozen=True, eq=False)
class Function:
    """An operator that a model, or the standard, defines by a graph."""

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
        return last_reads(self.nodes, self.outputs)


FunctionKey = tuple[str, str, str]


@dataclass(frozen=True, eq=False)
class Source:
    """A whole model as it was loaded: the graph, its functions, and what it says of itself."""

    graph: Graph
    opsets: Mapping[str, int]
    functions: Mapping[FunctionKey, Function]
    ir_version: int
    metadata: Mapping[str, str]
    configurations: Mapping[str, Configuration] = field(default_factory=dict)
    # Operators that the caller brings, by domain and name; they come before all others.
    custom: Mapping[tuple[str, str], Op[Any]] = field(default_factory=dict)
    limits: Limits = DEFAULT

    def op_of(self, node: Node) -> Op[Any] | None:
        """What defines the node's operator here, where that is not a graph."""
        key = node.domain, node.op_type
        return self.custom.get(key) or OPS.get(key)

    def function_of(self, node: Node) -> Function | None:
        """The function of the model that the node calls, if it calls one."""
        if (node.domain, node.op_type) in self.custom:
            return None
        return self.functions.get((node.domain, node.op_type, node.overload))


def names_read(node: Node) -> Iterator[str]:
    """The values a node reads, those that its subgraphs capture included."""
    yield from (name for name in node.inputs if name)
    for graph in node.subgraphs:
        yield from graph.captures


def last_reads(nodes: Sequence[Node], kept: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """For each node the names that it is the last to read, or that it makes in vain."""
    seen = set(kept)
    releases: list[tuple[str, ...]] = []
    for node in reversed(nodes):
        names = {*names_read(node), *(name for name in node.outputs if name)}
        releases.append(tuple(sorted(names - seen)))
        seen |= names
    return tuple(reversed(releases))
