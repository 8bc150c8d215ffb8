"""The signatures of operators as Python functions."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterator, Sequence
from inspect import Parameter, Signature
from typing import Any

import onnx

from sardonyx.graph.standard.operators import Slot
from sardonyx.ops import OPS
from sardonyx.recording.operators import Operator

# What Python code passes for an attribute, by the name of its type in ONNX.
_KINDS: dict[str, Any] = {
    "FLOAT": float,
    "INT": int,
    "STRING": str,
    "FLOATS": list[float],
    "INTS": list[int],
    "STRINGS": list[str],
    "TENSOR": "array",
    "SPARSE_TENSOR": "array",
    "GRAPH": Callable,
    "TYPE_PROTO": onnx.TypeProto,
}


def signature_text(operator: Operator) -> str:
    """Return the signature in one line, as in `Softmax(input, *, axis: int = -1)`."""
    return f"{operator.name}{python_signature(operator)}"


def python_signature(operator: Operator) -> Signature:
    """Return the signature of the function: inputs, attributes by name, and `outputs`."""
    return Signature([*_inputs(operator.schema.inputs), *_attributes(operator), *_count(operator)])


def _inputs(slots: Sequence[Slot]) -> Iterator[Parameter]:
    """Yield the inputs. Those that can be left out, and all behind them, are None by default."""
    default: Any = Parameter.empty
    for slot in slots:
        if slot.variadic:
            yield Parameter(_identifier(slot.name), Parameter.VAR_POSITIONAL)
            return
        default = None if slot.optional else default
        kind = Parameter.POSITIONAL_OR_KEYWORD
        yield Parameter(_identifier(slot.name), kind, default=default)


def _attributes(operator: Operator) -> Iterator[Parameter]:
    """Yield the attributes, the required ones first."""
    schema = operator.schema
    for name in sorted(schema.attributes, key=lambda name: name not in schema.required):
        default = Parameter.empty if name in schema.required else default_of(operator, name)
        annotation = _KINDS.get(kind_of(schema.attributes[name]), Parameter.empty)
        yield Parameter(
            _identifier(name), Parameter.KEYWORD_ONLY, default=default, annotation=annotation
        )


def _count(operator: Operator) -> Iterator[Parameter]:
    if operator.schema.output_counts[1] > 1:
        yield Parameter("outputs", Parameter.KEYWORD_ONLY, default=None)


def default_of(operator: Operator, name: str) -> Any:
    """Return an attribute's default; None if the standard states it in words only."""
    if operator.standard is not None:
        proto = operator.standard.attributes[name].default_value
        return _plain(onnx.helper.get_attribute_value(proto)) if proto.type else None
    op = OPS.get((operator.domain, operator.name))
    return None if op is None else op.at(operator.opset).attributes[name].default


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float):
        return float(f"{value:.7g}")  # ONNX stores float32.
    return list(map(_plain, value)) if isinstance(value, (list, tuple)) else value


def kind_of(member: Any) -> str:
    """Return the name of a member of one of onnx's enumerations."""
    return str(member).rpartition(".")[2]


def _identifier(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name
