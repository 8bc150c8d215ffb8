"""Operators without a definition of their own, expanded from the body that the standard gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from sardonyx.graph.load import load_function
from sardonyx.graph.structure import Function, Graph, Node
from sardonyx.graph.types import number_of
from sardonyx.graph.values import Device, Static, Value


@cache
def has_body(op_type: str, domain: str, opset: int) -> bool:
    """Whether the standard defines this operator by others."""
    try:
        schema: Any = onnx.defs.get_schema(op_type, opset, domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)


@cache
def operators_of_body(op_type: str, domain: str, opset: int) -> tuple[tuple[str, str], ...]:
    """The operators in the body of an operator, as far as they can be known before it is called."""
    schema: Any = onnx.defs.get_schema(op_type, opset, domain)
    node = Node(op_type, domain, "", "", ("x",) * schema.min_input, ("y",), {})
    floats = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
    try:
        body = _body(schema, _node_proto(node, {}), [floats] * schema.min_input, opset)
    except (RuntimeError, TypeError, ValueError):
        return ()  # The body depends on more than can be guessed.
    return tuple((inner.domain, inner.op_type) for inner in body.node)


def standard_function(
    node: Node, opsets: Mapping[str, int], attributes: Mapping[str, Any], inputs: Sequence[Value]
) -> Function:
    """The function that the standard defines the operator by, for inputs of these types."""
    opset = opsets[node.domain]
    schema: Any = onnx.defs.get_schema(node.op_type, opset, node.domain)
    types = [_type_proto(value) for value in inputs]
    body = _body(schema, _node_proto(node, attributes), types, opset)
    outputs = _take_unmade_outputs_out(body)
    function = load_function(body, opset)
    defaults = {
        name: onnx.helper.get_attribute_value(attribute.default_value)
        for name, attribute in schema.attributes.items()
        if attribute.default_value.name
    }
    opsets = {**opsets, **function.opsets}
    return replace(function, outputs=outputs, defaults=defaults, opsets=opsets)


def _body(
    schema: Any, node: onnx.NodeProto, types: Sequence[onnx.TypeProto], opset: int
) -> onnx.FunctionProto:
    if schema.has_context_dependent_function:
        version = _newest(schema.context_dependent_function_opset_versions, opset)
        text = schema.get_context_dependent_function_with_opset_version(
            version, node.SerializeToString(), [type_.SerializeToString() for type_ in types]
        )
    else:
        text = schema.get_function_with_opset_version(
            _newest(schema.function_opset_versions, opset)
        )
    body = onnx.FunctionProto()
    body.ParseFromString(text)
    return body


def _take_unmade_outputs_out(body: onnx.FunctionProto) -> tuple[str, ...]:
    """The standard leaves out of a body what makes the outputs that the node does not want.

    The result still has a place for each: an empty name.
    """
    made = {*body.input, *(name for inner in body.node for name in inner.output)}
    outputs = tuple(name if name in made else "" for name in body.output)
    del body.output[:]
    body.output.extend(name for name in outputs if name)
    return outputs


def _newest(versions: Sequence[int], opset: int) -> int:
    return max((version for version in versions if version <= opset), default=opset)


def _node_proto(node: Node, attributes: Mapping[str, Any]) -> onnx.NodeProto:
    proto = onnx.helper.make_node(node.op_type, node.inputs, node.outputs, domain=node.domain)
    for name, value in attributes.items():
        if isinstance(value, Graph):
            raise TypeError(f"the attribute '{name}' is a graph, which the expansion cannot carry")
        given = numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
        proto.attribute.append(onnx.helper.make_attribute(name, given))
    return proto


def _type_proto(value: Value) -> onnx.TypeProto:
    if isinstance(value, (Static, Device)):
        return onnx.helper.make_tensor_type_proto(number_of(value.dtype), value.shape)
    if isinstance(value, list) and value:
        return onnx.helper.make_sequence_type_proto(_type_proto(value[0]))
    return onnx.TypeProto()
