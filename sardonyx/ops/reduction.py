"""Reductions: sums, products, extremes and their positions, and cumulative sums."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import axes_within, axis_within, sliced
from sardonyx.ops.definition import Ints, Op, op
from sardonyx.ops.dtypes import FLOAT64, INT64
from sardonyx.ops.precision import at_least_float32, wide

Reduction = Callable[..., Array]


def reduction(function: Reduction) -> Op[Array]:
    """Make an op of `function(xp, data, axes, keepdims)`, which receives axes counted from 0."""

    def reduce(
        xp: Backend,
        data: Array,
        axes: Ints | None = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Array:
        if not axes:
            axes = () if noop_with_empty_axes else tuple(range(data.ndim))
        return function(xp, data, axes=axes_within(axes, data.ndim), keepdims=bool(keepdims))

    reduce.__name__ = function.__name__
    reduce.__doc__ = function.__doc__
    return op(reduce)


# -- sums -----------------------------------------------------------------------------------------


@reduction
def ReduceSum(xp: Backend, data: Array, *, axes: Ints, keepdims: bool) -> Array:
    return _sum(xp, data, axes=axes, keepdims=keepdims) if axes else data


@reduction
@at_least_float32
def ReduceSumSquare(xp: Backend, data: Array, *, axes: Ints, keepdims: bool) -> Array:
    return _sum(xp, data * data, axes=axes, keepdims=keepdims)


@reduction
@at_least_float32
def ReduceL1(xp: Backend, data: Array, *, axes: Ints, keepdims: bool) -> Array:
    return _sum(xp, xp.abs(data), axes=axes, keepdims=keepdims)


@reduction
@at_least_float32
def ReduceL2(xp: Backend, data: Array, *, axes: Ints, keepdims: bool) -> Array:
    return _of_real(xp, xp.sqrt, _sum(xp, data * data, axes=axes, keepdims=keepdims))


@reduction
@at_least_float32
def ReduceLogSum(xp: Backend, data: Array, *, axes: Ints, keepdims: bool) -> Array:
    return _of_real(xp, xp.log, _sum(xp, data, axes=axes, keepdims=keepdims))


@reduction
@at_least_float32
def ReduceLogSumExp(xp: Backend, data: Array, *, axes: Ints, keepdims: bool) -> Array:
    """Reduce relative to the greatest element, so that no exponential overflows."""
    x = data if xp.isdtype(data.dtype, "real floating") else xp.astype(data, xp.dtype(FLOAT64))
    greatest = _extreme(xp, xp.max, x, axes=axes, keepdims=True, identity=-math.inf)
    greatest = xp.where(xp.isfinite(greatest), greatest, xp.zeros_like(greatest))
    total = _sum(xp, xp.exp(x - greatest), axes=axes, keepdims=keepdims)
    result = xp.log(total) + xp.reshape(greatest, total.shape)
    return xp.astype(result, data.dtype)


@reduction
@at_least_float32
def ReduceMean(xp: Backend, data: Array, *, axes: Ints, keepdims: bool) -> Array:
    if not axes:
        return data
    count = math.prod(data.shape[axis] for axis in axes)
    total = _sum(xp, data, axes=axes, keepdims=keepdims)
    if xp.isdtype(data.dtype, "real floating"):
        return total / (count or math.nan)
    # Integers are divided towards zero, as in C.
    count = max(count, 1)
    quotient = xp.floor_divide(total, count)
    is_above = (total < 0) & (quotient * count != total)
    return quotient + xp.astype(is_above, data.dtype)


@at_least_float32
def _sum(xp: Backend, x: Array, *, axes: Ints, keepdims: bool) -> Array:
    if not axes:
        return x
    return xp.sum(x, axis=axes, dtype=x.dtype, keepdims=keepdims)


def _of_real(xp: Backend, function: Callable[[Array], Array], x: Array) -> Array:
    """Apply `function`; integers are computed in float64 and truncated."""
    if xp.isdtype(x.dtype, "real floating"):
        return function(x)
    return xp.astype(function(xp.astype(x, xp.dtype(FLOAT64))), x.dtype)


@reduction
@at_least_float32
def ReduceProd(xp: Backend, data: Array, *, axes: Ints, keepdims: bool) -> Array:
    if not axes:
        return data
    return xp.prod(data, axis=axes, dtype=data.dtype, keepdims=keepdims)


# -- extremes -------------------------------------------------------------------------------------


@reduction
def ReduceMax(xp: Backend, data: Array, *, axes: Ints, keepdims: bool) -> Array:
    if xp.isdtype(data.dtype, "bool"):
        return xp.any(data, axis=axes, keepdims=keepdims)
    return _extreme(xp, xp.max, data, axes=axes, keepdims=keepdims, identity=_bounds(xp, data)[0])


@reduction
def ReduceMin(xp: Backend, data: Array, *, axes: Ints, keepdims: bool) -> Array:
    if xp.isdtype(data.dtype, "bool"):
        return xp.all(data, axis=axes, keepdims=keepdims)
    return _extreme(xp, xp.min, data, axes=axes, keepdims=keepdims, identity=_bounds(xp, data)[1])


def _extreme(
    xp: Backend, function: Reduction, x: Array, *, axes: Ints, keepdims: bool, identity: float
) -> Array:
    """Reduce to an extreme; for no elements ONNX requires the `identity`, where libraries raise."""
    if not axes:
        return x
    if any(x.shape[axis] == 0 for axis in axes):
        sizes = (1 if axis in axes else size for axis, size in enumerate(x.shape))
        extreme = xp.full(tuple(sizes), identity, dtype=x.dtype)
        return extreme if keepdims else xp.squeeze(extreme, axis=axes)
    return function(x, axis=axes, keepdims=keepdims)


def _bounds(xp: Backend, x: Array) -> tuple[float, float]:
    if xp.isdtype(x.dtype, "real floating"):
        return -math.inf, math.inf
    bounds = np.iinfo(xp.numpy_dtype(x.dtype))
    return int(bounds.min), int(bounds.max)


# -- positions of extremes ------------------------------------------------------------------------


@op
def ArgMax(
    xp: Backend, data: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Array:
    return _position(xp, xp.argmax, data, axis, keepdims, select_last_index)


@op
def ArgMin(
    xp: Backend, data: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> Array:
    return _position(xp, xp.argmin, data, axis, keepdims, select_last_index)


def _position(
    xp: Backend, function: Reduction, x: Array, axis: int, keepdims: int, last: int
) -> Array:
    axis = axis_within(axis, x.ndim)
    size = x.shape[axis]
    if size == 0:
        raise ValueError(
            f"axis {axis} of shape {x.shape} has no elements, but must have at least one"
        )
    place = function(xp.flip(x, axis=axis) if last else x, axis=axis, keepdims=bool(keepdims))
    place = xp.astype(place, xp.dtype(INT64))
    return size - 1 - place if last else place


# -- cumulative sums and products -----------------------------------------------------------------


@op
def CumSum(xp: Backend, x: Array, axis: int, *, exclusive: int = 0, reverse: int = 0) -> Array:
    return _cumulative(xp, xp.cumulative_sum, x, axis, exclusive, reverse)


@op
def CumProd(xp: Backend, x: Array, axis: int, *, exclusive: int = 0, reverse: int = 0) -> Array:
    return _cumulative(xp, xp.cumulative_prod, x, axis, exclusive, reverse)


def _cumulative(
    xp: Backend, function: Reduction, x: Array, axis: int, exclusive: int, reverse: int
) -> Array:
    axis = axis_within(axis, x.ndim)
    wider = wide(xp, xp.flip(x, axis=axis) if reverse else x)
    result = function(wider, axis=axis, dtype=wider.dtype, include_initial=bool(exclusive))
    if exclusive:
        result = sliced(result, axis, 0, x.shape[axis])
    return xp.astype(xp.flip(result, axis=axis) if reverse else result, x.dtype)
