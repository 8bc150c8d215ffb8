"""Operators on int8 matrices whose elements lie in memory in one of cuBLAS's orders.

An array of another order has the shape of the matrix, but its elements, row by row, are those of
the matrix in that order: column by column, or 32 columns at a time, row by row.
"""

from __future__ import annotations

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops import activation, normalization
from sardonyx.ops.axes import axis_within, require_broadcasts, require_shape
from sardonyx.ops.definition import DType, op
from sardonyx.ops.dtypes import FLOAT32
from sardonyx.ops.linalg import require_factors
from sardonyx.ops.microsoft.quantized_values import dequantized
from sardonyx.ops.options import require_one_of
from sardonyx.ops.quantization import quantized, single_number

DOMAIN = "com.microsoft"
INT8 = np.dtype(np.int8)
BY_COLUMN, BY_ROW, BY_32_COLUMNS = 0, 1, 2


@op(domain=DOMAIN)
def QuantizeWithOrder(
    xp: Backend, input: Array, scale_input: Array, *, order_input: int, order_output: int
) -> Array:
    require_one_of("order_input", order_input, (BY_ROW,))
    y = _in_units(xp, xp.astype(input, xp.dtype(FLOAT32)), scale_input)
    return _in_order(xp, y, order_output)


@op(domain=DOMAIN)
def DequantizeWithOrder(
    xp: Backend, input: Array, scale_input: Array, *, order_input: int, order_output: int, to: DType
) -> Array:
    require_one_of("order_output", order_output, (BY_ROW,))
    x = _by_row(xp, input, order_input)
    return xp.astype(dequantized(xp, x, scale_input, None), xp.dtype(to))


@op(domain=DOMAIN)
def QOrderedGelu(
    xp: Backend,
    X: Array,
    scale_X: Array,
    scale_Y: Array,
    *,
    order_X: int | None = None,
    order_Y: int | None = None,
) -> Array:
    if None not in (order_X, order_Y):
        require_one_of("order_Y", order_Y, (order_X,))
    return _in_units(xp, activation.Gelu(xp, dequantized(xp, X, scale_X, None)), scale_Y)


@op(domain=DOMAIN)
def QOrderedLayerNormalization(
    xp: Backend,
    X: Array,
    scale_X: Array,
    scale: Array,
    B: Array | None,
    scale_Y: Array,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    order_X: int = BY_ROW,
    order_Y: int = BY_ROW,
) -> Array:
    require_one_of("order_X", order_X, (BY_ROW,))
    require_one_of("order_Y", order_Y, (BY_ROW,))
    float32 = xp.dtype(FLOAT32)
    x = dequantized(xp, X, scale_X, None)
    gamma = xp.astype(scale, float32)
    beta = None if B is None else xp.astype(B, float32)
    axis = axis_within(axis, X.ndim)
    y, _, _ = normalization.LayerNormalization(xp, x, gamma, beta, axis=axis, epsilon=epsilon)
    return _in_units(xp, y, scale_Y)


@op(domain=DOMAIN)
def QOrderedMatMul(
    xp: Backend,
    A: Array,
    scale_A: Array,
    B: Array,
    scale_B: Array,
    scale_Y: Array,
    bias: Array | None = None,
    C: Array | None = None,
    scale_C: Array | None = None,
    *,
    order_A: int,
    order_B: int,
    order_Y: int,
) -> Array:
    """Multiply rows by columns; the bias counts in units of the result."""
    require_one_of("order_A", order_A, (BY_ROW,))
    require_one_of("order_B", order_B, (BY_COLUMN,))
    require_one_of("order_Y", order_Y, (BY_ROW,))
    require_factors(A, B)
    unit = single_number(xp, scale_Y)
    factor = xp.quotient(single_number(xp, scale_A) * scale_B, unit)
    product = xp.integer_matmul(A, _by_row(xp, B, order_B))
    require_broadcasts("scale_B", factor, product.shape[-1:])
    y = xp.astype(product, xp.dtype(FLOAT32)) * factor
    if bias is not None:
        require_shape("bias", bias, product.shape[-1:])
        y = y + bias
    if C is not None:
        if scale_C is None:
            raise ValueError("the input C needs scale_C; add this input")
        require_broadcasts("C", C, product.shape)
        y = y + xp.astype(C, y.dtype) * xp.quotient(single_number(xp, scale_C), unit)
    return quantized(xp, y, None, INT8)


def _in_units(xp: Backend, x: Array, scale: Array) -> Array:
    return quantized(xp, xp.quotient(x, single_number(xp, scale)), None, INT8)


# -- orders ---------------------------------------------------------------------------------------


def _in_order(xp: Backend, x: Array, order: int) -> Array:
    """Return the elements of matrices in another order, in an array of the same shape."""
    require_one_of("order_output", order, (BY_COLUMN, BY_ROW, BY_32_COLUMNS))
    if order == BY_ROW:
        return x
    if order == BY_COLUMN:
        return xp.reshape(xp.matrix_transpose(_matrices(xp, x)), x.shape)
    *_, rows, columns = _matrices(xp, x).shape
    _require_32(columns)
    blocks = xp.reshape(x, (-1, rows, columns // 32, 32))
    return xp.reshape(xp.permute_dims(blocks, (0, 2, 1, 3)), x.shape)


def _by_row(xp: Backend, x: Array, order: int) -> Array:
    """Return matrices whose elements are in this order row by row again."""
    require_one_of("order_input", order, (BY_COLUMN, BY_ROW, BY_32_COLUMNS))
    if order == BY_ROW:
        return x
    *outer, rows, columns = _matrices(xp, x).shape
    if order == BY_COLUMN:
        by_column = xp.reshape(x, (*outer, columns, rows))
        return xp.reshape(xp.matrix_transpose(by_column), x.shape)
    _require_32(columns)
    blocks = xp.reshape(x, (-1, columns // 32, rows, 32))
    return xp.reshape(xp.permute_dims(blocks, (0, 2, 1, 3)), x.shape)


def _matrices(xp: Backend, x: Array) -> Array:
    return x if x.ndim > 1 else xp.reshape(x, (1, -1))


def _require_32(columns: int) -> None:
    if columns % 32:
        raise ValueError(f"there are {columns} columns, but this order needs a multiple of 32")
