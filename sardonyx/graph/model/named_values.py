"""Values of a graph by name or pattern, and the graph that computes no more than these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

from sardonyx.errors import InvalidInput
from sardonyx.graph.ir import Graph, Node, Source, ValueInfo, every_node, names_read
from sardonyx.printable import printable

# Maximum number of names that an error suggests.
MOST_SUGGESTED = 5


def wanted_names(value: Any, argument: str) -> tuple[str, ...]:
    """Return an argument that is a name or pattern, or an iterable of them, as a tuple."""
    patterns = (value,) if isinstance(value, str) else value
    if isinstance(patterns, Iterable) and not isinstance(patterns, (bytes, Mapping)):
        patterns = tuple(patterns)
        if all(isinstance(pattern, str) for pattern in patterns):
            return patterns
    raise InvalidInput(
        f"'{argument}' is {value!r:.100}: pass names of values, or patterns such as "
        f'{argument}=["blocks.0.*"].'
    )


def values_named(source: Source, patterns: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the values that these names and patterns mean.

    A value of that very name is meant first, then the outputs of a node of that name. What is
    neither is a pattern, of the values that nodes compute; if it matches none, of nodes' names; and
    if it matches none of these either, of inputs and initializers.
    """
    graph = source.graph
    computed = {name: None for node in graph.nodes for name in node.outputs if name}
    given = {info.name: None for info in graph.inputs} | dict.fromkeys(graph.initializers)
    chosen: list[str] = []
    for pattern in patterns:
        if pattern in computed or pattern in given:
            chosen.append(pattern)
            continue
        matches = (
            _outputs_of(node for node in graph.nodes if node.name == pattern)
            or [name for name in computed if fnmatchcase(name, pattern)]
            or _outputs_of(n for n in graph.nodes if n.name and fnmatchcase(n.name, pattern))
            or [name for name in given if fnmatchcase(name, pattern)]
        )
        if not matches or not pattern:
            raise InvalidInput(_unknown(source, pattern, [*computed, *given]))
        # A value that several patterns match is meant once; only repeated names repeat a value.
        chosen += [name for name in matches if name not in chosen]
    return tuple(chosen)


def with_outputs(source: Source, names: Iterable[str]) -> Source:
    """Return the model with these values as its outputs, and all of its nodes and inputs."""
    graph = source.graph
    known = {info.name: info for info in (*graph.inputs, *graph.outputs)}
    outputs = tuple(known.get(name, ValueInfo(name, None, None, None)) for name in names)
    return replace(source, graph=replace(graph, outputs=outputs))


def computing(source: Source, names: Sequence[str]) -> Source:
    """Return the model that computes these values, without whatever they do not need."""
    full = with_outputs(source, names)
    graph = full.graph
    nodes, needed = _needed(source, graph)
    return replace(
        full,
        graph=replace(
            graph,
            nodes=nodes,
            inputs=tuple(info for info in graph.inputs if info.name in needed),
            initializers={n: array for n, array in graph.initializers.items() if n in needed},
        ),
    )


def _needed(source: Source, graph: Graph) -> tuple[tuple[Node, ...], set[str]]:
    """Return the nodes that compute the graph's outputs, and the names that are read for them."""
    needed = {info.name for info in graph.outputs}
    if any(reads_by_name(source, node) for node in graph.nodes):
        return graph.nodes, needed | {name for node in graph.nodes for name in names_read(node)}
    chosen = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs):
            chosen.append(node)
            needed.update(names_read(node))
    return tuple(reversed(chosen)), needed


def reads_by_name(source: Source, node: Node) -> bool:
    """Whether the node refers to values by attributes, as Gradient does, beside its inputs."""
    op = None if source.function_of(node) is not None else source.op_of(node)
    return op is not None and not node.subgraphs and op.definitions[-1][1].walks


def _outputs_of(nodes: Iterable[Node]) -> list[str]:
    return [name for node in nodes for name in node.outputs if name]


def _unknown(source: Source, pattern: str, names: Sequence[str]) -> str:
    shown = printable(f"'{pattern}'")
    for node in source.graph.nodes:
        if any(pattern in inner.outputs for g in node.subgraphs for inner in every_node(g.nodes)):
            return (
                f"The value {shown} is inside a subgraph of {node.label}, where it has no one "
                "value in a call: ask for a value of the graph itself, such as an output of that "
                "node."
            )
    for function in source.functions.values():
        if any(pattern in node.outputs for node in every_node(function.nodes)):
            return (
                f"The value {shown} is inside the function '{function.name}', where it has no one "
                "value in a call: ask for a value of the graph itself, such as an output of a node "
                "that calls the function."
            )
    nodes = [node.name for node in source.graph.nodes if node.name]
    near = get_close_matches(pattern, dict.fromkeys([*names, *nodes]), n=MOST_SUGGESTED, cutoff=0.5)
    advice = (
        f"near matches are {', '.join(printable(repr(name)) for name in near)}"
        if near
        else f"it has {', '.join(info.name for info in source.graph.outputs)}"
    )
    return (
        f"The model has no output {shown}; {printable(advice)}. No other value or node has that "
        "name either."
    )
