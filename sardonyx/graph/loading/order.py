"""The order in which nodes can run."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from sardonyx.errors import InvalidModel
from sardonyx.graph.ir import Node, names_read


def in_order(nodes: Sequence[Node], available: frozenset[str], where: str) -> tuple[Node, ...]:
    """Return the nodes, each after those whose outputs it reads; a valid order is kept."""
    if _is_in_order(nodes, available):
        return tuple(nodes)
    producers = {name: i for i, node in enumerate(nodes) for name in node.outputs if name}
    readers: list[list[int]] = [[] for _ in nodes]
    waits = [0] * len(nodes)
    for i, node in enumerate(nodes):
        for producer in {producers[name] for name in names_read(node) if name in producers}:
            readers[producer].append(i)
            waits[i] += 1
    ready = deque(i for i, count in enumerate(waits) if not count)
    ordered = []
    while ready:
        i = ready.popleft()
        ordered.append(nodes[i])
        for reader in readers[i]:
            waits[reader] -= 1
            if not waits[reader]:
                ready.append(reader)
    if len(ordered) < len(nodes):
        stuck = nodes[next(i for i, count in enumerate(waits) if count)]
        raise InvalidModel(
            f"In {where} {stuck.label} ({stuck.operator}) depends on its own output, so the nodes "
            "form a cycle: export the model again."
        )
    return tuple(ordered)


def _is_in_order(nodes: Sequence[Node], available: frozenset[str]) -> bool:
    seen = set(available)
    for node in nodes:
        if any(name not in seen for name in names_read(node)):
            return False
        seen.update(node.outputs)
    return True
