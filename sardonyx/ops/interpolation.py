"""Sampling between elements: positions, weights and precision.

Positions and weights along an axis are static arrays of shape `(taps, size)`: each element of the
result is a weighted sum of `taps` elements.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import DType, Host
from sardonyx.ops.dtypes import FLOAT32, FLOAT64

# More taps than this are summed in a loop, which runs slower but compiles faster.
_MOST_UNROLLED = 32


class Taps(NamedTuple):
    """The elements of an axis, and their weights, that each element of the result sums."""

    places: Host
    weights: Host


# -- kernels --------------------------------------------------------------------------------------


def cubic_near(distance: Any, a: float) -> Any:
    """Return R. Keys' cubic convolution kernel (1981) at distances up to 1."""
    return ((a + 2) * distance - (a + 3)) * distance * distance + 1


def cubic_far(distance: Any, a: float) -> Any:
    """Return the same kernel at distances from 1 to 2; beyond, it is 0."""
    return ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a


def nearest_tap(positions: Host, length: int) -> Taps:
    places = np.clip(positions, 0, max(length - 1, 0)).astype(np.int64)
    return Taps(places[None], np.ones((1, len(places))))


def linear_taps(positions: Host, length: int, *, stretch: float = 1, exclude: bool = False) -> Taps:
    """Return linear taps, `stretch` times as wide; `exclude` drops taps outside the axis."""
    places = _within(stretch, positions)
    distances = np.abs(places - positions) / stretch
    return _normalized(places, np.maximum(1 - distances, 0), length, exclude=exclude)


def cubic_taps(
    positions: Host, length: int, a: float, *, stretch: float = 1, exclude: bool = False
) -> Taps:
    places = _within(2 * stretch, positions)
    distances = np.abs(places - positions) / stretch
    outer = np.where(distances < 2, cubic_far(distances, a), 0)
    weights = np.where(distances <= 1, cubic_near(distances, a), outer)
    return _normalized(places, weights, length, exclude=exclude)


def _within(reach: float, positions: Host) -> Host:
    """Return all elements nearer than `reach` to each position."""
    places: Host = np.floor(positions - reach) + 1 + np.arange(np.ceil(2 * reach))[:, None]
    return places


def _normalized(places: Host, weights: Host, length: int, *, exclude: bool) -> Taps:
    if exclude:
        weights = np.where((places >= 0) & (places < length), weights, 0)
    total = np.sum(weights, axis=0)
    weights = weights / np.where(total == 0, 1, total)
    used = np.any(weights != 0, axis=1)
    used[0] |= not np.any(used)
    places = np.clip(places, 0, max(length - 1, 0)).astype(np.int64)
    return Taps(places[used], weights[used])


# -- along an axis --------------------------------------------------------------------------------


def picked(xp: Backend, x: Array, axis: int, places: Host) -> Array:
    """Return the elements at `places` by the cheapest operation: none, repeat, slice or take."""
    length, size = x.shape[axis], len(places)
    if np.array_equal(places, np.arange(length)):
        return x
    if size % length == 0 and np.array_equal(places, np.repeat(np.arange(length), size // length)):
        return _repeated(xp, x, axis, size // length)
    steps = np.diff(places)
    if steps.size and steps[0] > 0 and np.all(steps == steps[0]):
        evenly = slice(int(places[0]), int(places[-1]) + 1, int(steps[0]))
        return x[(*(slice(None),) * axis, evenly, ...)]
    return xp.take(x, xp.asarray(places), axis=axis)


def _repeated(xp: Backend, x: Array, axis: int, times: int) -> Array:
    before, after = x.shape[: axis + 1], x.shape[axis + 1 :]
    repeated = xp.broadcast_to(xp.expand_dims(x, axis=axis + 1), (*before, times, *after))
    return xp.reshape(repeated, (*before[:-1], before[-1] * times, *after))


def resampled(xp: Backend, x: Array, axis: int, taps: Taps) -> Array:
    """Return the weighted sums that `taps` describes along one axis."""
    if len(taps.places) == 1 and np.all(taps.weights == 1):
        return picked(xp, x, axis, taps.places[0])
    along = (-1, *(1,) * (x.ndim - axis - 1))
    weights = taps.weights.astype(xp.numpy_dtype(x.dtype))
    if len(taps.places) > _MOST_UNROLLED:
        return _looped(xp, x, axis, Taps(taps.places, weights))
    parts = (
        picked(xp, x, axis, places) * xp.reshape(xp.asarray(weight), along)
        for places, weight in zip(taps.places, weights, strict=True)
    )
    return reduce(xp.add, parts)


def _looped(xp: Backend, x: Array, axis: int, taps: Taps) -> Array:
    along = (-1, *(1,) * (x.ndim - axis - 1))

    def add(carry: Any, tap: Any) -> tuple[tuple[Array], tuple[()]]:
        (total,), (places, weight) = carry, tap
        return (total + xp.take(x, places, axis=axis) * xp.reshape(weight, along),), ()

    shape = (*x.shape[:axis], taps.places.shape[1], *x.shape[axis + 1 :])
    start = (xp.zeros(shape, dtype=x.dtype),)
    inputs = (xp.asarray(taps.places), xp.asarray(taps.weights))
    (total,), _ = xp.scan(add, start, inputs, len(taps.places))
    return total


# -- precision ------------------------------------------------------------------------------------


def widened(xp: Backend, x: Array) -> Array:
    """Return `x` in a dtype that weighted sums can be computed in."""
    dtype = xp.numpy_dtype(x.dtype)
    if dtype.kind == "O":
        raise ValueError("strings cannot be interpolated; only mode nearest applies to them")
    if dtype.kind == "c" or dtype in (FLOAT32, FLOAT64):
        return x
    return xp.astype(x, xp.dtype(FLOAT32 if dtype.itemsize < 4 else FLOAT64))


def narrowed(xp: Backend, x: Array, dtype: DType) -> Array:
    """Convert a widened result back to `dtype`; integers are rounded and clamped."""
    if xp.numpy_dtype(x.dtype) == dtype:
        return x
    if dtype.kind == "b":
        return xp.round(x) > 0
    if xp.isdtype(xp.dtype(dtype), "integral"):
        low, high = _bounds(dtype, xp.numpy_dtype(x.dtype))
        x = xp.minimum(xp.maximum(xp.round(x), low), high)
    return xp.astype(x, xp.dtype(dtype))


def _bounds(dtype: DType, wide: DType) -> tuple[float, float]:
    """Return the smallest and the largest number of `wide` that fit an integer dtype."""
    limits = ml_dtypes.iinfo(dtype)
    high = wide.type(limits.max)
    if int(high) > limits.max:
        high = np.nextafter(high, wide.type(0))
    return float(limits.min), float(high)
