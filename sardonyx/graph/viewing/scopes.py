"""The scopes of nodes, by which a picture groups them."""

from __future__ import annotations

import re

from sardonyx.graph.ir import Node

_QUOTED = re.compile(r"'([^']*)'")
# What torch's exporter writes for nodes that belong to no module.
_NO_MODULE = "_empty_nn_module_stack_from_metadata_hook"
_DEEPEST = 32


def scope_of(node: Node, of_torch: str = "") -> tuple[str, ...]:
    """Return the scopes around a node, from the outermost to the innermost.

    Exporters write them into the node's name, with slashes or dots. What torch's exporter writes
    into its metadata is `of_torch`.

    >>> scope_of(Node("MatMul", "", "", "/encoder/layer.0/MatMul", (), (), {}))
    ('encoder', 'layer.0')
    >>> scope_of(Node("MatMul", "", "", "encoder.0.proj", (), (), {}))
    ('encoder', '0')
    """
    if of_torch:
        return _of_torch(of_torch)
    if "/" in node.name:
        parts = node.name.strip("/").split("/")
    elif node.name.count(".") >= 2 and "::" not in node.name:
        parts = node.name.split(".")
    else:
        return ()
    return tuple(part for part in parts[:-1] if part)[:_DEEPEST]


def _of_torch(text: str) -> tuple[str, ...]:
    """Return each scope without the path of the scope around it."""
    scopes: list[str] = []
    outer = ""
    for path in _QUOTED.findall(text):
        if path and path != _NO_MODULE:
            scopes.append(path.removeprefix(f"{outer}."))
            outer = path
    return tuple(scopes)[:_DEEPEST]
