"""The function bodies by which the ONNX standard defines some operators in terms of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from sardonyx.graph.ir import Graph, Node


@cache
def has_body(op_type: str, domain: str, opset: int) -> bool:
    """Whether the standard defines this operator by a function body."""
    try:
        schema: Any = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


@cache
def operators_of_body(op_type: str, domain: str, opset: int) -> tuple[tuple[str, str], ...]:
    """Return the operators in an operator's body; none if the body depends on the call."""
    schema: Any = onnx.defs.get_schema(op_type, opset, domain)
    node = Node(op_type, domain, "", "", ("x",) * schema.min_input, ("y",), {})
    floats = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
    try:
        body = body_of(node, {}, [floats] * schema.min_input, opset)
    except (RuntimeError, TypeError, ValueError):
        return ()  # The body depends on the types or attributes of a call.
    return tuple((inner.domain, inner.op_type) for inner in body.node)


def body_of(
    node: Node, attributes: Mapping[str, Any], types: Sequence[onnx.TypeProto], opset: int
) -> onnx.FunctionProto:
    """Return the body of the node's operator at `opset`, for inputs of these types."""
    schema: Any = onnx.defs.get_schema(node.op_type, opset, node.domain)
    if schema.has_context_dependent_function:
        proto = _node_proto(node, attributes)
        version = _newest(schema.context_dependent_function_opset_versions, opset)
        text = schema.get_context_dependent_function_with_opset_version(
            version, proto.SerializeToString(), [type_.SerializeToString() for type_ in types]
        )
    else:
        text = schema.get_function_with_opset_version(
            _newest(schema.function_opset_versions, opset)
        )
    body = onnx.FunctionProto()
    body.ParseFromString(text)
    return body


def default_attributes(op_type: str, domain: str, opset: int) -> dict[str, Any]:
    """Return the defaults of an operator's attributes, which its body can refer to."""
    schema = onnx.defs.get_schema(op_type, opset, domain)
    return {
        name: onnx.helper.get_attribute_value(attribute.default_value)
        for name, attribute in schema.attributes.items()
        if attribute.default_value.name
    }


def _newest(versions: Sequence[int], opset: int) -> int:
    return max((version for version in versions if version <= opset), default=opset)


def _node_proto(node: Node, attributes: Mapping[str, Any]) -> onnx.NodeProto:
    proto = onnx.helper.make_node(node.op_type, node.inputs, node.outputs, domain=node.domain)
    for name, value in attributes.items():
        if isinstance(value, Graph):
            raise TypeError(
                f"the attribute '{name}' is a graph, which a function body cannot depend on"
            )
        plain = numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        proto.attribute.append(onnx.helper.make_attribute(name, plain))
    return proto
