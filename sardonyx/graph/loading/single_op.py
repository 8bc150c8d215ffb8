"""A model of one node, for calling a single operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from sardonyx.errors import InvalidInput
from sardonyx.graph.ir import Graph, Node, Source, ValueInfo
from sardonyx.graph.loading.attributes import plain_value
from sardonyx.graph.loading.inline_weights import NOTHING_INLINE
from sardonyx.graph.loading.tensors import TensorReader
from sardonyx.graph.standard.operators import Signature
from sardonyx.graph.standard.schema import refuse_future
from sardonyx.graph.standard.signatures import signature_of
from sardonyx.graph.standard.types import type_name

_PROTOS = (onnx.TensorProto, onnx.SparseTensorProto, onnx.TypeProto)
NOTHING: Mapping[int, np.ndarray[Any, Any]] = {}


def single_node(
    op_type: str,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    domain: str,
    opset: int,
    results: Sequence[str],
    *,
    constants: Mapping[int, np.ndarray[Any, Any]] = NOTHING,
) -> Source:
    """Return a model of one node with this operator; inputs that are None are omitted.

    A result without a name is omitted too. The inputs at the positions of `constants` are
    initializers.
    """
    refuse_future(domain, opset, "the call")
    schema = signature_of(op_type, domain, opset)
    names = ["" if value is None else _input_name(schema, i) for i, value in enumerate(inputs)]
    converted = {name: attribute_value(name, value, schema) for name, value in attributes.items()}
    node = Node(op_type, domain, "", "", tuple(names), tuple(results), converted)
    graph = Graph(
        op_type,
        tuple(
            _declaration(name, value)
            for i, (name, value) in enumerate(zip(names, inputs, strict=True))
            if name and i not in constants
        ),
        tuple(ValueInfo(name, None, None, None) for name in results if name),
        (node,),
        {names[i]: array for i, array in constants.items()},
    )
    return Source(
        graph, {"": onnx.defs.onnx_opset_version(), domain: opset}, {}, onnx.IR_VERSION, {}
    )


def _declaration(name: str, value: Any) -> ValueInfo:
    """Declare an input of any type; a list of arrays is a sequence, a dict a map."""
    is_sequence = isinstance(value, list) and value and hasattr(value[0], "dtype")
    kind = f"seq({type_name(np.dtype(value[0].dtype))})" if is_sequence else None
    if isinstance(value, dict) and value:
        key = "string" if isinstance(next(iter(value)), str) else "int64"
        kind = f"map({key},{type_name(np.asarray(list(value.values())).dtype)})"
    return ValueInfo(name, kind, None, None)


def _input_name(schema: Signature | None, index: int) -> str:
    if schema is None or index >= len(schema.inputs) or schema.inputs[index].variadic:
        return f"input{index}"
    return schema.inputs[index].name


def attribute_value(name: str, value: Any, schema: Signature | None) -> Any:
    """Convert a Python value, or a protobuf, to the plain value of an attribute."""
    try:
        return _converted(name, value, schema)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"The attribute '{name}' cannot be {value!r:.100}: {error}.") from None


def _converted(  # noqa: PLR0911  (one for each kind)
    name: str, value: Any, schema: Signature | None
) -> Any:
    """Convert a Python value to the attribute type that the operator's schema requires."""
    kind: Any = schema.attributes.get(name) if schema is not None else None
    if isinstance(value, _PROTOS):
        proto = onnx.helper.make_attribute(name, value)
        return plain_value(proto, TensorReader(None, NOTHING_INLINE), "the call")
    if kind is not None and kind.name in ("TENSOR", "SPARSE_TENSOR"):
        return np.asarray(value)
    if isinstance(value, (np.ndarray, Graph)):
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
