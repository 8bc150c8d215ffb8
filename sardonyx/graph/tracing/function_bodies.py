"""Operators without a definition of their own, as functions with the standard's body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx

from sardonyx.graph.ir import Function, Node
from sardonyx.graph.loading.load import load_function
from sardonyx.graph.standard.bodies import body_of, default_attributes
from sardonyx.graph.standard.types import number_of
from sardonyx.graph.values.kinds import Device, Static, Value


def standard_function(
    node: Node, opsets: Mapping[str, int], attributes: Mapping[str, Any], inputs: Sequence[Value]
) -> Function:
    """Return the function by which the standard defines an operator, for inputs of these types."""
    opset = opsets[node.domain]
    types = [_type_proto(value) for value in inputs]
    body = body_of(node, attributes, types, opset)
    # A body lacks the nodes for outputs that this node omits; such an output gets an empty name.
    computed = {*body.input, *(name for inner in body.node for name in inner.output)}
    outputs = tuple(name if name in computed else "" for name in body.output)
    body.output[:] = filter(None, outputs)
    function = load_function(body, opset)
    defaults = default_attributes(node.op_type, node.domain, opset)
    opsets = {**opsets, **function.opsets}
    return replace(function, outputs=outputs, defaults=defaults, opsets=opsets)


def _type_proto(value: Value) -> onnx.TypeProto:
    if isinstance(value, (Static, Device)):
        return onnx.helper.make_tensor_type_proto(number_of(value.dtype), value.shape)
    if isinstance(value, list) and value:
        return onnx.helper.make_sequence_type_proto(_type_proto(value[0]))
    return onnx.TypeProto()
