"""The types and shapes of a call's results: onnx's inference, or else the schema's types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, TypeProto, numpy_helper

from sardonyx.errors import InvalidInput, InvalidModel
from sardonyx.graph.ir import Node
from sardonyx.graph.loading.attributes import plain_value
from sardonyx.graph.loading.declarations import type_text
from sardonyx.graph.loading.inline_weights import NOTHING_INLINE
from sardonyx.graph.loading.tensors import TensorReader
from sardonyx.graph.standard.operators import Signature
from sardonyx.graph.standard.schema import bind_types
from sardonyx.ops import OPS
from sardonyx.printable import first_line
from sardonyx.recording.types import has_shape, is_known, tensor_type, type_of_text

# Maximum elements of a constant whose value decides shapes.
_LARGEST = 1024


def infer(
    node: NodeProto,
    inputs: Sequence[Any],
    schema: Signature | None,
    opsets: Mapping[str, int],
) -> list[TypeProto]:
    """Return the types of a node's results; a call that can never run raises `InvalidInput`.

    `inputs` are symbolic arrays in the order of the node's inputs, None for one that is left out.
    """
    types = {name: s._type for name, s in zip(node.input, inputs, strict=True) if s is not None}
    by_schema = _by_schema(node, inputs, schema, opsets)
    try:
        standard = onnx.defs.get_schema(node.op_type, opsets.get(node.domain, 1), node.domain)
    except onnx.defs.SchemaError:
        return by_schema
    if any(not is_known(each) for each in types.values()) or _has_graphs(node):
        return by_schema
    known = _known_data(node, inputs)
    try:
        found = onnx.shape_inference.infer_node_outputs(
            standard,
            node,
            types,
            known,
            opset_imports=[onnx.helper.make_opsetid(d, v) for d, v in opsets.items()],
        )
    except onnx.shape_inference.InferenceError as error:
        raise InvalidInput(f"{node.op_type}({_listed(inputs)}): {_reason(error)}.") from None
    except (RuntimeError, ValueError, onnx.checker.ValidationError):
        return by_schema
    if not all(name in found and has_shape(found[name]) for name in node.output if name):
        found = dict(found) | _by_body(node, types, known, opsets)
    chosen = (found.get(name) for name in node.output)
    return [a if a and is_known(a) else b for a, b in zip(chosen, by_schema, strict=True)]


def _by_body(
    node: NodeProto,
    types: Mapping[str, TypeProto],
    known: Mapping[str, TensorProto],
    opsets: Mapping[str, int],
) -> dict[str, TypeProto]:
    """Return the types that follow from the standard's definition by other operators."""
    inputs = [onnx.ValueInfoProto(name=name, type=kind) for name, kind in types.items()]
    results = [onnx.ValueInfoProto(name=name) for name in node.output]
    graph = onnx.helper.make_graph([node], "call", inputs, results, list(known.values()))
    imports = [onnx.helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    model = onnx.helper.make_model(graph, opset_imports=imports)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except (RuntimeError, ValueError):
        return {}
    return {value.name: value.type for value in inferred.graph.output if has_shape(value.type)}


def _by_schema(
    node: NodeProto, inputs: Sequence[Any], schema: Signature | None, opsets: Mapping[str, int]
) -> list[TypeProto]:
    count = len(node.output)
    if schema is None:
        return [TypeProto() for _ in range(count)]
    opset = opsets.get(node.domain, 1)
    bare = Node(node.op_type, node.domain, "", node.name, tuple(node.input), tuple(node.output), {})
    texts = [None if s is None else type_text(s._type) for s in inputs]
    try:
        bound = bind_types(bare, schema, texts, opset)
    except InvalidModel as error:
        raise InvalidInput(f"{node.op_type}({_listed(inputs)}): {error}") from None
    inferred = _by_op(node, inputs, opset)
    types = []
    for i in range(count):
        text = bound[i] if i < len(bound) else None
        kind = TypeProto() if text is None else type_of_text(text)
        types.append(inferred[i] if not is_known(kind) and i < len(inferred) else kind)
    return types


def _by_op(node: NodeProto, inputs: Sequence[Any], opset: int) -> list[TypeProto]:
    """Return the types by sardonyx's own rule of dtypes, as operators of Microsoft have one."""
    op = OPS.get((node.domain, node.op_type))
    inference = op.inference_at(opset) if op is not None else None
    if inference is None or _has_graphs(node):
        return []
    reader = TensorReader(None, NOTHING_INLINE)
    texts = {a.name: plain_value(a, reader, "the call") for a in node.attribute}
    try:
        dtypes = inference([None if s is None else s.dtype for s in inputs], len(node.output),
                           **texts)  # fmt: skip
        return [TypeProto() if d is None else tensor_type(np.dtype(d), None) for d in dtypes]
    except (ValueError, TypeError):
        return []


def _known_data(node: NodeProto, inputs: Sequence[Any]) -> dict[str, TensorProto]:
    """Return the constants among the inputs that can decide a shape."""
    known = {}
    for name, symbol in zip(node.input, inputs, strict=True):
        array = None if symbol is None else symbol._array
        if array is not None and array.size <= _LARGEST and array.dtype.kind in "biuf":
            known[name] = numpy_helper.from_array(array, name)
    return known


def _has_graphs(node: NodeProto) -> bool:
    return any(a.type == onnx.AttributeProto.GRAPH for a in node.attribute)


def _listed(inputs: Sequence[Any]) -> str:
    return ", ".join("None" if each is None else str(each) for each in inputs)


def _reason(error: Exception) -> str:
    """Return the error's sentence, without onnx's names of phases and nodes."""
    return first_line(error).rpartition("] ")[2].strip() or first_line(error)
