"""Operators that write elements at their indices, or choose them by their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from sardonyx.graph.standard.types import DType
from tests.property.agreement import Draw, assert_examples_agree, versions_of
from tests.property.case import Case
from tests.property.strategies import (
    FLOAT32,
    INT64,
    Shape,
    chosen,
    drawn_array,
    drawn_axis,
    drawn_shape,
    drawn_types,
    one_in,
    ordinary,
    placed,
    wild,
)

# -- writing --------------------------------------------------------------------------------------


def reductions(opset: int) -> dict[str, list[str]]:
    allowed = ["none", "add", "mul", *(["max", "min"] if opset >= 18 else [])]
    return {"reduction": allowed} if opset >= 16 else {}


def drawn_places(
    draw: Draw, size: int, shape: Shape, axis: int, repeat: bool, dtype: DType
) -> np.ndarray:
    """Indices into an axis, from either end; no two alike along it unless they may repeat."""
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    if repeat:
        return rng.integers(-size, size, shape).astype(dtype)
    whole = [*shape[:axis], size, *shape[axis + 1 :]]
    order = np.take(np.argsort(rng.random(whole), axis=axis), range(shape[axis]), axis=axis)
    return (order - size * rng.integers(0, 2, shape)).astype(dtype)


def scatter_elements(draw: Draw, op: str, opset: int) -> Case:
    types = drawn_types(draw, op, opset)
    x = drawn_array(draw, types["T"], drawn_shape(draw, least=1, most=4, empty=False))
    axis = draw(st.integers(-x.ndim, x.ndim - 1))
    given = chosen(draw, reductions(opset)) if op == "ScatterElements" else {}
    repeat = given.get("reduction", "none") != "none"
    shape = [draw(st.integers(0 if one_in(draw, 8) else 1, size)) for size in x.shape]
    if repeat:
        shape[axis] = draw(st.integers(1, 6))
    if one_in(draw, 24):
        shape[draw(st.integers(0, x.ndim - 1))] += 3
        repeat = True
    places = drawn_places(draw, x.shape[axis], tuple(shape), axis % x.ndim, repeat, types["Tind"])
    updates = drawn_array(draw, types["T"], places.shape)
    given |= {"axis": axis} if axis or draw(st.booleans()) else {}
    inputs = (x, places, updates)
    return Case(op, opset, inputs, given, scale=16, **placed(draw, inputs))


def scatter_nd(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    x = drawn_array(draw, dtype, drawn_shape(draw, least=1, most=4, empty=False))
    count = draw(st.integers(1, x.ndim))
    given = chosen(draw, reductions(opset))
    sizes = np.array(x.shape[:count])
    lead = drawn_shape(draw, most=2)
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    if given.get("reduction", "none") == "none":
        lead = (draw(st.integers(0, int(np.prod(sizes)))),)
        flat = rng.permutation(int(np.prod(sizes)))[: lead[0]]
        places = np.stack(np.unravel_index(flat, sizes), axis=-1)
        places -= sizes * rng.integers(0, 2, places.shape)
    else:
        places = rng.integers(-sizes, sizes, (*lead, count))
    shape = (*lead, *x.shape[count:])
    if one_in(draw, 24):
        shape = (*shape, 2)
    inputs = (x, places, drawn_array(draw, dtype, shape))
    return Case(op, opset, inputs, given, scale=16, **placed(draw, inputs))


def tensor_scatter(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    shape = drawn_shape(draw, least=2, most=4, empty=False)
    axis = draw(st.integers(1, len(shape) - 1))
    axis -= len(shape) if draw(st.booleans()) else 0
    length = draw(st.integers(1, shape[axis]))
    given: dict[str, Any] = {"axis": axis, **chosen(draw, {"mode": ["linear", "circular"]})}
    most = 9 if given.get("mode") == "circular" else shape[axis] - length
    starts = drawn_array(draw, INT64, shape[:1], range(most + 1)) if draw(st.booleans()) else None
    part = list(shape)
    part[axis] = length
    inputs = (drawn_array(draw, dtype, shape), drawn_array(draw, dtype, tuple(part)), starts)
    return Case(op, opset, inputs, given, **placed(draw, inputs))


def one_hot(draw: Draw, op: str, opset: int) -> Case:
    types = drawn_types(draw, op, opset)
    shape = drawn_shape(draw, most=4)
    signed = types["T1"].kind in "if"
    indices = drawn_array(draw, types["T1"], shape, range(-7 if signed else 0, 8))
    depth = np.array(draw(st.integers(1, 6)), types["T2"])
    depth = depth.reshape((1,)) if draw(st.booleans()) else depth
    values = drawn_array(draw, types["T3"], (3 if one_in(draw, 24) else 2,))
    given = chosen(draw, {"axis": range(-len(shape) - 1, len(shape) + 1)})
    inputs = (indices, depth, values)
    return Case(op, opset, inputs, given, **placed(draw, inputs))


# -- choosing -------------------------------------------------------------------------------------


def top_k(draw: Draw, op: str, opset: int) -> Case:
    pool = wild if one_in(draw, 4) else ordinary
    x = drawn_array(draw, drawn_types(draw, op, opset)["T"], drawn_shape(draw, least=1), pool)
    axis = draw(st.integers(0, x.ndim - 1)) if opset < 11 else drawn_axis(draw, x.ndim)
    size = x.shape[axis % x.ndim]
    k = size + 1 if one_in(draw, 16) else draw(st.integers(1, max(size, 1)))
    given: dict[str, Any] = {"axis": axis} | ({"k": k} if opset < 10 else {})
    if opset >= 11:
        # The order of results that need not be sorted is anybody's.
        given |= chosen(draw, {"largest": [0, 1], "sorted": [1]})
    inputs = (x,) if opset < 10 else (x, np.array([k], np.int64))
    return Case(op, opset, inputs, given, outputs=2, **placed(draw, inputs))


def compress(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_array(draw, drawn_types(draw, op, opset)["T"], drawn_shape(draw, least=1, most=4))
    given = chosen(draw, {"axis": range(0 if opset < 11 else -x.ndim, x.ndim)})
    size = x.shape[given["axis"]] if given else x.size
    length = draw(st.integers(0, size))
    inputs = (x, drawn_array(draw, np.dtype(bool), (length,)))
    return Case(op, opset, inputs, given, **placed(draw, inputs))


def non_zero(draw: Draw, op: str, opset: int) -> Case:
    x = drawn_array(draw, drawn_types(draw, op, opset)["T"], drawn_shape(draw), FEW)
    return Case(op, opset, (x,), **placed(draw, [x]))


FEW = [0, 1, -0.0, 0]


def unique(draw: Draw, op: str, opset: int) -> Case:
    dtype = drawn_types(draw, op, opset)["T"]
    pool = ordinary if dtype.kind == "O" or one_in(draw, 2) else FEW
    x = drawn_array(draw, dtype, drawn_shape(draw, most=4), pool)
    # Of slices without elements onnxruntime aborts the process.
    given = chosen(draw, {"axis": range(-x.ndim, x.ndim)}) if x.ndim and x.size else {}
    given |= chosen(draw, {"sorted": [0, 1]})
    outputs = draw(st.integers(1, 4))
    return Case(op, opset, (x,), given, outputs=outputs, **placed(draw, [x]))


def non_max_suppression(draw: Draw, op: str, opset: int) -> Case:
    batches, groups, count = (
        draw(st.integers(1, 2)),
        draw(st.integers(0, 2)),
        draw(st.integers(1, 9)),
    )
    given = chosen(draw, {"center_point_box": [0, 1]})
    boxes = drawn_array(draw, FLOAT32, (batches, count, 4), [0, 1, 2, 3, 4, 1.5, 2.5])
    scores = drawn_array(draw, FLOAT32, (batches, groups, count), np.arange(9) / 8)
    if one_in(draw, 16):
        scores = scores[..., :-1]
    rest = [
        np.array([draw(st.integers(-1, 9))], np.int64),
        np.array([draw(st.sampled_from([0, 0.25, 0.5, 1]))], np.float32),
        np.array([draw(st.sampled_from([0, 0.25, 0.5]))], np.float32),
    ]
    inputs = (boxes, scores, *rest[: draw(st.integers(0, 3))])
    return Case(op, opset, inputs, given, **placed(draw, inputs))


CASES = {
    **dict.fromkeys(["ScatterElements", "Scatter"], scatter_elements),
    "ScatterND": scatter_nd,
    "TensorScatter": tensor_scatter,
    "OneHot": one_hot,
    "TopK": top_k,
    "Compress": compress,
    "NonZero": non_zero,
    "Unique": unique,
    "NonMaxSuppression": non_max_suppression,
}


@versions_of(CASES)
@pytest.mark.sampled(5)
def test_selection(op: str, version: int) -> None:
    assert_examples_agree(CASES[op], op, version)
