"""Small graphs, written briefly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

FLOAT, INT64, BOOL, STRING = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.INT64,
    onnx.TensorProto.BOOL,
    onnx.TensorProto.STRING,
)

node = helper.make_node


def value(name: str, shape: Sequence[Any] | None = None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def weight(name: str, content: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(content), name)


def graph(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto | str],
    outputs: Sequence[onnx.ValueInfoProto | str],
    weights: Sequence[onnx.TensorProto] = (),
    name: str = "graph",
) -> onnx.GraphProto:
    """A graph; an input or output given by its name alone is a float of any shape."""
    ends = [[value(v) if isinstance(v, str) else v for v in side] for side in (inputs, outputs)]
    return helper.make_graph(list(nodes), name, *ends, list(weights))


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto | str],
    outputs: Sequence[onnx.ValueInfoProto | str],
    weights: Sequence[onnx.TensorProto] = (),
    opset: int = 18,
    functions: Sequence[onnx.FunctionProto] = (),
    **domains: int,
) -> onnx.ModelProto:
    imports = {"": opset} | {name.replace("_", "."): v for name, v in domains.items()}
    return helper.make_model(
        graph(nodes, inputs, outputs, weights),
        opset_imports=[helper.make_opsetid(*entry) for entry in imports.items()],
        ir_version=10,
        functions=list(functions),
    )


def function(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[str],
    outputs: Sequence[str],
    attributes: Sequence[str] = (),
) -> onnx.FunctionProto:
    """A function of the domain "mine", of which a model imports version 1 by `mine=1`."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
    return helper.make_function("mine", name, inputs, outputs, nodes, opsets, attributes)


def changed(base: onnx.ModelProto, change: Callable[[onnx.ModelProto], Any]) -> onnx.ModelProto:
    """A copy of a model, with a change made to it."""
    copy = onnx.ModelProto()
    copy.CopyFrom(base)
    change(copy)
    return copy
