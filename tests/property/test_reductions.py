"""Reductions, sums so far, and what normalises along an axis, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.property.agreement import Draw, Maker, assert_examples_agree, versions_of
from tests.property.case import Case
from tests.property.strategies import (
    Pool,
    chosen,
    drawn_array,
    drawn_axes,
    drawn_axis,
    drawn_shape,
    drawn_types,
    one_in,
    ordinary,
    parameters,
    placed,
    wild,
)

FEW = np.array([0.5, 1.0, 2.0, -1.0])
POSITIVE = np.arange(1, 17) / 4


def reduction(pool: Pool = ordinary, inputs_since: int = 18, scale: float = 0) -> Maker:
    def make(draw: Draw, op: str, opset: int) -> Case:
        x = drawn_array(draw, drawn_types(draw, op, opset)["T"], drawn_shape(draw), pool)
        axes = drawn_axes(draw, x.ndim)
        if opset < 11:
            axes = [axis % x.ndim for axis in axes]
        if one_in(draw, 16):
            axes = [*axes, x.ndim]
        given = {"axes": axes} if axes and draw(st.booleans()) else {}
        attributes = chosen(draw, {"keepdims": [0, 1]})
        if opset >= inputs_since:
            attributes |= chosen(draw, {"noop_with_empty_axes": [0, 1]})
            if one_in(draw, 8):
                given = {"axes": []}
        return parameters(
            draw, op, opset, [x], given, since=inputs_since, attributes=attributes, scale=scale
        )

    return make


def place(draw: Draw, op: str, opset: int) -> Case:
    shape = drawn_shape(draw, least=1)
    x = drawn_array(draw, drawn_types(draw, op, opset)["T"], shape)
    axis = draw(st.integers(0 if opset < 11 else -x.ndim, x.ndim - 1))
    given = {"axis": axis} if axis or draw(st.booleans()) else {}
    last = {"select_last_index": [0, 1]} if opset >= 12 else {}
    given |= chosen(draw, {"keepdims": [0, 1], **last})
    return Case(op, opset, (x,), given, **placed(draw, [x]))


def cumulative(draw: Draw, op: str, opset: int) -> Case:
    pool = ordinary if op == "CumSum" else FEW
    x = drawn_array(draw, drawn_types(draw, op, opset)["T"], drawn_shape(draw, least=1), pool)
    axis = np.array(drawn_axis(draw, x.ndim), draw(st.sampled_from([np.int32, np.int64])))
    inputs = (x, axis.reshape((1,)) if one_in(draw, 8) else axis)
    given = chosen(draw, {"exclusive": [0, 1], "reverse": [0, 1]})
    return Case(op, opset, inputs, given, scale=8, **placed(draw, inputs))


def along_axis(draw: Draw, op: str, opset: int) -> Case:
    pool = wild if op == "Hardmax" or one_in(draw, 4) else ordinary
    x = drawn_array(draw, drawn_types(draw, op, opset)["T"], drawn_shape(draw, least=1), pool)
    axis = draw(st.integers(0, x.ndim - 1)) if opset < 11 else drawn_axis(draw, x.ndim)
    given: dict[str, Any] = {"axis": axis}
    if (opset >= 13 or x.ndim > 1) and one_in(draw, 3):
        given = {}
    return Case(op, opset, (x,), given, ulps=8, scale=1, **placed(draw, [x]))


CASES = {
    "ReduceSum": reduction(inputs_since=13),
    **dict.fromkeys(["ReduceMax", "ReduceMin"], reduction(wild)),
    **dict.fromkeys(["ReduceMean", "ReduceSumSquare", "ReduceL1", "ReduceL2"], reduction(scale=4)),
    "ReduceProd": reduction(FEW),
    "ReduceLogSum": reduction(POSITIVE, scale=1),
    "ReduceLogSumExp": reduction(scale=4),
    **dict.fromkeys(["ArgMax", "ArgMin"], place),
    **dict.fromkeys(["CumSum", "CumProd"], cumulative),
    **dict.fromkeys(["Softmax", "LogSoftmax", "Hardmax"], along_axis),
}


@versions_of(CASES)
@pytest.mark.sampled(5)
def test_reductions(op: str, version: int) -> None:
    assert_examples_agree(CASES[op], op, version)
