"""Pooling over regions of interest, each divided into the same number of bins."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Annotated, Any, NamedTuple

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Ints, op
from sardonyx.ops.dtypes import FLOAT32, INT64
from sardonyx.ops.options import require_one_of
from sardonyx.ops.precision import wide

# -- interpolated points --------------------------------------------------------------------------

# Maximum number of points on a side of a bin; more are a mistake or an attack.
MOST_POINTS = 128


@op
def RoiAlign(
    xp: Backend,
    X: Array,
    rois: Array,
    batch_indices: Array,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Array:
    """Average a grid of points in each bin, each interpolated between its four pixels.

    In mode "max", take the maximum of the pixels, each times its weight. If `sampling_ratio` is 0,
    the size of the region determines the number of points.
    """
    transformation = coordinate_transformation_mode
    require_one_of(
        "coordinate_transformation_mode", transformation, ("half_pixel", "output_half_pixel")
    )
    require_one_of("mode", mode, ("avg", "max"))
    if not 0 <= sampling_ratio <= MOST_POINTS:
        raise ValueError(f"sampling_ratio is {sampling_ratio}, but must be 0 to {MOST_POINTS}")
    bins = (output_height, output_width)
    _check_regions(xp, X, rois, 4, bins)
    require_shape("batch_indices", batch_indices, rois.shape[:1])
    if not (rois.size and X.size):
        return xp.zeros((rois.shape[0], X.shape[1], *bins), dtype=X.dtype)
    shift = 0.5 if transformation == "half_pixel" else 0.0
    corners = wide(xp, rois) * spatial_scale - shift
    down, across = (
        _points(
            xp,
            *(xp.reshape(corners[:, i], (-1, 1, 1)) for i in (1 - axis, 3 - axis)),
            places=_counted(xp, bins[axis], axis, corners.dtype),
            length=X.shape[2 + axis],
            count=sampling_ratio,
            least=0.0 if shift else 1.0,
        )
        for axis in range(2)
    )
    pixels = wide(xp, xp.permute_dims(X, (0, 2, 3, 1)))
    xp.require(batch_indices, Within("batch_indices", 0, X.shape[0] - 1))
    image = xp.reshape(xp.maximum(batch_indices, 0), (-1, 1, 1))
    combine = xp.maximum if mode == "max" else xp.add

    def visit(i: Array, j: Array, pooled: Array) -> Array:
        y, x = _neighbours(xp, down, i), _neighbours(xp, across, j)
        value = _interpolated(xp, pixels, image, y, x, combine)
        is_there = xp.expand_dims(y.is_there & x.is_there, axis=-1)
        return xp.where(is_there, combine(pooled, value), pooled)

    shape = (rois.shape[0], *bins, X.shape[1])
    start = xp.full(shape, -math.inf if mode == "max" else 0.0, dtype=pixels.dtype)
    pooled = _over_grid(xp, down.visits, across.visits, visit, start, static_count=sampling_ratio)
    if mode == "max":
        pooled = _zero_if_empty(xp, pooled, down.visits, across.visits)
    else:
        pooled = pooled / xp.expand_dims(xp.maximum(down.number * across.number, 1.0), axis=-1)
    return xp.astype(xp.permute_dims(pooled, (0, 3, 1, 2)), X.dtype)


@RoiAlign.before(16)
def roi_align_without_shift(
    xp: Backend, X: Array, rois: Array, batch_indices: Array, **others: Annotated[Any, RoiAlign]
) -> Array:
    others["coordinate_transformation_mode"] = "output_half_pixel"
    return RoiAlign(xp, X, rois, batch_indices, **others)


class _Points(NamedTuple):
    """The points of each bin along one axis, in shape (regions, rows, columns)."""

    first: Array
    step: Array
    # The number of points per bin, the first one to visit, and how many to visit.
    number: Array
    begin: Array
    visits: Array
    length: int


def _points(
    xp: Backend, low: Array, high: Array, *, places: Array, length: int, count: int, least: float
) -> _Points:
    extent = high - low
    side = xp.quotient(xp.maximum(extent, least) if least else extent, float(places.size))
    number = xp.full_like(side, count) if count else xp.ceil(side)
    step = xp.quotient(side, xp.maximum(number, 1.0))
    first = low + places * side + step / 2
    if count:
        begin = xp.zeros_like(first)
        return _Points(first, step, number, begin, begin + count, length)
    # A region may be far larger than the input. Outside of the input, two points at either end are
    # enough; inside, points are at least half a pixel apart unless each bin has only one.
    begin = xp.maximum(xp.ceil((-1 - first) / step) - 2, 0.0)
    end = xp.minimum(xp.floor((length - first) / step) + 2, number - 1)
    visits = xp.minimum(end - begin + 1, 2.0 * length + 8)
    visits = xp.where(xp.isfinite(visits), visits, 0.0)
    return _Points(first, step, number, begin, visits, length)


class _Neighbours(NamedTuple):
    """The pixels around each point, and its distance from the lower one."""

    lower: Array
    upper: Array
    fraction: Array
    is_inside: Array
    is_there: Array


def _neighbours(xp: Backend, points: _Points, i: Array) -> _Neighbours:
    number = xp.astype(i, points.first.dtype)
    at = points.first + (points.begin + number) * points.step
    is_inside = (at >= -1) & (at <= points.length)
    last = points.length - 1
    at = xp.minimum(xp.maximum(xp.where(is_inside, at, 0.0), 0.0), float(last))
    lower = xp.floor(at)
    place = xp.astype(lower, xp.dtype(INT64))
    upper = xp.minimum(place + 1, last)
    return _Neighbours(place, upper, at - lower, is_inside, number < points.visits)


def _interpolated(
    xp: Backend,
    pixels: Array,
    image: Array,
    y: _Neighbours,
    x: _Neighbours,
    combine: Callable[[Array, Array], Array],
) -> Array:
    """Combine the four pixels around each point, each times its weight."""
    products = [
        xp.gather(pixels, (image, row, column)) * xp.expand_dims(weight * share, axis=-1)
        for row, weight in ((y.lower, 1 - y.fraction), (y.upper, y.fraction))
        for column, share in ((x.lower, 1 - x.fraction), (x.upper, x.fraction))
    ]
    # A point outside counts as zero, even if pixels at the border are NaN or infinite.
    is_inside = xp.expand_dims(y.is_inside & x.is_inside, axis=-1)
    return xp.where(is_inside, reduce(combine, products), 0.0)


# -- whole pixels ---------------------------------------------------------------------------------


@op
def MaxRoiPool(
    xp: Backend, X: Array, rois: Array, *, pooled_shape: Ints, spatial_scale: float = 1.0
) -> Array:
    """Return the maximum of each bin; bins cover whole pixels and may overlap, empty ones are 0."""
    _check_regions(xp, X, rois, 5, pooled_shape)
    if not (rois.size and X.size):
        return xp.zeros((rois.shape[0], X.shape[1], *pooled_shape), dtype=X.dtype)
    corners = _pixel_nearest(xp, wide(xp, rois[:, 1:]) * spatial_scale)
    down, across = (
        _pixels(
            xp,
            *(xp.reshape(corners[:, i], (-1, 1, 1)) for i in (1 - axis, 3 - axis)),
            places=_counted(xp, pooled_shape[axis], axis, xp.dtype(INT64)),
            length=X.shape[2 + axis],
        )
        for axis in range(2)
    )
    pixels = xp.permute_dims(X, (0, 2, 3, 1))
    xp.require(rois, Within("rois", 0, X.shape[0] - 1, part=(slice(None), 0)))
    image = xp.astype(xp.maximum(rois[:, 0], 0), xp.dtype(INT64))
    image = xp.reshape(image, (-1, 1, 1))

    def visit(i: Array, j: Array, pooled: Array) -> Array:
        row = xp.minimum(down.begin + i, X.shape[2] - 1)
        column = xp.minimum(across.begin + j, X.shape[3] - 1)
        value = xp.gather(pixels, (image, row, column))
        is_there = xp.expand_dims((i < down.visits) & (j < across.visits), axis=-1)
        return xp.where(is_there, xp.maximum(pooled, value), pooled)

    shape = (rois.shape[0], *pooled_shape, X.shape[1])
    start = xp.full(shape, -math.inf, dtype=X.dtype)
    pooled = _over_grid(xp, down.visits, across.visits, visit, start)
    pooled = _zero_if_empty(xp, pooled, down.visits, across.visits)
    return xp.permute_dims(pooled, (0, 3, 1, 2))


def _pixel_nearest(xp: Backend, x: Array) -> Array:
    """Round halves away from zero, clamped to integers far beyond any image."""
    nearest = xp.copysign(xp.floor(xp.abs(x) + 0.5), x)
    nearest = xp.minimum(xp.maximum(nearest, -(2.0**24)), 2.0**24)
    return xp.astype(xp.where(xp.isnan(x), 0.0, nearest), xp.dtype(INT64))


class _Pixels(NamedTuple):
    """The pixels of each bin along one axis, in shape (regions, rows, columns)."""

    begin: Array
    visits: Array


def _pixels(xp: Backend, low: Array, high: Array, *, places: Array, length: int) -> _Pixels:
    """Divide an axis into bins with integers, as inexact quotients would reach a pixel too far."""
    extent, bins = xp.maximum(high - low + 1, 1), places.size
    begin = low + xp.floor_divide(places * extent, bins)
    end = low + xp.floor_divide((places + 1) * extent + bins - 1, bins)
    begin, end = (xp.minimum(xp.maximum(v, 0), length) for v in (begin, end))
    return _Pixels(begin, end - begin)


# -- shared by both -------------------------------------------------------------------------------


def _check_regions(xp: Backend, X: Array, rois: Array, numbers: int, bins: Ints) -> None:
    if X.ndim != 4 or rois.ndim != 2 or rois.shape[1] != numbers:
        raise ValueError(
            f"X has shape {X.shape} and rois {rois.shape}; X must have 4 axes, and rois "
            f"{numbers} numbers for each region"
        )
    if len(bins) != 2 or min(bins) < 1:
        raise ValueError(f"the number of bins is {bins}, but must be two positive numbers")
    xp.allow((rois.shape[0], X.shape[1], *bins), FLOAT32, copies=8)
    if rois.shape[0] and X.shape[1] and not X.size:
        raise ValueError(f"X of shape {X.shape} has no pixels to pool")


def _counted(xp: Backend, bins: int, axis: int, dtype: object) -> Array:
    """Return 0, 1, 2, ... along the rows or the columns of (regions, rows, columns)."""
    return xp.reshape(xp.arange(bins, dtype=dtype), (1, -1, 1) if axis == 0 else (1, 1, -1))


def _over_grid(
    xp: Backend,
    rows: Array,
    columns: Array,
    visit: Callable[[Array, Array, Array], Array],
    value: Array,
    *,
    static_count: int = 0,
) -> Array:
    """Apply `value = visit(i, j, value)` for all i and j below the largest bin's rows and columns.

    One point of each bin is in memory at a time, since bins may be as large as the input. Without
    `static_count`, the number of rows and of columns, JAX cannot differentiate this in reverse.
    """
    int64 = xp.dtype(INT64)
    if static_count:
        places = np.indices((static_count, static_count)).reshape(2, -1)
        (value,), _ = xp.scan(
            lambda carry, at: ((visit(*at, *carry),), ()),
            (value,),
            tuple(xp.asarray(place, dtype=int64) for place in places),
            static_count * static_count,
        )
        return value
    height, width = (xp.max(xp.astype(v, int64)) for v in (rows, columns))

    def step(i: Array, j: Array, value: Array) -> tuple[Array, ...]:
        # Division of the number of a step would take some compilers seconds.
        is_last = j + 1 >= width
        value = visit(i, j, value)
        return i + xp.astype(is_last, int64), xp.where(is_last, 0, j + 1), value

    zero = xp.zeros((), dtype=int64)
    *_, value = xp.loop(lambda i, *_: (i < height) & (width > 0), step, (zero, zero, value))
    return value


def _zero_if_empty(xp: Backend, pooled: Array, rows: Array, columns: Array) -> Array:
    has_any = xp.expand_dims((rows > 0) & (columns > 0), axis=-1)
    return xp.where(has_any, pooled, xp.zeros_like(pooled))
