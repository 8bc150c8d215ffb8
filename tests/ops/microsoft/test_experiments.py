"""The operators that early versions of ONNX tried out, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sardonyx
from sardonyx.backends.base import Backend
from sardonyx.errors import InvalidInput, InvalidModel, UnsupportedModel
from tests.ops.oracle import assert_same, onnxruntime_run
from tests.support.raises import refused
from tests.support.types_present import needs

X = np.random.default_rng(0).normal(0, 3, (3, 4)).astype(np.float32)
IMAGE = np.random.default_rng(1).normal(0, 3, (2, 3, 4, 5)).astype(np.float32)
ROW = np.array([1], np.int64)
SOFTPLUS = {"alpha": 2.0, "beta": 0.5}

CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("Affine", [X], {}),
    ("Affine", [X], {"alpha": 2.5, "beta": -1.5}),
    ("Affine", [X.astype(np.float16)], {"alpha": 0.3, "beta": 0.7}),
    ("Scale", [X], {}),
    ("Scale", [X.astype(np.float16)], {"scale": 0.3}),
    ("ScaledTanh", [X], {"alpha": 2.0, "beta": 0.5}),
    ("ScaledTanh", [X[:0]], {"alpha": 2.0, "beta": 0.5}),
    ("ParametricSoftplus", [X], SOFTPLUS),
    ("ParametricSoftplus", [np.float32([1000, -1000, 0, np.nan])], SOFTPLUS),
    ("ImageScaler", [IMAGE], {"bias": [1.0, 2.0, 3.0], "scale": 0.3}),
    ("ImageScaler", [IMAGE.astype(np.float16)], {"bias": [0.1, 0.2, 0.3]}),
    ("Crop", [IMAGE], {"border": [1, 1, 1, 2]}),
    ("Crop", [IMAGE], {"border": [1, 1, 3, 3]}),
    ("Crop", [IMAGE], {"border": [1, 2, 9, 9], "scale": [2, 3]}),
    ("Crop", [IMAGE], {"border": [1, 2, 0, 0], "scale": [0, 1]}),
    ("ThresholdedRelu", [X], {}),
    ("ThresholdedRelu", [X], {"alpha": 0.5}),
    ("MeanVarianceNormalization", [IMAGE], {}),
    ("MeanVarianceNormalization", [IMAGE], {"across_channels": 1}),
    ("MeanVarianceNormalization", [IMAGE], {"normalize_variance": 0}),
    ("MeanVarianceNormalization", [IMAGE[0]], {"across_channels": 1}),
    ("MeanVarianceNormalization", [IMAGE[None]], {}),
    ("DynamicSlice", [X, ROW, ROW + 1], {}),
    ("DynamicSlice", [X.astype(np.int64), ROW, ROW * 99, ROW.astype(np.int32)], {}),
    ("DynamicSlice", [X, ROW, -ROW, -ROW], {}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "inputs", "attributes"), CASES, ids=[op for op, *_ in CASES])
@pytest.mark.parametrize("opset", [6, 8])
@pytest.mark.sampled(2)
def test_as_onnxruntime(
    xp: Backend, op: str, inputs: list[Any], attributes: dict[str, Any], opset: int
) -> None:
    needs(xp, inputs[0].dtype)
    if op == "DynamicSlice":
        inputs = [inputs[0], *(each.astype(inputs[-1].dtype) for each in inputs[1:])]
    expected = onnxruntime_run(op, *inputs, opset=opset, **attributes)
    found = sardonyx.run_op(op, *inputs, opset=opset, backend=xp, **attributes)
    assert_same(np.asarray(found), expected, ulps=8)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "words"),
    [
        ("Crop", [IMAGE], {"border": [1, 1, 1]}, ["border"]),
        ("Crop", [IMAGE], {"border": [-1, 0, 0, 0]}, ["border"]),
        ("Crop", [IMAGE], {"border": [3, 0, 3, 0]}, ["too small", "border"]),
        ("Crop", [IMAGE], {"border": [0, 0, 0, 0], "scale": [5, 1]}, ["too small", "scale"]),
        ("Crop", [IMAGE], {"border": [0, 0, 0, 0], "scale": [2]}, ["scale"]),
        ("Crop", [X], {"border": [0, 0, 0, 0]}, ["four axes"]),
        ("ImageScaler", [IMAGE], {"bias": [1.0]}, ["bias", "3 channels"]),
        ("ImageScaler", [X], {"bias": [1.0]}, ["four axes"]),
        ("DynamicSlice", [X, ROW, ROW, ROW * 2], {}, ["axis 2"]),
    ],
)
def test_what_does_not_fit(
    xp: Backend, op: str, inputs: list[Any], attributes: dict[str, Any], words: list[str]
) -> None:
    with refused(InvalidInput, op, *words):
        sardonyx.run_op(op, *inputs, opset=7, backend=xp, **attributes)


@pytest.mark.parametrize("op", ["ScaledTanh", "ParametricSoftplus"])
def test_attributes_that_onnxruntime_requires(op: str) -> None:
    with refused(InvalidModel, op, "'alpha'"):
        sardonyx.run_op(op, X, opset=7, beta=1.0)


@pytest.mark.parametrize("op", ["Affine", "Crop", "DynamicSlice", "ImageScaler", "Scale"])
def test_later_opsets_do_not_have_them(op: str) -> None:
    with refused(UnsupportedModel, op, "opset 10", "only below 10"):
        sardonyx.run_op(op, X, opset=10)
