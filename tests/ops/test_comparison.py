from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.numpy import HOST
from sardonyx.ops import comparison as ops
from tests.ops.oracle import assert_same, run
from tests.support.types_present import lacks

ORDERS = [
    (ops.Equal, np.equal),
    (ops.Greater, np.greater),
    (ops.GreaterOrEqual, np.greater_equal),
    (ops.Less, np.less),
    (ops.LessOrEqual, np.less_equal),
]
DTYPES = [
    *(np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, np.float32, np.float64, ml_dtypes.bfloat16),
]


@pytest.mark.parametrize(("op", "oracle"), ORDERS, ids=lambda v: getattr(v, "name", None))
def test_orders(xp: Backend, op: Any, oracle: Any) -> None:
    for dtype in DTYPES:
        if lacks(xp, dtype):
            continue
        a, b = np.arange(5).astype(dtype), np.array([[1], [3]], dtype)
        assert_same(run(xp, op, a, b), oracle(a, b))


@pytest.mark.parametrize(("op", "oracle"), ORDERS, ids=lambda v: getattr(v, "name", None))
def test_nan_compares_with_nothing(xp: Backend, op: Any, oracle: Any) -> None:
    a = np.array([np.nan, 0.0, np.inf], np.float32)
    b = np.array([np.nan, -0.0, np.inf], np.float32)
    assert_same(run(xp, op, a, b), oracle(a, b))


@pytest.mark.parametrize(
    ("op", "oracle"),
    [
        (ops.And, np.logical_and),
        (ops.Or, np.logical_or),
        (ops.Xor, np.logical_xor),
        (ops.Equal, np.equal),
    ],
    ids=lambda v: getattr(v, "name", None),
)
def test_truth_values(xp: Backend, op: Any, oracle: Any) -> None:
    a, b = np.array([[True], [False]]), np.array([True, False])
    assert_same(run(xp, op, a, b), oracle(a, b))
    wide, along = np.ones((2, 3), bool), np.array([True, False])
    expected = oracle(wide, along[:, None])
    assert_same(run(xp, op, wide, along, opset=6, axis=0, broadcast=1), expected)


def test_equal_strings() -> None:
    a, b = np.array(["a", "b"], object), np.array([["b"], ["a"]], object)
    assert_same(run(HOST, ops.Equal, a, b), np.array([[False, True], [True, False]]))
    assert_same(run(HOST, ops.Equal, a[0:1].reshape(()), b[1, 0:1].reshape(())), np.array(True))


@pytest.mark.parametrize("op", [ops.Greater, ops.Less, ops.Equal], ids=lambda op: op.name)
def test_order_along_an_axis_before_7(xp: Backend, op: Any) -> None:
    a, b = np.arange(6).reshape(2, 3).astype(np.int32), np.array([1, 4], np.int32)
    expected = run(HOST, op, a, b[:, None])
    assert_same(run(xp, op, a, b, opset=1, axis=0, broadcast=1), expected)
