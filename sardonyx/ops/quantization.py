"""Quantization, dequantization, and products of quantized arrays."""

from __future__ import annotations

import math
from typing import Annotated, Any

import ml_dtypes
import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.dtypes import isdtype
from sardonyx.backends.operations.numbers import Levels
from sardonyx.backends.operations.products import PreparedFactor
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import axis_within, require_broadcasts, sliced
from sardonyx.ops.casting import Cast
from sardonyx.ops.convolution import windows_of_filters, with_bias
from sardonyx.ops.definition import DType, Ints, op
from sardonyx.ops.dtypes import FLOAT32, FLOAT64, INT32, UINT8
from sardonyx.ops.fused_products import convolution_by_finite
from sardonyx.ops.linalg import require_factors
from sardonyx.ops.precision import wide
from sardonyx.ops.prepared_factors import centred_product_with
from sardonyx.ops.windows import Layout, Windows

# -- element by element ---------------------------------------------------------------------------


@op
def QuantizeLinear(
    xp: Backend,
    x: Array,
    y_scale: Array,
    y_zero_point: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: DType | None = None,
    precision: DType | None = None,
    saturate: int = 1,
) -> Array:
    to = _quantized_type(xp, y_zero_point, output_dtype)
    dtype = xp.dtype(_dtype_of_division(xp, x, y_scale, precision))
    _check_granularity(y_scale, y_zero_point)
    scale = spread(xp, xp.astype(y_scale, dtype), x.shape, axis, block_size)
    quotient = wide(xp, xp.quotient(xp.astype(x, dtype), scale))
    if y_zero_point is not None:
        zero = xp.astype(y_zero_point, quotient.dtype)
        y_zero_point = spread(xp, zero, x.shape, axis, block_size)
    return quantized(xp, quotient, y_zero_point, to, saturate=saturate)


@op
def DequantizeLinear(
    xp: Backend,
    x: Array,
    x_scale: Array,
    x_zero_point: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: DType | None = None,
) -> Array:
    """Multiply in float32, which represents all differences of short integers, and round once."""
    to = output_dtype or xp.numpy_dtype(x_scale.dtype)
    if not _is_precise(to):
        raise ValueError(f"the result cannot be {to}: set output_dtype to a floating-point type")
    _check_granularity(x_scale, x_zero_point)
    is_integral = xp.isdtype(x.dtype, "integral")
    exact, float32 = xp.dtype(INT32 if is_integral else FLOAT32), xp.dtype(FLOAT32)
    scale = spread(xp, xp.astype(x_scale, float32), x.shape, axis, block_size)

    def scaled(x: Array, scale: Array) -> Array:
        difference = xp.astype(x, exact)
        if x_zero_point is not None:
            zero = xp.astype(x_zero_point, exact)
            difference = difference - spread(xp, zero, x.shape, axis, block_size)
        return xp.astype(xp.astype(difference, float32) * scale, xp.dtype(to))

    is_plain = x_zero_point is None and to == xp.numpy_dtype(x_scale.dtype)
    return xp.scaled_like(scaled, x, scale, to) if is_plain else scaled(x, scale)


def quantized_and_back(
    xp: Backend, x: Array, scale: Array, zero_point: Array, *, levels: Levels
) -> Array:
    """Quantize floats to integers of the zero point's type, and dequantize these.

    The levels are all results that there can be, and have the same scale and zero point.
    """
    if xp.has_kernels_of_levels(x):
        return xp.nearest_levels(x, levels)
    return DequantizeLinear(xp, QuantizeLinear(xp, x, scale, zero_point), scale, zero_point)


@op
def DynamicQuantizeLinear(xp: Backend, x: Array) -> tuple[Array, Array, Array]:
    """Quantize to uint8, with a scale and zero point that cover zero and all of `x`."""
    zero = xp.zeros((), dtype=x.dtype)
    low = xp.minimum(xp.min(x), zero) if x.size else zero
    high = xp.maximum(xp.max(x), zero) if x.size else zero
    scale = xp.quotient(high - low, 255.0)
    # Where all elements are zero, any scale is right.
    scale = xp.where(xp.equal(high, low), xp.ones_like(scale), scale)
    zero_point = quantized(xp, xp.quotient(-low, scale), None, UINT8)
    return QuantizeLinear(xp, x, scale, zero_point), scale, zero_point


QUANTIZED_TYPES = frozenset(
    np.dtype(getattr(ml_dtypes, name, name))
    for name in (
        *("int2", "int4", "int8", "int16", "uint2", "uint4", "uint8", "uint16"),
        *("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    )
)


def _quantized_type(xp: Backend, zero_point: Array | None, output_dtype: DType | None) -> DType:
    dtype = output_dtype or UINT8 if zero_point is None else xp.numpy_dtype(zero_point.dtype)
    if output_dtype not in (None, dtype):
        raise ValueError(f"output_dtype is {output_dtype}, but the zero point is {dtype}")
    if dtype not in QUANTIZED_TYPES:
        raise ValueError(f"{dtype} is not a quantized type")
    return dtype


def _dtype_of_division(xp: Backend, x: Array, scale: Array, precision: DType | None) -> DType:
    """Return the scale's dtype, or a wider one if that is too narrow to divide in."""
    dtype = precision or xp.numpy_dtype(scale.dtype)
    if _is_precise(dtype):
        return dtype
    if precision is not None:
        raise ValueError(f"precision is {precision}, but must be a float of 16 bits or more")
    return FLOAT64 if xp.isdtype(x.dtype, "integral") else FLOAT32


def _is_precise(dtype: DType) -> bool:
    return isdtype(dtype, "real floating") and dtype.itemsize > 1


def quantized(
    xp: Backend, x: Array, zero_point: Array | None, to: DType, *, saturate: int = 1
) -> Array:
    """Convert floats in units of the scale to `to`; the zero point has the floats' dtype."""
    if not isdtype(to, "integral"):
        moved = x if zero_point is None else x + zero_point
        return Cast(xp, moved, to=to, saturate=saturate)
    x = xp.round(x)
    moved = x if zero_point is None else x + zero_point
    bounds = ml_dtypes.iinfo(to)
    within = xp.minimum(xp.maximum(moved, float(bounds.min)), float(bounds.max))
    return Cast(xp, within, to=to)


# -- scales per tensor, axis or block -------------------------------------------------------------


def _check_granularity(scale: Array, zero_point: Array | None) -> None:
    if zero_point is None or scale.shape == zero_point.shape:
        return
    if scale.size != 1 or zero_point.size != 1:
        raise ValueError(
            f"the scale has shape {scale.shape}, but the zero point has {zero_point.shape}"
        )


def spread(xp: Backend, value: Array, shape: Ints, axis: int, block_size: int) -> Array:
    """Return a scale or zero point reshaped and repeated so that it broadcasts to `shape`.

    One number applies to all elements, a vector to `axis`, and any other array to blocks.
    """
    if block_size < 0:
        raise ValueError(f"block_size is {block_size}, but must not be negative")
    if value.shape in ((), (1,)):
        return xp.reshape(value, ())
    axis = axis_within(axis, len(shape))
    length = shape[axis]
    if not block_size:
        if value.shape != (length,):
            raise ValueError(
                f"a scale or zero point of shape {value.shape} does not fit axis {axis} of "
                f"{shape}: without block_size it needs shape {(length,)}"
            )
        return xp.reshape(value, (length, *(1,) * (len(shape) - axis - 1)))
    blocks = (*shape[:axis], -(-length // block_size), *shape[axis + 1 :])
    if value.shape != blocks:
        raise ValueError(
            f"a scale or zero point of shape {value.shape} does not fit {shape} in blocks of "
            f"{block_size} along axis {axis}: it needs shape {blocks}"
        )
    repeated = xp.repeat(value, min(block_size, max(length, 1)), axis=axis)
    return sliced(repeated, axis, 0, length)


# -- products of matrices -------------------------------------------------------------------------


@op
def MatMulInteger(
    xp: Backend,
    A: Array,
    B: Array,
    a_zero_point: Array | None = None,
    b_zero_point: Array | None = None,
) -> Array:
    a, b = as_matrices(xp, A, B)
    a_zero_point, b_zero_point = per_row(xp, a_zero_point, a), per_column(xp, b_zero_point, b)
    return as_product(xp, centred_product(xp, a, a_zero_point, b, b_zero_point), A, B)


@op
def QLinearMatMul(
    xp: Backend,
    a: Array,
    a_scale: Array,
    a_zero_point: Array,
    b: Array,
    b_scale: Array,
    b_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
) -> Array:
    rows, columns = as_matrices(xp, a, b)
    product = centred_product(
        xp, rows, per_row(xp, a_zero_point, rows), columns, per_column(xp, b_zero_point, columns)
    )
    y = requantized(
        xp,
        product,
        per_row(xp, a_scale, rows),
        per_column(xp, b_scale, columns),
        per_row(xp, y_scale, product),
        per_row(xp, y_zero_point, product),
    )
    return as_product(xp, y, a, b)


def as_matrices(xp: Backend, a: Array, b: Array) -> tuple[Array, Array]:
    """Return both factors as matrices: a vector is a row on the left, a column on the right."""
    require_factors(a, b)
    rows = xp.reshape(a, (1, -1)) if a.ndim == 1 else a
    columns = xp.reshape(b, (-1, 1)) if b.ndim == 1 else b
    stacks = zip(rows.shape[-3::-1], columns.shape[-3::-1], strict=False)
    if any(n != m and 1 not in (n, m) for n, m in stacks):
        raise ValueError(f"shapes {a.shape} and {b.shape} do not broadcast before their last axes")
    return rows, columns


def as_product(xp: Backend, y: Array, a: Array, b: Array) -> Array:
    """Return `y` without the axes that `as_matrices` added to vectors."""
    rows = y.shape[-2:-1] if a.ndim > 1 else ()
    columns = y.shape[-1:] if b.ndim > 1 else ()
    return xp.reshape(y, (*y.shape[:-2], *rows, *columns))


def per_row(xp: Backend, value: Any, matrices: Array) -> Any:
    """Return a scale or zero point that broadcasts along the rows of matrices."""
    return _along(xp, value, (*matrices.shape[:-1], 1), vector=(-1, 1))


def per_column(xp: Backend, value: Any, matrices: Array) -> Any:
    return _along(xp, value, (*matrices.shape[:-2], 1, matrices.shape[-1]), vector=(1, -1))


def _along(xp: Backend, value: Any, shape: Ints, *, vector: Ints) -> Any:
    if value is None:
        return None
    value = xp.reshape(value, vector) if value.ndim < 2 else value
    require_broadcasts("a scale or zero point", value, shape)
    return value


def centred_product(
    xp: Backend,
    a: Array,
    a_zero_point: Array | None,
    b: Array | PreparedFactor,
    b_zero_point: Array | None,
    sums_of_b: Array | None = None,
) -> Array:
    """Return (a - a_zero_point) (b - b_zero_point), exact modulo 2**32 for integers.

    The factors are multiplied out, so that the expensive product is one of 8-bit integers.
    """
    if isinstance(b, PreparedFactor):
        return centred_product_with(xp, a, a_zero_point, b, b_zero_point)
    if not all(xp.isdtype(x.dtype, "integral") for x in (a, b)):
        # One factor may be of integers, the other of float8.
        centred = less_zero_point(xp, a, a_zero_point), less_zero_point(xp, b, b_zero_point)
        return xp.matmul(*(xp.astype(x, xp.dtype(FLOAT32)) for x in centred))
    return _less_zero_points(
        xp, xp.integer_matmul(a, b), a, a_zero_point, b, b_zero_point, sums_of_b
    )


def _less_zero_points(
    xp: Backend,
    product: Array,
    a: Array,
    a_zero_point: Array | None,
    b: Array | None,
    b_zero_point: Array | None,
    sums_of_b: Array | None,
) -> Array:
    """Return the product of centred factors for that of the factors as they are.

    Either `b` or the sums of its columns are needed, if `a` has a zero point.
    """
    int32 = xp.dtype(INT32)
    if b_zero_point is not None:
        b_zero_point = xp.astype(b_zero_point, int32)
        sums = xp.sum(xp.astype(a, int32), axis=-1, keepdims=True, dtype=int32)
        product = product - b_zero_point * sums
    if a_zero_point is not None:
        if sums_of_b is None:
            assert b is not None
            sums_of_b = xp.sum(xp.astype(b, int32), axis=-2, keepdims=True, dtype=int32)
        if b_zero_point is not None:
            sums_of_b = sums_of_b - a.shape[-1] * b_zero_point
        product = product - xp.astype(a_zero_point, int32) * sums_of_b
    return product


def less_zero_point(xp: Backend, x: Array, zero_point: Array | None) -> Array:
    dtype = xp.dtype(INT32 if xp.isdtype(x.dtype, "integral") else FLOAT32)
    x = xp.astype(x, dtype)
    return x if zero_point is None else x - xp.astype(zero_point, dtype)


def requantized(
    xp: Backend, x: Array, one: Array, other: Array, scale: Array, zero_point: Array
) -> Array:
    """Quantize a product of values with the scales `one` and `other` to units of `scale`."""
    one, other, scale, zero = (
        xp.astype(v, xp.dtype(FLOAT32)) for v in (one, other, scale, zero_point)
    )
    factor = xp.quotient(one * other, scale)
    x = xp.astype(x, xp.dtype(FLOAT32)) * factor
    return quantized(xp, x, zero, xp.numpy_dtype(zero_point.dtype))


# -- convolution ----------------------------------------------------------------------------------


@op
def ConvInteger(
    xp: Backend,
    x: Array,
    w: Array,
    x_zero_point: Array | None = None,
    w_zero_point: Array | None = None,
    *,
    group: int = 1,
    kernel_shape: Ints | None = None,
    **layout: Layout,
) -> Array:
    """Return the exact convolution modulo 2**32; padding is filled with the zero point."""
    windows = windows_of_filters(x, w, group=group, kernel_shape=kernel_shape, **layout)
    filters, taps = w.shape[0], math.prod(w.shape[1:])
    x_zero_point = None if x_zero_point is None else single_number(xp, x_zero_point)
    if w_zero_point is not None:
        w_zero_point = _per_filter(xp, w_zero_point, filters, axes=w.ndim)
    if w.shape[1] == 1 and taps * 2**16 <= 2**24:
        # float32 represents the sums, and depthwise convolution is faster than many small products.
        centred = (less_zero_point(xp, x, x_zero_point), less_zero_point(xp, w, w_zero_point))
        y = convolution_by_finite(
            xp,
            *(xp.astype(v, xp.dtype(FLOAT32)) for v in centred),
            strides=windows.strides,
            pads=windows.pads,
            dilations=windows.dilations,
            groups=group,
        )
        return xp.astype(y, xp.dtype(INT32))
    padded = windows.padded(xp, x, 0 if x_zero_point is None else x_zero_point)
    places = math.prod(windows.sizes)
    rows = xp.reshape(w, (group, filters // group, taps))

    def by_columns(x: Array, w: Array) -> Array:
        columns = xp.reshape(_columns(xp, x, windows), (x.shape[0], group, taps, places))
        return xp.integer_matmul(xp.reshape(w, rows.shape), columns)

    product = xp.integer_convolution(
        padded, w, by_columns, strides=windows.strides, dilations=windows.dilations, groups=group
    )
    sums = None
    if w_zero_point is not None:
        grouped = xp.reshape(padded, (x.shape[0], group, w.shape[1], *padded.shape[2:]))
        sums = xp.sum(grouped, axis=2, dtype=xp.dtype(INT32))
        sums = xp.window_sum(sums, windows.kernel, windows.strides, windows.dilations)
        sums = xp.reshape(sums, (x.shape[0], group, 1, places))
        if w_zero_point.size > 1:
            w_zero_point = xp.reshape(w_zero_point, (group, filters // group, 1))
    product = _less_zero_points(xp, product, rows, w_zero_point, None, x_zero_point, sums)
    return xp.reshape(product, (x.shape[0], filters, *windows.sizes))


@op
def QLinearConv(
    xp: Backend,
    x: Array,
    x_scale: Array,
    x_zero_point: Array,
    w: Array,
    w_scale: Array,
    w_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    B: Array | None = None,
    **attributes: Annotated[Any, ConvInteger],
) -> Array:
    y: Array = ConvInteger(xp, x, w, x_zero_point, w_zero_point, **attributes)
    y = with_bias(xp, y, B)
    return requantized(
        xp,
        y,
        single_number(xp, x_scale),
        _per_filter(xp, w_scale, w.shape[0], axes=y.ndim - 1),
        single_number(xp, y_scale),
        single_number(xp, y_zero_point),
    )


# Kernels with longer sides are gathered: many slices take long to compile.
MOST_SLICES = 8


def _columns(xp: Backend, x: Array, windows: Windows) -> Array:
    """Return the windows over (N, C, *spatial) as (N, C, *kernel, *sizes), axis by axis.

    The cost is proportional to the sum of the kernel's sides, not to their product.
    """
    layout = zip(windows.kernel, windows.strides, windows.dilations, windows.sizes, strict=True)
    for i, (side, stride, dilation, size) in enumerate(layout):
        axis, taps = 2 + 2 * i, np.arange(side) * dilation
        if side > MOST_SLICES:
            places = taps[:, None] + np.arange(size) * stride
            x = xp.take(x, xp.asarray(places.reshape(-1)), axis=axis)
            x = xp.reshape(x, (*x.shape[:axis], side, size, *x.shape[axis + 1 :]))
            x = xp.moveaxis(x, axis, 2 + i)
            continue
        ends = (slice(tap, tap + (size - 1) * stride + 1, stride) for tap in taps.tolist())
        before = (slice(None),) * axis
        x = xp.stack([x[(*before, cut, ...)] for cut in ends], axis=2 + i)
    return x


def single_number(xp: Backend, value: Array) -> Array:
    if value.size != 1:
        raise ValueError(
            f"a scale or zero point has shape {value.shape}, but must be a single number"
        )
    return xp.reshape(value, ())


def _per_filter(xp: Backend, value: Array, filters: int, *, axes: int) -> Array:
    """Return one number, or a vector reshaped to one number per filter along the first axis."""
    if value.size == 1:
        return xp.reshape(value, ())
    if value.shape != (filters,):
        raise ValueError(
            f"a scale or zero point of shape {value.shape} does not fit {filters} filters"
        )
    return xp.reshape(value, (filters, *(1,) * (axes - 1)))
