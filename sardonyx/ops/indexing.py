"""Operators that read elements by their indices."""

from __future__ import annotations

import math

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import BadData, Within
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import axes_within, axis_within
from sardonyx.ops.definition import Ints, op
from sardonyx.ops.dtypes import INT64

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
        raise ValueError(f"indices of shape {indices.shape} do not fit data of shape {data.shape}")
    if corner != data.shape:
        data = data[tuple(slice(0, size) for size in corner)]
    return xp.take_along_axis(data, indices, axis=axis)


@op
def GatherND(xp: Backend, data: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    shape, positions = data.shape, indices.shape
    if not 0 <= batch_dims < min(len(shape), len(positions)):
        raise ValueError(
            f"batch_dims {batch_dims} must be less than the ranks of data {shape} and indices "
            f"{positions}"
        )
    if not 1 <= positions[-1] <= len(shape) - batch_dims:
        raise ValueError(
            f"indices end in an axis of {positions[-1]}, but data of shape {shape} has "
            f"{len(shape) - batch_dims} axes to index"
        )
    if shape[:batch_dims] != positions[:batch_dims]:
        raise ValueError(
            f"data {shape} and indices {positions} differ in their first {batch_dims} axes"
        )
    require_within_axes(xp, indices, shape[batch_dims : batch_dims + positions[-1]])
    batch = (along(xp, positions[i], i, len(positions) - 1) for i in range(batch_dims))
    return xp.gather(data, (*batch, *(indices[..., i] for i in range(positions[-1]))))


def along(xp: Backend, size: int, axis: int, rank: int) -> Array:
    """Return 0, 1, 2, ... along one axis of an array with `rank` axes."""
    shape = tuple(size if i == axis else 1 for i in range(rank))
    return xp.reshape(xp.arange(size, dtype=xp.dtype(INT64)), shape)


def require_within(xp: Backend, indices: Array, size: int) -> None:
    """Require that all indices lie within an axis of this size, counted from either end."""
    _require_elements(size, indices)
    xp.require(indices, Within("indices", -size, size - 1, is_of_index=True))


def require_within_axes(xp: Backend, indices: Array, sizes: Ints) -> None:
    """Require that the last axis of `indices` holds one index for each axis of these sizes."""
    _require_elements(math.prod(sizes), indices)
    for i, size in enumerate(sizes):
        part = (..., i)
        xp.require(indices, Within("indices", -size, size - 1, part, is_of_index=True))


def _require_elements(size: int, indices: Array) -> None:
    if size == 0 and indices.size:
        raise BadData("'indices' refer to an axis of size 0, which has no elements")


# -- by static positions --------------------------------------------------------------------------


@op
def Slice(
    xp: Backend,
    data: Array,
    starts: Ints,
    ends: Ints,
    axes: Ints | None = None,
    steps: Ints | None = None,
) -> Array:
    """Slice along some axes; positions beyond an axis are clamped to its end."""
    axes = axes_within(range(len(starts)) if axes is None else axes, data.ndim)
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise ValueError(
            f"starts {starts}, ends {ends}, axes {axes} and steps {steps} must have equal lengths, "
            "and no step may be 0"
        )
    selected = [range(size) for size in data.shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        # With a negative step, ONNX clamps a start before the axis to 0; Python selects nothing.
        first = max(start, -data.shape[axis]) if step < 0 else start
        selected[axis] = selected[axis][first:end:step]
    if all(positions == range(size) for positions, size in zip(selected, data.shape, strict=True)):
        return data
    return data[tuple(map(_within_bounds, selected))]


def _within_bounds(positions: range) -> slice:
    """Return the slice that selects `positions`, with all bounds inside the axis."""
    if not positions:
        return slice(0, 0)
    end = positions[-1] + (1 if positions.step > 0 else -1)
    return slice(positions[0], None if end < 0 else end, positions.step)
