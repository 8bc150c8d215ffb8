"""Pooling and reductions of quantized arrays, whose channels may come first or last."""

from __future__ import annotations

import math
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops import pooling
from sardonyx.ops.axes import axes_within
from sardonyx.ops.definition import Ints, op
from sardonyx.ops.dtypes import FLOAT32, INT32
from sardonyx.ops.microsoft.channels import channels_first, channels_last_again
from sardonyx.ops.microsoft.quantized_values import (
    dequantized,
    dtype_of,
    float_zero,
    in_units,
    product,
    wide_value,
)
from sardonyx.ops.quantization import quantized, single_number
from sardonyx.ops.windows import Layout, Windows, windows_over

DOMAIN = "com.microsoft"
UINT32 = np.dtype(np.uint32)

# -- averages -------------------------------------------------------------------------------------


@op(domain=DOMAIN)
def QLinearAveragePool(
    xp: Backend,
    X: Array,
    x_scale: Array,
    x_zero_point: Array | None,
    y_scale: Array,
    y_zero_point: Array | None = None,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    pads: Ints | None = None,
    strides: Ints | None = None,
) -> Array:
    """Average float32 values; one window that covers the whole input averages integers instead."""
    x = channels_first(xp, X, channels_last)
    windows = windows_over(
        x.shape[2:], kernel_shape, ceil_mode, auto_pad=auto_pad, pads=pads, strides=strides
    )
    if windows.spatial == windows.kernel and not any(map(any, windows.pads)):
        y = _average_of_all(xp, x, x_scale, x_zero_point, y_scale, y_zero_point)
    else:
        total = _sum_in_order(xp, dequantized(xp, x, x_scale, x_zero_point), windows)
        average = xp.quotient(total, _counts(xp, windows, count_include_pad))
        # Without a product in between, XLA joins two divisions.
        average = xp.separate_product(average, xp.ones_like(average))
        in_scale = xp.quotient(average, single_number(xp, y_scale))
        y = quantized(xp, in_scale + float_zero(xp, y_zero_point), None, dtype_of(xp, X))
    return channels_last_again(xp, y, channels_last)


@op(domain=DOMAIN)
def QLinearGlobalAveragePool(
    xp: Backend,
    X: Array,
    x_scale: Array,
    x_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    *,
    channels_last: int = 0,
) -> Array:
    x = channels_first(xp, X, channels_last)
    y = _average_of_all(xp, x, x_scale, x_zero_point, y_scale, y_zero_point)
    return channels_last_again(xp, y, channels_last)


def _average_of_all(
    xp: Backend,
    x: Array,
    x_scale: Array,
    x_zero_point: Array | None,
    y_scale: Array,
    y_zero_point: Array | None,
) -> Array:
    """Return the average over all spatial axes: an integer sum times one factor."""
    elements = math.prod(x.shape[2:])
    if x.ndim < 3 or not elements:
        raise ValueError(f"X of shape {x.shape} needs at least one spatial axis, and none empty")
    axes = tuple(range(2, x.ndim))
    centred = wide_value(xp, x, x_zero_point)
    total = xp.sum(centred, axis=axes, keepdims=True, dtype=xp.dtype(INT32))
    unit = single_number(xp, y_scale) * float(elements)
    factor = xp.quotient(single_number(xp, x_scale), unit)
    y = product(xp, total, factor)
    return quantized(xp, y, float_zero(xp, y_zero_point), dtype_of(xp, x))


# Larger windows are summed axis by axis, as compiling so many slices takes long.
MOST_IN_ORDER = 64


def _sum_in_order(xp: Backend, x: Array, windows: Windows) -> Array:
    """Return the sums of windows, each from its first element to its last, as onnxruntime's.

    Averages of equal scales often lie halfway between integers, where the order decides.
    """
    windows = windows.without_idle_taps()
    padded = windows.padded(xp, x, 0)
    layout = (windows.kernel, windows.strides, windows.dilations)
    if math.prod(windows.kernel) > MOST_IN_ORDER:
        return xp.window_sum(padded, *layout)
    return reduce(add, xp.windows(padded, *layout))


def _counts(xp: Backend, windows: Windows, count_include_pad: int) -> Array:
    """Return how many elements each window has; onnxruntime counts the whole kernel as padding."""
    if count_include_pad:
        return xp.asarray(np.asarray(math.prod(windows.kernel), FLOAT32))
    per_axis = np.ix_(*windows.counts(include_pads=False))
    counts = reduce(np.multiply, per_axis).astype(FLOAT32)
    return xp.asarray(np.where(counts == 0, np.float32(math.nan), counts))


# -- maxima ---------------------------------------------------------------------------------------


@op(domain=DOMAIN)
def NhwcMaxPool(
    xp: Backend, x: Array, *, kernel_shape: Ints, ceil_mode: int = 0, **layout: Layout
) -> Array:
    first = channels_first(xp, x, 1)
    y: Any = pooling.MaxPool(
        xp, first, kernel_shape=kernel_shape, ceil_mode=ceil_mode, outputs=1, **layout
    )
    return channels_last_again(xp, y, 1)


# -- reductions -----------------------------------------------------------------------------------


@op(domain=DOMAIN)
def QLinearReduceMean(
    xp: Backend,
    data: Array,
    data_scale: Array,
    data_zero_point: Array | None,
    reduced_scale: Array,
    reduced_zero_point: Array | None = None,
    *,
    axes: Ints,
    keepdims: int,
) -> Array:
    x = dequantized(xp, data, data_scale, data_zero_point)
    over = axes_within(axes, data.ndim) or tuple(range(data.ndim))
    y = xp.mean(x, axis=over, keepdims=bool(keepdims))
    return in_units(xp, y, reduced_scale, reduced_zero_point, data)


@op(domain=DOMAIN)
def ReduceSumInteger(xp: Backend, data: Array, *, axes: Ints, keepdims: int) -> Array:
    """Return sums in 32 bits, with a sign if the input has one."""
    is_signed = xp.isdtype(data.dtype, "signed integer")
    dtype = xp.dtype(INT32 if is_signed else UINT32)
    over = axes_within(axes, data.ndim) or tuple(range(data.ndim))
    return xp.sum(data, axis=over, keepdims=bool(keepdims), dtype=dtype)
