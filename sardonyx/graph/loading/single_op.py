"""A model of one node, for calling a single operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from sardonyx.errors import InvalidInput
from sardonyx.graph.ir import Graph, Node, Source, ValueInfo
from sardonyx.graph.standard.schema import Signature, refuse_future
from sardonyx.graph.standard.signatures import signature_of
from sardonyx.graph.standard.types import type_name


def single_node(
    op_type: str,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    domain: str,
    opset: int,
    outputs: int,
) -> Source:
    """Return a model of one node with this operator; inputs that are None are omitted."""
    refuse_future(domain, opset, "the call")
    schema = signature_of(op_type, domain, opset)
    names = ["" if value is None else _input_name(schema, i) for i, value in enumerate(inputs)]
    results = tuple(f"output{i}" for i in range(outputs))
    converted = {name: _attribute(name, value, schema) for name, value in attributes.items()}
    node = Node(op_type, domain, "", "", tuple(names), results, converted)
    graph = Graph(
        op_type,
        tuple(_declaration(name, v) for name, v in zip(names, inputs, strict=True) if name),
        tuple(ValueInfo(name, None, None, None) for name in results),
        (node,),
    )
    return Source(
        graph, {"": onnx.defs.onnx_opset_version(), domain: opset}, {}, onnx.IR_VERSION, {}
    )


def _declaration(name: str, value: Any) -> ValueInfo:
    """Declare an input of any type; a list of arrays is a sequence."""
    is_sequence = isinstance(value, list) and value and hasattr(value[0], "dtype")
    kind = f"seq({type_name(np.dtype(value[0].dtype))})" if is_sequence else None
    return ValueInfo(name, kind, None, None)


def _input_name(schema: Signature | None, index: int) -> str:
    if schema is None or index >= len(schema.inputs) or schema.inputs[index].variadic:
        return f"input{index}"
    return schema.inputs[index].name


def _attribute(name: str, value: Any, schema: Signature | None) -> Any:
    try:
        return _converted(name, value, schema)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"The attribute '{name}' cannot be {value!r:.100}: {error}.") from None


def _converted(name: str, value: Any, schema: Signature | None) -> Any:
    """Convert a Python value to the attribute type that the operator's schema requires."""
    kind: Any = schema.attributes.get(name) if schema is not None else None
    if kind is not None and kind.name in ("TENSOR", "SPARSE_TENSOR"):
        return np.asarray(value)
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, (list, tuple)):
        convert: Any = float if kind is not None and kind.name == "FLOATS" else (lambda v: v)
        return tuple(convert(_scalar(one)) for one in value)
    if kind is not None and kind.name == "FLOAT":
        return float(value)
    if isinstance(value, (type, np.dtype)):
        return onnx.helper.np_dtype_to_tensor_dtype(np.dtype(value))
    if isinstance(value, (bool, int, float, str, np.generic)):
        return _scalar(value)
    raise TypeError("pass a number, a string, an array or a list of these")


def _scalar(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, bool) else value
