"""Saying where something went wrong: node, operator, opset, dtypes and shapes."""

from __future__ import annotations

from collections.abc import Sequence

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import BadData
from sardonyx.errors import InvalidInput, InvalidModel, LimitExceeded, SardonyxError
from sardonyx.graph.standard.types import short_name
from sardonyx.graph.structure import Node
from sardonyx.graph.values import Device, Static, Value

# How many inputs, and how much of a reason, a message tells.
MOST_SHOWN = 8
LONGEST = 500


def where(node: Node, opset: int, inputs: Sequence[Value]) -> str:
    """A node as messages name it, with what it was given."""
    pairs = list(zip(node.inputs, inputs, strict=False))
    given = ", ".join(f"{name or '(none)'}: {described(v)}" for name, v in pairs[:MOST_SHOWN])
    if len(pairs) > MOST_SHOWN:
        given += f" and {len(pairs) - MOST_SHOWN} more"
    label = f"{node.label[0].upper()}{node.label[1:]}"
    return f"{label} ({node.operator}, opset {opset}; inputs {given or 'none'})"


def described(value: Value) -> str:
    """A value's dtype and shape."""
    if isinstance(value, (Static, Device)):
        return f"{short_name(value.dtype)}{list(value.shape)}"
    if isinstance(value, list):
        return f"a sequence of {len(value)}"
    return "absent" if value is None else "a map"


def placed(error: Exception, node: Node, opset: int, inputs: Sequence[Value]) -> Exception:
    """A sardonyx error with the innermost node it concerns named in it, once."""
    if not isinstance(error, SardonyxError) or error.__dict__.get("placed"):
        return error
    text = str(error)
    if node.label.lower() not in text.lower():
        error = type(error)(f"{where(node, opset, inputs)}: {text.rstrip('.')}.")
    error.__dict__["placed"] = True
    return error


def explained(
    error: Exception, node: Node, opset: int, inputs: Sequence[Value], backend: Backend
) -> SardonyxError:
    """An op's complaint, or a library's, as an error that names the node."""
    place = where(node, opset, inputs)
    fault = told(error, f"{place} cannot run on these inputs", backend)
    if not inputs and isinstance(fault, InvalidInput):
        fault = InvalidModel(
            f"{place} cannot run: {_reason(error, backend)}. It depends on nothing, so the model "
            "itself is wrong: export it again."
        )
    fault.__dict__["placed"] = True
    return fault


def told(error: Exception, what: str, backend: Backend) -> SardonyxError:
    """A library's error in our words, after `what` has happened."""
    text = _reason(error, backend)
    if isinstance(error, MemoryError) or "out of memory" in text or "too large" in text:
        return LimitExceeded(f"{what}: {text}. Use smaller inputs, or a device with more memory.")
    way_out = (
        ""
        if isinstance(error, BadData) or backend.explain(error)
        else " Check the shapes and dtypes that reach it against those the model declares."
    )
    return InvalidInput(f"{what}: {text}.{way_out}")


def _reason(error: Exception, backend: Backend) -> str:
    text = backend.explain(error) or str(error).strip() or type(error).__name__
    line = text.splitlines()[0]
    return line.rstrip(".") if len(line) <= LONGEST else f"{line[:LONGEST]}..."
