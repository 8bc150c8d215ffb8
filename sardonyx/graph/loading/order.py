"""Putting nodes into an order in which they can run."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from sardonyx.errors import InvalidModel
from sardonyx.graph.ir import Node, names_read


def in_order(nodes: Sequence[Node], known: frozenset[str], where: str) -> tuple[Node, ...]:
    """The nodes, each after those it reads from; a file's own order is kept where it holds."""
    if _is_in_order(nodes, known):
        return tuple(nodes)
    makers = {name: i for i, node in enumerate(nodes) for name in node.outputs if name}
    readers: list[list[int]] = [[] for _ in nodes]
    waits = [0] * len(nodes)
    for i, node in enumerate(nodes):
        for maker in {makers[name] for name in names_read(node) if name in makers}:
            readers[maker].append(i)
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
            f"In {where} {stuck.label} ({stuck.operator}) waits for its own result: "
            "the nodes form a cycle."
        )
    return tuple(ordered)


def _is_in_order(nodes: Sequence[Node], known: frozenset[str]) -> bool:
    seen = set(known)
    for node in nodes:
        if any(name not in seen for name in names_read(node)):
            return False
        seen.update(node.outputs)
    return True
