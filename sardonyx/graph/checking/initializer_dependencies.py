"""Of which initializers a value is made: those that decide shapes stay out of what is trained."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sardonyx.graph.ir import Function, Graph, Node, Source
from sardonyx.ops.definition import Definition, Need, Parameter

# The initializers that a value is made of alone; None for what the inputs of a call decide.
Origin: TypeAlias = frozenset[str] | None
Found: TypeAlias = Generator[frozenset[str], None, list[Origin]]

_NOTHING: frozenset[str] = frozenset()


def initializers_behind(source: Source, wanted: Callable[[Parameter], bool]) -> frozenset[str]:
    """The initializers that reach such parameters of ops, by themselves or computed with.

    The factors of a Resize must be known before it runs, and so must the numbers that they are
    products of.
    """
    origins: dict[str, Origin] = {info.name: None for info in source.graph.inputs}
    origins |= {name: frozenset([name]) for name in source.graph.initializers}
    found = _Search(source, wanted).through(source.graph.nodes, origins, source.opsets)
    return _NOTHING.union(*found)


def must_be_known(parameter: Parameter) -> bool:
    """Whether an op must know the value before it runs."""
    return parameter.need is Need.STATIC


@dataclass(frozen=True, slots=True)
class _Search:
    source: Source
    wanted: Callable[[Parameter], bool]

    def through(
        self, nodes: Sequence[Node], origins: dict[str, Origin], opsets: Mapping[str, int]
    ) -> Iterator[frozenset[str]]:
        """What is found, node by node; `origins` learns where the nodes' results are from."""
        for node in nodes:
            given = [origins.get(name) if name else _NOTHING for name in node.inputs]
            called = self.source.function_of(node)
            if called is not None:
                made = yield from self._in_function(called, given)
            else:
                for graph in node.subgraphs:
                    yield from self._in_subgraph(graph, origins, opsets)
                made = yield from self._at(node, given, opsets.get(node.domain, 0))
            origins.update(zip(node.outputs, made, strict=False))

    def _in_function(self, function: Function, given: Sequence[Origin]) -> Found:
        inner: dict[str, Origin] = dict.fromkeys(function.inputs, _NOTHING)
        inner |= dict(zip(function.inputs, given, strict=False))
        yield from self.through(function.nodes, inner, function.opsets)
        return [inner.get(name) for name in function.outputs]

    def _in_subgraph(
        self, graph: Graph, outer: Mapping[str, Origin], opsets: Mapping[str, int]
    ) -> Iterator[frozenset[str]]:
        inner: dict[str, Origin] = {**outer, **dict.fromkeys(graph.initializers, _NOTHING)}
        inner |= {info.name: None for info in graph.inputs if info.name not in graph.initializers}
        yield from self.through(graph.nodes, inner, opsets)

    def _at(self, node: Node, given: Sequence[Origin], opset: int) -> Found:
        op = self.source.op_of(node)
        if op is None:
            return [_joined(given)] * len(node.outputs)
        definition = op.at(opset)
        pairs = list(zip(_parameters(definition, len(given)), given, strict=False))
        yield from (o for parameter, o in pairs if o is not None and self.wanted(parameter))
        if definition.walks or definition.draws or any(node.subgraphs):
            return [None] * len(node.outputs)
        read = [origin for parameter, origin in pairs if parameter.need is not Need.SHAPED]
        return [_joined(read)] * len(node.outputs)


def _joined(origins: Sequence[Origin]) -> Origin:
    known = [origin for origin in origins if origin is not None]
    return _NOTHING.union(*known) if len(known) == len(origins) else None


def _parameters(definition: Definition, count: int) -> list[Parameter]:
    """The op's parameter for each of so many inputs."""
    parameters = list(definition.inputs)
    while parameters and parameters[-1].variadic and len(parameters) < count:
        parameters.append(parameters[-1])
    return parameters
