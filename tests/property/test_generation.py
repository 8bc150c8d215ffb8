"""Operators that make tensors of little or nothing, and those that choose, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from sardonyx.backends.dtypes import isdtype
from sardonyx.graph.standard.types import number_of
from tests.property.agreement import Draw, assert_examples_agree, versions_of
from tests.property.case import Case
from tests.property.reference import choices_of_types
from tests.property.strategies import (
    chosen,
    drawn_array,
    drawn_shape,
    drawn_types,
    one_in,
    placed,
    wild,
)


def constant(draw: Draw, op: str, opset: int) -> Case:
    allowed = [t for t in choices_of_types(op, opset)[0]["T"] if t.name not in NO_CONSTANTS]
    forms = ["value", "sparse_value"][: 1 + (opset >= 11)]
    if opset >= 12:
        forms += ["value_float", "value_floats", "value_int", "value_ints"]
        forms += ["value_string", "value_strings"]
    form = draw(st.sampled_from(forms))
    if form == "value":
        content = drawn_array(draw, draw(st.sampled_from(allowed)), drawn_shape(draw), wild)
        return Case(op, opset, (), {form: numpy_helper.from_array(content)})
    if form == "sparse_value":
        return Case(op, opset, (), {form: sparse(draw)})
    one = {"float": 1.5, "int": -3, "string": "ä"}[form.split("_")[1].rstrip("s")]
    count = draw(st.integers(1, 3))
    return Case(op, opset, (), {form: [one] * count if form.endswith("s") else one})


# What onnxruntime has no tensors of.
NO_CONSTANTS = ("complex64", "complex128", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn")


def sparse(draw: Draw) -> onnx.SparseTensorProto:
    """A sparse matrix or vector, its places given as they are or counted through."""
    dims = list(drawn_shape(draw, least=1, most=2, empty=False))
    size = int(np.prod(dims))
    flat = np.array(sorted(draw(st.sets(st.integers(0, size - 1), min_size=1))), np.int64)
    values = drawn_array(draw, np.dtype(np.float32), flat.shape)
    places = np.stack(np.unravel_index(flat, dims), axis=1) if draw(st.booleans()) else flat
    return helper.make_sparse_tensor(
        numpy_helper.from_array(values, "values"), numpy_helper.from_array(places, "places"), dims
    )


def constant_of_shape(draw: Draw, op: str, opset: int) -> Case:
    shape = np.array(drawn_shape(draw), np.int64)
    given = {}
    if draw(st.booleans()):
        dtype = drawn_types(draw, op, opset)["T2"]
        content = drawn_array(draw, dtype, (1,), wild)
        given = {"value": numpy_helper.from_array(content)}
    return Case(op, opset, (shape,), given, **placed(draw, [shape]))


def range_of(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    steps = [0.25, 0.5, 1.5, -0.5, -2.0] if isdtype(dtype, "real floating") else [1, 2, 3, -1, -4]
    numbers = [draw(st.integers(-9, 9)), draw(st.integers(-9, 9)), draw(st.sampled_from(steps))]
    inputs = tuple(np.array(number, dtype) for number in numbers)
    return Case(op, opset, inputs, **placed(draw, inputs))


def eye_like(draw: Draw, op: str, opset: int) -> Case:
    types = drawn_types(draw, op, opset)
    x = drawn_array(draw, types["T1"], drawn_shape(draw, least=2, most=2))
    given = chosen(draw, {"k": range(-6, 7), "dtype": [number_of(types["T2"])]})
    return Case(op, opset, (x,), given, **placed(draw, [x]))


def dropout(draw: Draw, op: str, opset: int) -> Case:
    """In inference alone: what is dropped at random cannot be compared."""
    types = drawn_types(draw, op, opset)
    x = drawn_array(draw, types["T"], drawn_shape(draw), wild)
    outputs = draw(st.integers(1, 2))
    if opset < 12:
        given = chosen(draw, {"ratio": [0.0, 0.25]})
        return Case(op, opset, (x,), given, outputs=outputs, **placed(draw, [x]))
    ratio = np.array(0.25, types["T1"]) if draw(st.booleans()) else None
    mode = np.array(False) if draw(st.booleans()) else None
    inputs = (x, ratio, mode)
    return Case(op, opset, inputs, outputs=outputs, **placed(draw, inputs))


def choice(draw: Draw, op: str, opset: int) -> Case:
    """One of two constants."""
    condition = np.array(draw(st.booleans()))
    condition = condition.reshape((1,)) if one_in(draw, 4) else condition
    branches = {}
    shape = drawn_shape(draw, most=2, empty=False)
    for name in ("then_branch", "else_branch"):
        if opset >= 11:  # Before, both had the same shape.
            shape = drawn_shape(draw, most=2, empty=False)
        content = drawn_array(draw, np.dtype(np.float32), shape)
        node = helper.make_node("Constant", [], [name], value=numpy_helper.from_array(content))
        result = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, content.shape)
        branches[name] = helper.make_graph([node], name, [], [result])
    return Case(op, opset, (condition,), branches, **placed(draw, [condition]))


CASES = {
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "Range": range_of,
    "EyeLike": eye_like,
    "Dropout": dropout,
    "If": choice,
}


@versions_of(CASES)
def test_generation(op: str, version: int) -> None:
    assert_examples_agree(CASES[op], op, version)
