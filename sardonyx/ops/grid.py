"""GridSample and AffineGrid: sampling an image at computed positions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product
from typing import Annotated, Any, NamedTuple

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import require_shape
from sardonyx.ops.definition import Ints, op
from sardonyx.ops.indexing import along
from sardonyx.ops.interpolation import cubic_far, cubic_near, narrowed, widened

INT64 = np.dtype(np.int64)


class Tap(NamedTuple):
    """One neighbour of each position along an axis: index, weight, and whether it is inside."""

    place: Array
    weight: Array | None
    inside: Array


@op
def GridSample(
    xp: Backend,
    X: Array,
    grid: Array,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Array:
    if mode not in ("nearest", "linear", "cubic"):
        raise ValueError(f"mode {mode!r} is not one of nearest, linear and cubic")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"padding_mode {padding_mode!r} is not zeros, border or reflection")
    shape = _shape_of_sample(X, grid)
    if 0 in shape:
        return xp.zeros(shape, dtype=X.dtype)
    dtype = xp.numpy_dtype(X.dtype)
    grid = widened(xp, grid)
    lengths = X.shape[2:]
    taps = []
    for axis, length in enumerate(lengths):
        # The coordinates of a grid start with the innermost axis.
        positions = _unnormalized(grid[..., len(lengths) - 1 - axis], length, bool(align_corners))
        edge = 0.0 if align_corners else 0.5
        taps.append(_taps(xp, positions, length, edge, mode, padding_mode))
    values = X if mode == "nearest" else widened(xp, X)
    Y = _weighted_sum(xp, xp.moveaxis(values, 1, -1), taps, zeros=padding_mode == "zeros")
    return narrowed(xp, xp.moveaxis(Y, -1, 1), dtype)


@GridSample.before(20)
def grid_sample_of_images(
    xp: Backend,
    X: Array,
    grid: Array,
    *,
    mode: str = "bilinear",
    **others: Annotated[Any, GridSample],
) -> Array:
    """Sample with the older names of modes; volumes are allowed too, since exporters write them."""
    names = {"nearest": "nearest", "bilinear": "linear", "bicubic": "cubic"}
    if mode not in names:
        raise ValueError(f"mode {mode!r} is not one of {', '.join(names)}")
    return GridSample(xp, X, grid, mode=names[mode], **others)


def _shape_of_sample(X: Array, grid: Array) -> tuple[int, ...]:
    rank = X.ndim - 2
    if rank < 1 or grid.ndim != X.ndim or grid.shape[-1] != rank or grid.shape[0] != X.shape[0]:
        raise ValueError(
            f"grid of shape {grid.shape} does not fit X of shape {X.shape}: it needs the same "
            "batch and rank, and one coordinate for each axis of X after the second"
        )
    shape = (*X.shape[:2], *grid.shape[1:-1])
    if 0 in X.shape[2:] and 0 not in shape:
        raise ValueError(f"X of shape {X.shape} has no elements to sample")
    return shape


# -- along an axis --------------------------------------------------------------------------------


def _unnormalized(coordinates: Array, length: int, align_corners: bool) -> Array:
    """Convert coordinates, where -1 and 1 are the ends of the axis or its outer elements."""
    if align_corners:
        return (coordinates + 1.0) / 2.0 * (length - 1.0)
    return ((coordinates + 1.0) * float(length) - 1.0) / 2.0


def _taps(
    xp: Backend, positions: Array, length: int, edge: float, mode: str, padding_mode: str
) -> list[Tap]:
    reflects = padding_mode == "reflection"
    if mode == "nearest":
        positions = xp.round(positions)
    if reflects:
        positions = _reflected(xp, positions, -edge, length - 1 + edge)
    else:
        # Beyond these bounds the result is constant; clipping removes infinity and large values.
        positions = _clipped(xp, positions, -3.0, length + 2.0)
    base = xp.floor(positions)
    taps = []
    for offset, weight in _weights(positions - base, mode).items():
        place = base + float(offset)
        if reflects:
            place = _reflected(xp, place, -edge, length - 1 + edge)
        inside = (place >= 0) & (place <= length - 1)
        place = _clipped(xp, place, 0.0, length - 1.0)
        place = xp.where(xp.isnan(place), 0.0, place)
        taps.append(Tap(xp.astype(place, xp.dtype(INT64)), weight, inside))
    return taps


def _weights(fraction: Array, mode: str) -> dict[int, Array | None]:
    """Return the weight of each tap by its offset from the element before the position."""
    if mode == "nearest":
        return {0: None}
    if mode == "linear":
        return {0: 1.0 - fraction, 1: fraction}
    return {
        -1: cubic_far(1.0 + fraction, _CUBIC_A),
        0: cubic_near(fraction, _CUBIC_A),
        1: cubic_near(1.0 - fraction, _CUBIC_A),
        2: cubic_far(2.0 - fraction, _CUBIC_A),
    }


_CUBIC_A = -0.75


def _clipped(xp: Backend, x: Array, low: float, high: float) -> Array:
    return xp.minimum(xp.maximum(x, low), high)


def _reflected(xp: Backend, x: Array, low: float, high: float) -> Array:
    """Return `x` reflected at both borders until it lies between them."""
    span = high - low
    if span <= 0:
        return xp.full_like(x, low)
    folded = low + span - xp.abs(xp.remainder(x - low, 2 * span) - span)
    return xp.where((x < low) | (x > high), folded, x)


# -- over all axes --------------------------------------------------------------------------------


def _weighted_sum(
    xp: Backend, values: Array, taps: Sequence[Sequence[Tap]], *, zeros: bool
) -> Array:
    """Sum `values` (N, *lengths, C) at the taps, whose arrays have shape (N, *sizes)."""
    batch = along(xp, values.shape[0], 0, rank=1 + len(taps))
    dtype = xp.numpy_dtype(values.dtype)
    zero = xp.asarray(np.array("" if dtype.kind == "O" else 0, dtype))
    parts = []
    for corner in product(*taps):
        part = xp.gather(values, (batch, *(tap.place for tap in corner)))
        if zeros:
            inside = reduce(xp.logical_and, (tap.inside for tap in corner))
            part = xp.where(xp.expand_dims(inside, axis=-1), part, zero)
        weights = [tap.weight for tap in corner if tap.weight is not None]
        if weights:
            weight = xp.astype(reduce(xp.multiply, weights), values.dtype)
            part = part * xp.expand_dims(weight, axis=-1)
        parts.append(part)
    return reduce(xp.add, parts)


# -- grids ----------------------------------------------------------------------------------------


@op
def AffineGrid(xp: Backend, theta: Array, size: Ints, *, align_corners: int = 0) -> Array:
    batch, lengths = size[:1], size[2:]
    rank = len(lengths)
    if rank not in (2, 3) or min(size) < 0:
        raise ValueError(f"size {size} must be 4 or 5 numbers, none of them negative")
    require_shape("theta", theta, (*batch, rank, rank + 1))
    dtype = xp.numpy_dtype(theta.dtype)
    xp.allow((*batch, *lengths, rank), dtype, copies=4)
    theta = xp.reshape(widened(xp, theta), (*batch, *(1,) * rank, rank, rank + 1))
    grid = theta[..., rank]
    for axis, length in enumerate(lengths):
        end = 1.0 if align_corners else 1 - 1 / max(length, 1)
        coordinates = np.linspace(-end, end, length, dtype=xp.numpy_dtype(theta.dtype))
        coordinates = coordinates.reshape(-1, *(1,) * (rank - axis))
        # The coordinates of a grid start with the innermost axis.
        grid = grid + theta[..., rank - 1 - axis] * xp.asarray(coordinates)
    return narrowed(xp, grid, dtype)
