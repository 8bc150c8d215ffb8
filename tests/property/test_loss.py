"""Losses, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.property.agreement import Draw, assert_examples_agree, versions_of
from tests.property.case import Case
from tests.property.strategies import (
    chosen,
    drawn_array,
    drawn_shape,
    drawn_types,
    one_in,
    placed,
)

POSITIVE = np.arange(1, 9) / 4


def loss(draw: Draw, op: str, opset: int) -> Case:
    types = drawn_types(draw, op, opset)
    classes, batch = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    spatial = drawn_shape(draw, most=3, empty=False)
    x = drawn_array(draw, types["T"], (batch, classes, *spatial))
    labels: Any = range(classes)
    given = chosen(draw, {"reduction": ["none", "sum", "mean"]})
    if one_in(draw, 2):
        given["ignore_index"] = draw(st.sampled_from([-1, 0, classes, 255]))
        labels = [*labels, given["ignore_index"]]
    shape = (batch + one_in(draw, 24), *spatial)
    target = drawn_array(draw, types["Tind"], shape, labels)
    weight = drawn_array(draw, types["T"], (classes,), POSITIVE) if draw(st.booleans()) else None
    outputs = draw(st.integers(1, 2)) if op == "SoftmaxCrossEntropyLoss" else 1
    inputs = (x, target, weight)
    return Case(op, opset, inputs, given, outputs=outputs, ulps=8, scale=8, **placed(draw, inputs))


CASES = dict.fromkeys(["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"], loss)


@versions_of(CASES)
def test_loss(op: str, version: int) -> None:
    assert_examples_agree(CASES[op], op, version)
