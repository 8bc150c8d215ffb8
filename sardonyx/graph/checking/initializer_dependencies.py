"""The initializers that a value is computed from: those that determine shapes are not trained."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from sardonyx.graph.ir import Function, Graph, Node, Source
from sardonyx.ops.definition import Definition, Need, Parameter

# The initializers that alone determine a value; None if it depends on the inputs of a call.
Origin: TypeAlias = frozenset[str] | None
# Yields the origins of matching arguments; returns the origins of the outputs.
Search: TypeAlias = Generator[frozenset[str], None, list[Origin]]

_NOTHING: frozenset[str] = frozenset()


def initializers_behind(source: Source, wanted: Callable[[Parameter], bool]) -> frozenset[str]:
    """Return the initializers that reach matching parameters of ops, directly or by computation.

    The scales of a Resize must be known before it runs, and so must the numbers that they are
    computed from.
    """
    origins: dict[str, Origin] = {info.name: None for info in source.graph.inputs}
    origins |= {name: frozenset([name]) for name in source.graph.initializers}
    matches = _Walk(source, wanted).through(source.graph.nodes, origins, source.opsets)
    return _NOTHING.union(*matches)


def must_be_known(parameter: Parameter) -> bool:
    """Whether an op must know the value before it runs."""
    return parameter.need is Need.STATIC


@dataclass(frozen=True, slots=True)
class _Walk:
    source: Source
    wanted: Callable[[Parameter], bool]

    def through(
        self, nodes: Sequence[Node], origins: dict[str, Origin], opsets: Mapping[str, int]
    ) -> Iterator[frozenset[str]]:
        """Yield the origins of matching arguments; add the origins of the outputs to `origins`."""
        for node in nodes:
            inputs = [origins.get(name) if name else _NOTHING for name in node.inputs]
            function = self.source.function_of(node)
            if function is not None:
                outputs = yield from self._in_function(function, inputs)
            else:
                for graph in node.subgraphs:
                    yield from self._in_subgraph(graph, origins, opsets)
                outputs = yield from self._at(node, inputs, opsets.get(node.domain, 0))
            origins.update(zip(node.outputs, outputs, strict=False))

    def _in_function(self, function: Function, inputs: Sequence[Origin]) -> Search:
        inner: dict[str, Origin] = dict.fromkeys(function.inputs, _NOTHING)
        inner |= dict(zip(function.inputs, inputs, strict=False))
        yield from self.through(function.nodes, inner, function.opsets)
        return [inner.get(name) for name in function.outputs]

    def _in_subgraph(
        self, graph: Graph, outer: Mapping[str, Origin], opsets: Mapping[str, int]
    ) -> Iterator[frozenset[str]]:
        inner: dict[str, Origin] = {**outer, **dict.fromkeys(graph.initializers, _NOTHING)}
        inner |= {info.name: None for info in graph.inputs if info.name not in graph.initializers}
        yield from self.through(graph.nodes, inner, opsets)

    def _at(self, node: Node, inputs: Sequence[Origin], opset: int) -> Search:
        op = self.source.op_of(node)
        if op is None:
            return [_joined(inputs)] * len(node.outputs)
        definition = op.at(opset)
        pairs = list(zip(_parameters(definition, len(inputs)), inputs, strict=False))
        yield from (o for parameter, o in pairs if o is not None and self.wanted(parameter))
        if definition.runs_subgraphs or definition.draws or any(node.subgraphs):
            return [None] * len(node.outputs)
        read = [origin for parameter, origin in pairs if parameter.need is not Need.SHAPED]
        return [_joined(read)] * len(node.outputs)


def _joined(origins: Sequence[Origin]) -> Origin:
    initializers = [origin for origin in origins if origin is not None]
    return _NOTHING.union(*initializers) if len(initializers) == len(origins) else None


def _parameters(definition: Definition, count: int) -> list[Parameter]:
    """Return the op's parameter for each of `count` inputs."""
    parameters = list(definition.inputs)
    while parameters and parameters[-1].variadic and len(parameters) < count:
        parameters.append(parameters[-1])
    return parameters
