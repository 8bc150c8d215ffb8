"""Attributes that make no sense for what reaches their node: each error names all of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput, InvalidModel, UnsupportedModel
from tests.support.onnx_builders import model, node, value, weight
from tests.support.raises import refused

X = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.ones(3, np.float32)

# -- attributes -----------------------------------------------------------------------------------

IMAGE = np.ones((1, 4, 5, 5), np.float32)
FILTERS = np.ones((4, 4, 3, 3), np.float32)
BAD_ATTRIBUTES: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("Softmax", [X], {"axis": 2}, "axis 2"),
    ("Softmax", [X], {"axis": -3}, "axis -3"),
    ("Concat", [X, X], {"axis": 2}, "axis 2"),
    ("Concat", [X, B], {"axis": 0}, "differ"),
    ("Flatten", [X], {"axis": 3}, "axis 3"),
    ("Gather", [X, np.array([0])], {"axis": 7}, "axis 7"),
    ("Squeeze", [X, np.array([0])], {}, "size 1"),
    ("Unsqueeze", [X, np.array([0, 0])], {}, "twice"),
    ("Unsqueeze", [X, np.array([4])], {}, "axis 4"),
    ("ReduceSum", [X, np.array([0, 0])], {}, "twice"),
    ("ReduceMax", [X, np.array([5])], {}, "axis 5"),
    ("ArgMax", [X], {"axis": 2}, "axis 2"),
    ("LayerNormalization", [X, B], {"axis": 5}, "axis 5"),
    ("Transpose", [X], {"perm": [0, 0]}, "perm"),
    ("Transpose", [X], {"perm": [0, 1, 2]}, "perm"),
    ("Transpose", [X], {"perm": [2, 1]}, "perm"),
    ("Reshape", [X, np.array([-1, -1])], {}, "-1"),
    ("Reshape", [X, np.array([4, 2])], {}, "fill"),
    ("Expand", [X, np.array([5, 5])], {}, "broadcast"),
    ("Tile", [X, np.array([1, -1])], {}, "repeats"),
    ("Tile", [X, np.array([1])], {}, "repeats"),
    ("Slice", [X, np.array([0]), np.array([1]), np.array([0]), np.array([0])], {}, "steps"),
    ("Slice", [X, np.array([0, 0]), np.array([1])], {}, "equal lengths"),
    ("Split", [X, np.array([2, 2])], {"axis": 1}, "parts"),
    ("Split", [X, np.array([4, -1])], {"axis": 1}, "parts"),
    ("Split", [X], {"num_outputs": 2**40}, "num_outputs"),
    ("Pad", [X, np.array([0, -9, 0, 0])], {}, "pads"),
    ("Pad", [X, np.array([1])], {}, "pads"),
    ("Pad", [X, np.array([1, 1, 1, 1])], {"mode": "fold"}, "mode"),
    ("ConstantOfShape", [np.array([2, -1])], {}, "negative"),
    ("ConstantOfShape", [np.array([2])], {"value": X}, "one"),
    ("Range", [np.array(0), np.array(3), np.array(0)], {}, "no range"),
    ("Range", [np.float32(0), np.float32("nan"), np.float32(1)], {}, "no range"),
    ("Range", [np.float32(0), np.float32("inf"), np.float32(1)], {}, "no range"),
    ("EyeLike", [B], {}, "matrix"),
    ("Trilu", [B], {}, "matri"),
    ("DepthToSpace", [IMAGE], {"blocksize": 0}, "blocksize"),
    ("DepthToSpace", [IMAGE], {"blocksize": -2}, "blocksize"),
    ("DepthToSpace", [IMAGE], {"blocksize": 3}, "blocks of 3"),
    ("SpaceToDepth", [IMAGE], {"blocksize": 2**40}, "blocks"),
    ("Conv", [IMAGE, FILTERS], {"strides": [0, 1]}, "strides"),
    ("Conv", [IMAGE, FILTERS], {"strides": [-1, 1]}, "strides"),
    ("Conv", [IMAGE, FILTERS], {"dilations": [0, 1]}, "dilations"),
    ("Conv", [IMAGE, FILTERS], {"group": 0}, "group"),
    ("Conv", [IMAGE, FILTERS], {"group": -1}, "group"),
    ("Conv", [IMAGE, FILTERS], {"group": 3}, "group"),
    ("Conv", [IMAGE, FILTERS], {"kernel_shape": [5, 5]}, "kernel_shape"),
    ("Conv", [IMAGE, FILTERS], {"pads": [-1, 0, 0, 0]}, "pads"),
    ("Conv", [IMAGE, FILTERS], {"pads": [1, 1]}, "pads"),
    ("Conv", [IMAGE, FILTERS], {"dilations": [9, 9]}, "does not fit"),
    ("Conv", [IMAGE, FILTERS], {"auto_pad": "SOME"}, "auto_pad"),
    ("ConvTranspose", [IMAGE, FILTERS], {"strides": [0, 0]}, "strides"),
    ("ConvTranspose", [IMAGE, FILTERS], {"group": 0}, "group"),
    ("MaxPool", [IMAGE], {"kernel_shape": [0, 1]}, "kernel_shape"),
    ("MaxPool", [IMAGE], {"kernel_shape": [-2, 1]}, "kernel_shape"),
    ("MaxPool", [IMAGE], {"kernel_shape": [2]}, "kernel_shape"),
    ("MaxPool", [IMAGE], {"kernel_shape": [9, 9]}, "does not fit"),
    ("AveragePool", [IMAGE], {"kernel_shape": [2, 2], "strides": [0, 1]}, "strides"),
    ("Gemm", [X, X], {}, "multiplied"),
    ("MatMul", [X, X], {}, "multiplied"),
    ("Add", [X, np.ones(2, np.float32)], {}, "broadcast"),
    ("Where", [np.array([True, False]), X, X], {}, "broadcast"),
    ("GatherND", [X, np.array([[0]])], {"batch_dims": 5}, "batch_dims"),
]


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes", "word"),
    BAD_ATTRIBUTES,
    ids=[f"{o} {a or ''}" for o, _, a, _ in BAD_ATTRIBUTES],
)
def test_attributes(
    xp: Backend, operator: str, inputs: list[Any], attributes: dict[str, Any], word: str
) -> None:
    names = [f"i{i}" for i in range(len(inputs))]
    types = [onnx.helper.np_dtype_to_tensor_dtype(np.asarray(array).dtype) for array in inputs]
    if "value" in attributes:
        attributes = {"value": weight("value", attributes["value"])}
    outputs = ["y", "z"] if operator == "Split" else ["y"]
    bad = model(
        [node(operator, names, outputs, name="it", **attributes)],
        [value(n, None, t) for n, t in zip(names, types, strict=True)],
        [onnx.ValueInfoProto(name="y")],
    )
    shape = f"{np.asarray(inputs[0]).dtype}{list(np.shape(inputs[0]))}"
    with refused(InvalidInput, "'it'", f"{operator}, opset 18", f"i0: {shape}", word):
        sardonyx.load(bad, backend=xp)(*inputs)


# -- one operator by itself -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "inputs", "options", "error", "words"),
    [
        ("NoSuchThing", [X], {}, UnsupportedModel, ["NoSuchThing"]),
        ("Relu", [X], {"opset": 99}, UnsupportedModel, ["99", "up to"]),
        ("Relu", [X], {"opset": 0}, InvalidInput, ["opset", "from 1 on", "not 0"]),
        ("Relu", [X], {"domain": "no.such"}, UnsupportedModel, ["no.such"]),
        ("Relu", [], {}, InvalidModel, ["Relu", "0 inputs"]),
        ("Relu", [X, X], {}, InvalidModel, ["Relu", "2 inputs"]),
        ("Relu", [X], {"slope": 1}, InvalidModel, ["slope"]),
        ("Relu", [X], {"outputs": 3}, InvalidModel, ["3 outputs"]),
        ("Relu", [["a"]], {}, InvalidModel, ["tensor(string)", "strict=False"]),
        ("Relu", [[[1], [2, 3]]], {}, InvalidInput, ["inhomogeneous"]),
        ("Softmax", [X], {"axis": "last"}, InvalidModel, ["axis", "INT"]),
        ("Softmax", [X], {"axis": object()}, InvalidInput, ["axis", "object"]),
        ("Constant", [], {"value_int": 1, "value_float": 2.0}, InvalidModel, ["exactly one"]),
        ("Cast", [X], {"to": "complex512"}, InvalidModel, ["to", "INT"]),
    ],
)
def test_one_operator(
    operator: str, inputs: list[Any], options: dict[str, Any], error: Any, words: list[str]
) -> None:
    with refused(error, *words):
        sardonyx.run_op(operator, *inputs, **options)
