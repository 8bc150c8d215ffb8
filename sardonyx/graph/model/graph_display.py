"""What a notebook shows of a model's graph: operators, opsets, metadata, nodes by scope."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sardonyx.display.bars import bar
from sardonyx.display.folding import fold
from sardonyx.display.markup import Html, code, joined, muted
from sardonyx.display.scopes import grouped, scope_tree
from sardonyx.display.tables import facts, table
from sardonyx.display.units import bytes_text, counted
from sardonyx.graph.ir import Node, Source

_MOST_OPERATORS = 40


def graph_parts(source: Source) -> list[Html]:
    """Return facts on the graph, and folds: operators, nodes by scope, metadata."""
    nodes, counts = source.graph.nodes, Counter(node.operator for node in source.graph.nodes)
    size = sum(array.nbytes for array in source.graph.initializers.values())
    opsets = ", ".join(f"{name or 'ai.onnx'} {n}" for name, n in source.opsets.items())
    usual = ", ".join(f"{count:,} {name}" for name, count in counts.most_common(4))
    initializers = counted(len(source.graph.initializers), "initializer")
    about = [
        ("nodes", f"{len(nodes):,}: {usual}{', …' if len(counts) > 4 else ''}" if nodes else "0"),
        ("weights", f"{initializers}, {bytes_text(size)}"),
        ("opsets", opsets),
    ]
    if source.functions:
        about.append(("functions", f"{len(source.functions):,}"))
    parts = [facts(about)]
    if nodes:
        note = counted(len(counts), "operator")
        parts.append(fold("nodes by operator", _operators(counts), note=note))
        parts.append(fold("nodes by scope", _scopes(nodes), note=counted(len(nodes), "node")))
    if source.metadata:
        parts.append(fold("metadata", facts(list(source.metadata.items()), most=40)))
    return parts


def _operators(counts: Counter[str]) -> Html:
    common = counts.most_common()
    rows = [(name, f"{n:,}", bar(n / common[0][1])) for name, n in common[:_MOST_OPERATORS]]
    titles = ("operator", "nodes", "")
    return table(titles, iter(rows), total=len(common), numbers=[1])


def _scopes(nodes: Sequence[Node]) -> Html:
    named = ((node.name or node.first_output, node) for node in nodes)

    def summary(inner: Sequence[Node]) -> str:
        return counted(len(inner), "node")

    def line(name: str, node: Node) -> Html:
        return joined([code(name), " ", muted(node.operator)])

    return scope_tree(grouped(named), summary, line)
