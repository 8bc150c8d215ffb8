"""The order in which nodes can run."""

from __future__ import annotations

from collections.abc import Container, Sequence
from graphlib import CycleError, TopologicalSorter

from sardonyx.graph.ir import Node, names_read
from sardonyx.graph.loading.refusals import invalid


def in_order(nodes: Sequence[Node], available: Container[str], where: str) -> tuple[Node, ...]:
    """Return the nodes, each after those whose outputs it reads; a valid order is kept."""
    if _is_in_order(nodes, available):
        return tuple(nodes)
    producers = {name: i for i, node in enumerate(nodes) for name in node.outputs if name}
    earlier = {
        i: {producers[name] for name in names_read(node) if name in producers}
        for i, node in enumerate(nodes)
    }
    try:
        return tuple(nodes[i] for i in TopologicalSorter(earlier).static_order())
    except CycleError as error:
        node = nodes[error.args[1][0]]
        raise invalid(
            f"In {where} {node.label} ({node.operator}) depends on its own output, so the nodes "
            "form a cycle"
        ) from None


def _is_in_order(nodes: Sequence[Node], available: Container[str]) -> bool:
    seen: set[str] = set()
    for node in nodes:
        for name in names_read(node):
            if name not in seen and name not in available:
                return False
        seen.update(node.outputs)
    return True
