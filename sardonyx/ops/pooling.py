"""Pooling over windows, and over all spatial axes at once."""

from __future__ import annotations

import math
from functools import reduce
from operator import mul
from typing import Literal

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import Ints, OutputsRead, op
from sardonyx.ops.precision import at_least_float32
from sardonyx.ops.windows import Layout, Windows, windows_over


@op
def MaxPool(
    xp: Backend,
    X: Array,
    *,
    kernel_shape: Ints,
    ceil_mode: int = 0,
    storage_order: int = 0,
    outputs: OutputsRead,
    **layout: Layout,
) -> Array | tuple[Array, Array]:
    windows = windows_over(X.shape[2:], kernel_shape, ceil_mode, **layout).without_idle_taps()
    if outputs == 1 and xp.has_kernels_of_windows(X):
        return xp.reduced_windows(X, windows.layout, by="max")
    is_float = xp.isdtype(X.dtype, "real floating")
    lowest = -math.inf if is_float else int(np.iinfo(xp.numpy_dtype(X.dtype)).min)
    padded = windows.padded(xp, X, lowest)
    largest = xp.window_max(padded, windows.kernel, windows.strides, windows.dilations)
    if outputs == 1:
        return largest
    return largest, _indices_of_largest(xp, padded, X, windows, order="F" if storage_order else "C")


MOST_TO_SEARCH = 2**14


def _indices_of_largest(
    xp: Backend, padded: Array, X: Array, windows: Windows, *, order: Literal["C", "F"]
) -> Array:
    """Return the index, in the flattened input, of the first maximum of each window.

    NaN counts as greater than any number, as in the maximum itself.
    """
    if math.prod(windows.kernel) > MOST_TO_SEARCH:
        raise ValueError(
            f"kernel_shape {windows.kernel} is too large for the output Indices: it may cover at "
            f"most {MOST_TO_SEARCH:,} elements"
        )
    in_plane = np.arange(math.prod(windows.spatial)).reshape(windows.spatial, order=order)
    places = windows.padded(xp, xp.asarray(in_plane), -1)
    layout = (windows.kernel, windows.strides, windows.dilations)
    (best, at), *rest = zip(xp.windows(padded, *layout), xp.windows(places, *layout), strict=True)
    at = xp.broadcast_to(at, best.shape)
    is_float = xp.isdtype(X.dtype, "real floating")
    for value, place in rest:
        # Any element replaces padding, even one that is not greater.
        is_better = (value > best) | (at < 0)
        if is_float:
            is_better = is_better | (xp.isnan(value) & ~xp.isnan(best))
        best, at = xp.where(is_better, value, best), xp.where(is_better, place, at)
    planes = xp.reshape(xp.asarray(np.arange(math.prod(X.shape[:2]))), X.shape[:2])
    planes = xp.reshape(planes, (*X.shape[:2], *(1,) * len(windows.spatial)))
    return at + planes * math.prod(windows.spatial)


@op
@at_least_float32
def AveragePool(
    xp: Backend,
    X: Array,
    *,
    kernel_shape: Ints,
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    **layout: Layout,
) -> Array:
    windows = windows_over(X.shape[2:], kernel_shape, ceil_mode, **layout)
    counts = windows.counts(include_pads=bool(count_include_pad))
    if all(np.all(count == count[:1]) for count in counts):
        return _sum(xp, X, windows) / float(math.prod(count[0] for count in counts))
    dtype = xp.numpy_dtype(X.dtype)
    factors = [np.where(count == 0, math.nan, count).astype(dtype) for count in counts]
    return _sum(xp, X, windows) / reduce(mul, map(xp.asarray, np.ix_(*factors)))


@op
@at_least_float32
def LpPool(
    xp: Backend,
    X: Array,
    *,
    kernel_shape: Ints,
    ceil_mode: int = 0,
    p: float = 2.0,
    **layout: Layout,
) -> Array:
    windows = windows_over(X.shape[2:], kernel_shape, ceil_mode, **layout)
    return _root(xp, _sum(xp, _power(xp, X, p), windows), p)


def _sum(xp: Backend, X: Array, windows: Windows) -> Array:
    windows = windows.without_idle_taps()
    if xp.has_kernels_of_windows(X):
        return xp.reduced_windows(X, windows.layout, by="sum")
    padded = windows.padded(xp, X, 0)
    return xp.window_sum(padded, windows.kernel, windows.strides, windows.dilations)


def _power(xp: Backend, X: Array, p: float) -> Array:
    """Return |X| to the power `p`, by a cheaper operation where there is one."""
    if p <= 0:
        raise ValueError(f"p is {p}, but must be positive")
    if p == 2:
        return xp.square(X)
    return xp.abs(X) if p == 1 else xp.abs(X) ** p


def _root(xp: Backend, powers: Array, p: float) -> Array:
    if p == 2:
        return xp.sqrt(powers)
    return powers if p == 1 else powers ** (1 / p)


# -- over all spatial axes ------------------------------------------------------------------------


@op
@at_least_float32
def GlobalAveragePool(xp: Backend, X: Array) -> Array:
    return xp.mean(X, axis=_spatial_axes(X), keepdims=True)


@op
def GlobalMaxPool(xp: Backend, X: Array) -> Array:
    return xp.max(X, axis=_spatial_axes(X), keepdims=True)


@op
@at_least_float32
def GlobalLpPool(xp: Backend, X: Array, *, p: float = 2.0) -> Array:
    return _root(xp, xp.sum(_power(xp, X, p), axis=_spatial_axes(X), keepdims=True), p)


def _spatial_axes(X: Array) -> Ints:
    if X.ndim < 2:
        raise ValueError(f"X has {X.ndim} axes, but must have a batch axis and a channel axis")
    return tuple(range(2, X.ndim))
