"""Quantization in the domain com.microsoft, and functions of each element of quantized arrays."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops import activation, quantization
from sardonyx.ops.axes import axis_within
from sardonyx.ops.definition import Ints, op
from sardonyx.ops.dtypes import FLOAT32, FLOAT64
from sardonyx.ops.microsoft.quantized_values import (
    dequantized,
    dtype_of,
    float_zero,
    in_units,
    multiply_add,
    product,
    require_integers,
    wide_value,
)
from sardonyx.ops.quantization import quantized, single_number

DOMAIN = "com.microsoft"


@op(domain=DOMAIN)
def QuantizeLinear(
    xp: Backend, x: Array, y_scale: Array, y_zero_point: Array | None = None, *, axis: int = 1
) -> Array:
    return quantization.QuantizeLinear(xp, x, y_scale, y_zero_point, axis=axis)


@op(domain=DOMAIN)
def DequantizeLinear(
    xp: Backend, x: Array, x_scale: Array, x_zero_point: Array | None = None, *, axis: int = 1
) -> Array:
    return quantization.DequantizeLinear(xp, x, x_scale, x_zero_point, axis=axis)


# -- sums and products ----------------------------------------------------------------------------


@op(domain=DOMAIN)
def QLinearAdd(
    xp: Backend,
    A: Array,
    A_scale: Array,
    A_zero_point: Array | None,
    B: Array,
    B_scale: Array,
    B_zero_point: Array | None,
    C_scale: Array,
    C_zero_point: Array | None = None,
) -> Array:
    """Add multiples of the integers themselves; one constant stands for all zero points."""
    require_integers(xp, A, B)
    scale = single_number(xp, C_scale)
    a, b = (xp.quotient(single_number(xp, s), scale) for s in (A_scale, B_scale))
    zeros = product(xp, b, float_zero(xp, B_zero_point))
    zeros = multiply_add(xp, a, float_zero(xp, A_zero_point), zeros)
    # onnxruntime adds A last, unless it is one number for each row, which it adds to the constant.
    terms = [(B, b), (A, a)]
    if _is_constant_in_rows(A, np.broadcast_shapes(A.shape, B.shape)):
        terms.reverse()
    total = float_zero(xp, C_zero_point) - zeros
    for x, factor in terms:
        total = multiply_add(xp, x, factor, total)
    return quantized(xp, total, None, dtype_of(xp, A))


def _is_constant_in_rows(x: Array, shape: Ints) -> bool:
    """Return whether `x` has one element along the last axis of `shape` that has several."""
    sizes = (*(1,) * (len(shape) - x.ndim), *x.shape)
    along = [size for size, whole in zip(sizes, shape, strict=True) if whole > 1]
    return bool(along) and along[-1] == 1


@op(domain=DOMAIN)
def QLinearMul(
    xp: Backend,
    A: Array,
    A_scale: Array,
    A_zero_point: Array | None,
    B: Array,
    B_scale: Array,
    B_zero_point: Array | None,
    C_scale: Array,
    C_zero_point: Array | None = None,
) -> Array:
    scale = single_number(xp, A_scale) * single_number(xp, B_scale)
    scale = xp.quotient(scale, single_number(xp, C_scale))
    integers = wide_value(xp, A, A_zero_point) * wide_value(xp, B, B_zero_point)
    y = product(xp, integers, scale) + float_zero(xp, C_zero_point)
    return quantized(xp, y, None, dtype_of(xp, A))


@op(domain=DOMAIN)
def MulInteger(
    xp: Backend,
    A: Array,
    A_zero_point: Array | None,
    B: Array,
    B_zero_point: Array | None = None,
) -> Array:
    return wide_value(xp, A, A_zero_point) * wide_value(xp, B, B_zero_point)


# -- activations ----------------------------------------------------------------------------------


@op(domain=DOMAIN)
def QLinearSigmoid(
    xp: Backend,
    X: Array,
    X_scale: Array,
    X_zero_point: Array | None,
    Y_scale: Array,
    Y_zero_point: Array | None = None,
) -> Array:
    y = activation.Sigmoid(xp, dequantized(xp, X, X_scale, X_zero_point))
    return in_units(xp, y, Y_scale, Y_zero_point, X)


@op(domain=DOMAIN)
def QLinearLeakyRelu(
    xp: Backend,
    X: Array,
    X_scale: Array,
    X_zero_point: Array | None,
    Y_scale: Array,
    Y_zero_point: Array | None = None,
    *,
    alpha: float = 0.01,
) -> Array:
    y = activation.LeakyRelu(xp, dequantized(xp, X, X_scale, X_zero_point), alpha=alpha)
    return in_units(xp, y, Y_scale, Y_zero_point, X)


@op(domain=DOMAIN)
def QLinearSoftmax(
    xp: Backend,
    X: Array,
    X_scale: Array,
    x_zero_point: Array | None,
    y_scale: Array,
    y_zero_point: Array,
    *,
    opset: int,
    axis: int = -1,
) -> Array:
    """Normalise over one axis, or, for an `opset` below 13, over all axes from `axis` on.

    The zero point of `X` cancels out.
    """
    axis = axis_within(axis, X.ndim)
    if not X.size:
        return X
    if opset < 13:
        rows = xp.reshape(X, (math.prod(X.shape[:axis]), math.prod(X.shape[axis:])))
        return xp.reshape(_shares(xp, rows, X_scale, y_scale, y_zero_point, axis=1), X.shape)
    return _shares(xp, X, X_scale, y_scale, y_zero_point, axis=axis)


def _shares(
    xp: Backend, X: Array, X_scale: Array, y_scale: Array, y_zero_point: Array, *, axis: int
) -> Array:
    x = wide_value(xp, X, None)
    below = xp.max(x, axis=axis, keepdims=True) - x
    table = _exponentials(xp, single_number(xp, X_scale), X.shape[axis])
    e = xp.reshape(xp.take_in_range(table, xp.reshape(below, (-1,))), X.shape)
    total = xp.sum(xp.astype(e, xp.dtype(FLOAT64)), axis=axis, keepdims=True)
    scale = single_number(xp, y_scale)
    # onnxruntime counts whole units in 1, whatever the scale.
    units = xp.floor(xp.quotient(xp.ones_like(scale), scale))
    y = xp.quotient(e * units, xp.astype(total, e.dtype))
    return quantized(xp, y, float_zero(xp, y_zero_point), dtype_of(xp, X))


def _exponentials(xp: Backend, scale: Array, terms: int) -> Array:
    """Return the exponentials of 0, -1, -2, ... units, times a number that the quotient cancels.

    It is the largest with which float32 still holds a sum of so many terms.
    """
    float64 = xp.dtype(FLOAT64)
    # The logarithm is the device's: a program for many sizes has only numbers linear in them.
    largest = math.log(float(np.finfo(FLOAT32).max)) - 5
    room = xp.maximum(largest - xp.log(xp.asarray(float(terms), dtype=float64)), 0.0)
    powers = xp.exp(room - xp.arange(256, dtype=float64) * xp.astype(scale, float64))
    return xp.astype(powers, xp.dtype(FLOAT32))


# -- joined and chosen ----------------------------------------------------------------------------


@op(domain=DOMAIN)
def QLinearConcat(
    xp: Backend, Y_scale: Array, Y_zero_point: Array, *inputs: Array, axis: int
) -> Array:
    """Concatenate arrays, of which each is followed by its scale and its zero point."""
    if len(inputs) < 3 or len(inputs) % 3:
        raise ValueError(
            f"inputs are {len(inputs)} arrays, but must be arrays, scales and zero points in turn"
        )
    axis = axis_within(axis, inputs[0].ndim)
    parts = zip(inputs[0::3], inputs[1::3], inputs[2::3], strict=True)
    return xp.concat(
        [in_units(xp, dequantized(xp, *part), Y_scale, Y_zero_point, part[0]) for part in parts],
        axis=axis,
    )


@op(domain=DOMAIN)
def QLinearWhere(
    xp: Backend,
    condition: Array,
    X: Array,
    x_scale: Array,
    x_zero_point: Array,
    Y: Array,
    y_scale: Array,
    y_zero_point: Array,
    z_scale: Array,
    z_zero_point: Array,
) -> Array:
    x = in_units(xp, dequantized(xp, X, x_scale, x_zero_point), z_scale, z_zero_point, X)
    y = in_units(xp, dequantized(xp, Y, y_scale, y_zero_point), z_scale, z_zero_point, Y)
    return xp.where(condition, x, y)
