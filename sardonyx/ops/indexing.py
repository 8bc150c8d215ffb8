"""Operators that read elements by their indices."""

from __future__ import annotations

import math

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import BadData, Within
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import axes_within, axis_within
from sardonyx.ops.definition import Ints, op

# -- by indices on the device ---------------------------------------------------------------------


@op
def Gather(xp: Backend, data: Array, indices: Array, *, axis: int = 0) -> Array:
    axis = axis_within(axis, data.ndim)
    require_within(xp, indices, data.shape[axis])
    flat = xp.take(data, xp.reshape(indices, (-1,)), axis=axis)
    return xp.reshape(flat, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))


@op
def GatherElements(xp: Backend, data: Array, indices: Array, *, axis: int = 0) -> Array:
    axis = axis_within(axis, data.ndim)
    require_within(xp, indices, data.shape[axis])
    # The indices may cover only a corner of the other axes.
    corner = (*indices.shape[:axis], data.shape[axis], *indices.shape[axis + 1 :])
    if len(corner) != data.ndim or any(n > m for n, m in zip(corner, data.shape, strict=True)):
        raise ValueError(f"indices of shape {indices.shape} reach beyond shape {data.shape}")
    if corner != data.shape:
        data = data[tuple(slice(0, size) for size in corner)]
    return xp.take_along_axis(data, indices, axis=axis)


@op
def GatherND(xp: Backend, data: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    shape, places = data.shape, indices.shape
    if not 0 <= batch_dims < min(len(shape), len(places)):
        raise ValueError(f"batch_dims {batch_dims} do not fit shapes {shape} and {places}")
    if not 1 <= places[-1] <= len(shape) - batch_dims:
        raise ValueError(f"indices of {places[-1]} numbers do not fit shape {shape}")
    if shape[:batch_dims] != places[:batch_dims]:
        raise ValueError(f"shapes {shape} and {places} differ in their {batch_dims} batch axes")
    require_within_axes(xp, indices, shape[batch_dims : batch_dims + places[-1]])
    batch = (along(xp, places[i], i, len(places) - 1) for i in range(batch_dims))
    return xp.gather(data, (*batch, *(indices[..., i] for i in range(places[-1]))))


def along(xp: Backend, size: int, axis: int, rank: int) -> Array:
    """0, 1, 2, ... along one axis of several."""
    shape = tuple(size if i == axis else 1 for i in range(rank))
    return xp.reshape(xp.arange(size, dtype=xp.dtype(np.dtype(np.int64))), shape)


def require_within(xp: Backend, indices: Array, size: int) -> None:
    """Require that all indices are within an axis, counted from its start or its end."""
    _require_elements(size, indices)
    xp.require(indices, Within("indices", -size, size - 1))


def require_within_axes(xp: Backend, indices: Array, sizes: Ints) -> None:
    """Require that the last axis of `indices` holds an index into each of several axes."""
    _require_elements(math.prod(sizes), indices)
    for i, size in enumerate(sizes):
        xp.require(indices, Within("indices", -size, size - 1, part=(..., i)))


def _require_elements(size: int, indices: Array) -> None:
    if size == 0 and indices.size:
        raise BadData("'indices' point into an axis of size 0, which has no elements")


# -- by positions known before tracing ------------------------------------------------------------


@op
def Slice(
    xp: Backend,
    data: Array,
    starts: Ints,
    ends: Ints,
    axes: Ints | None = None,
    steps: Ints | None = None,
) -> Array:
    """Positions beyond an axis mean its end, so that 2**63 - 1 reaches the end of any."""
    axes = axes_within(range(len(starts)) if axes is None else axes, data.ndim)
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise ValueError(f"starts {starts}, ends {ends}, axes {axes}, steps {steps} do not match")
    kept = [range(size) for size in data.shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        # Backwards, a start before the axis means its first element; in Python it means none.
        first = max(start, -data.shape[axis]) if step < 0 else start
        kept[axis] = kept[axis][first:end:step]
    if all(places == range(size) for places, size in zip(kept, data.shape, strict=True)):
        return data
    return data[tuple(map(_within_bounds, kept))]


def _within_bounds(places: range) -> slice:
    """The slice that selects `places` and names none outside the axis, as the standard demands."""
    if not places:
        return slice(0, 0)
    end = places[-1] + (1 if places.step > 0 else -1)
    return slice(places[0], None if end < 0 else end, places.step)
