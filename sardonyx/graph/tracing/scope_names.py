"""The names of steps in compiled programs and in profilers, after the nodes of the graph."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count

from sardonyx.graph.ir import Node

# Profilers give a meaning to the other characters: colons, brackets, number signs.
_OTHERS = re.compile(r"[^\w./-]", re.ASCII)
_NO_IDENTIFIER = re.compile(r"\W", re.ASCII)
LONGEST = 200


def scope_name(path: str, node: Node) -> str:
    """Return a node's name for compilers: with the path of its function or subgraph before it.

    A node without a name is called by its operator and its first output.
    """
    own = node.name or f"{node.op_type}_{node.first_output}"
    plain = "/".join(filter(None, _OTHERS.sub("_", f"{path}{own}").split("/")))
    return plain[-LONGEST:].lstrip("/") or "node"


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names; a number tells those apart that occur again."""
    seen: dict[str, None] = {}
    for name in names:
        own = name
        if own in seen:
            own = next(n for i in count(2) if (n := f"{name}.{i}") not in seen)
        seen[own] = None
    return tuple(seen)


def function_name(graph_name: str) -> str:
    """Return the name of a graph as that of a function, for `__name__`."""
    return _NO_IDENTIFIER.sub("_", graph_name)[:LONGEST] or "graph"
