"""onnxruntime has these operators on CUDA alone: they are compared with their definitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sardonyx.backends.base import Backend
from sardonyx.backends.jax.backend import JaxBackend
from sardonyx.backends.numpy import HOST
from sardonyx.ops import OPS
from tests.ops.microsoft.quantized import DOMAIN, floats, integers
from tests.ops.oracle import run

BY_COLUMN, BY_ROW, BY_32_COLUMNS = 0, 1, 2


def run_op(xp: Backend, name: str, *inputs: Any, **attributes: Any) -> np.ndarray:
    arrays = [None if value is None else np.asarray(value) for value in inputs]
    result: np.ndarray = run(xp, OPS[DOMAIN, name], *arrays, **attributes)
    return result


def to_int8(x: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(x), -128, 127).astype(np.int8)


def place(row: int, column: int, shape: tuple[int, int], order: int) -> int:
    """Where an element of a matrix lies in memory, by cuBLAS's documentation."""
    rows, columns = shape
    if order == BY_COLUMN:
        return column * rows + row
    if order == BY_ROW:
        return row * columns + column
    return column // 32 * 32 * rows + row * 32 + column % 32


@pytest.mark.parametrize("order", [BY_COLUMN, BY_ROW, BY_32_COLUMNS])
@pytest.mark.parametrize("shape", [(3, 64), (2, 5, 32), (96,)])
def test_elements_lie_in_their_order(xp: Backend, shape: Any, order: int) -> None:
    x, scale = floats(*shape), np.float32(0.02)
    y = run_op(xp, "QuantizeWithOrder", x, scale, order_input=BY_ROW, order_output=order)
    rows, columns = (1, *shape)[-2:]
    plain = to_int8(x / scale).reshape(-1, rows, columns)
    expected = np.empty((len(plain), rows * columns), np.int8)
    for row in range(rows):
        for column in range(columns):
            expected[:, place(row, column, (rows, columns), order)] = plain[:, row, column]
    np.testing.assert_array_equal(y, expected.reshape(shape))
    back = run_op(
        xp,
        "DequantizeWithOrder",
        *(y, scale),
        order_input=order,
        order_output=BY_ROW,
        to=np.dtype(np.float32),
    )
    np.testing.assert_array_equal(back, plain.reshape(shape) * scale)


def test_products_of_rows_and_columns(xp: Backend) -> None:
    a, b, c = integers(np.int8, 2, 5, 32), integers(np.int8, 32, 8), integers(np.int8, 5, 8)
    bias, scale_b = floats(8) * 10, np.linspace(0.01, 0.03, 8).astype(np.float32)
    in_memory = np.ascontiguousarray(b.T).reshape(b.shape)
    orders = {"order_A": BY_ROW, "order_B": BY_COLUMN, "order_Y": BY_ROW}
    product = (a.astype(np.int64) @ b.astype(np.int64)) * (0.1 * scale_b.astype(np.float64)) / 3.1
    scales = (np.float32(0.1), in_memory, scale_b, np.float32(3.1))
    y = run_op(xp, "QOrderedMatMul", a, *scales, **orders)
    np.testing.assert_array_equal(y, to_int8(product))
    y = run_op(xp, "QOrderedMatMul", a, *scales, bias, c, np.float32(0.7), **orders)
    np.testing.assert_array_equal(y, to_int8(product + bias + c * (0.7 / 3.1)))


def test_gelu(xp: Backend) -> None:
    x = np.arange(-128, 128).astype(np.int8)
    y = run_op(xp, "QOrderedGelu", x, np.float32(0.03), np.float32(0.021))
    value = x * 0.03
    gelu = value / 2 * (1 + np.array([math.erf(v / math.sqrt(2)) for v in value]))
    np.testing.assert_array_equal(y, to_int8(gelu / 0.021))


# array_api_strict has no float16.
@pytest.mark.parametrize("backend", [HOST, JaxBackend()], ids=lambda backend: backend.name)
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_normalization(backend: Backend, dtype: Any) -> None:
    x, scale, bias = integers(np.int8, 2, 3, 16), floats(16), floats(16, seed=1)
    scale, bias = scale.astype(dtype), bias.astype(dtype)
    inputs = (x, np.float32(0.03), scale, bias, np.float32(0.013))
    y = run_op(backend, "QOrderedLayerNormalization", *inputs)
    value = x * 0.03
    deviation = value - value.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt((deviation**2).mean(-1, keepdims=True) + 1e-5)
    expected = deviation * inverse * scale.astype(np.float64) + bias
    np.testing.assert_array_equal(y, to_int8(expected / 0.013))


X, ONE = np.zeros((2, 8), np.int8), np.ones((), np.float32)


@pytest.mark.parametrize(
    ("name", "inputs", "attributes", "message"),
    [
        (
            "QuantizeWithOrder",
            (floats(2, 8), ONE),
            {"order_input": BY_ROW, "order_output": BY_32_COLUMNS},
            "multiple of 32",
        ),
        ("QuantizeWithOrder", (X, ONE), {"order_input": 0, "order_output": 1}, "order_input"),
        ("QuantizeWithOrder", (X, ONE), {"order_input": 1, "order_output": 3}, "order_output"),
        (
            "QOrderedMatMul",
            (X, ONE, X, ONE, ONE),
            {"order_A": 1, "order_B": 0, "order_Y": 1},
            "cannot be multiplied",
        ),
        (
            "QOrderedMatMul",
            (X, ONE, X.T, ONE, ONE),
            {"order_A": 2, "order_B": 3, "order_Y": 2},
            "order_A",
        ),
        ("QOrderedGelu", (X, ONE, ONE), {"order_X": 1, "order_Y": 2}, "order_Y"),
    ],
)
def test_refusals(xp: Backend, name: str, inputs: Any, attributes: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_op(xp, name, *inputs, **attributes)
