"""Operators that write elements at indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.conditions import Within
from sardonyx.backends.standard import Array
from sardonyx.ops.axes import axis_within, require_shape, sliced
from sardonyx.ops.definition import op
from sardonyx.ops.dtypes import UINT8
from sardonyx.ops.indexing import along, require_within, require_within_axes
from sardonyx.ops.options import require_one_of
from sardonyx.ops.precision import wide

# -- at any indices -------------------------------------------------------------------------------


@op
def ScatterElements(
    xp: Backend,
    data: Array,
    indices: Array,
    updates: Array,
    *,
    axis: int = 0,
    reduction: str = "none",
) -> Array:
    axis = axis_within(axis, data.ndim)
    shape = indices.shape
    if updates.shape != shape or len(shape) != data.ndim:
        raise ValueError(
            f"updates of shape {updates.shape} and indices of shape {shape} must have the same "
            f"shape, with {data.ndim} axes"
        )
    corner = (*shape[:axis], data.shape[axis], *shape[axis + 1 :])
    if any(n > m for n, m in zip(corner, data.shape, strict=True)):
        raise ValueError(f"indices of shape {shape} do not fit data of shape {data.shape}")
    require_within(xp, indices, data.shape[axis])
    places = [along(xp, size, i, data.ndim) for i, size in enumerate(shape)]
    places[axis] = indices
    return _combined(xp, data, places, updates, reduction)


@op
def Scatter(xp: Backend, data: Array, indices: Array, updates: Array, *, axis: int = 0) -> Array:
    result: Array = ScatterElements(xp, data, indices, updates, axis=axis)
    return result


@op
def ScatterND(
    xp: Backend, data: Array, indices: Array, updates: Array, *, reduction: str = "none"
) -> Array:
    if indices.ndim < 1 or not 1 <= indices.shape[-1] <= data.ndim:
        raise ValueError(
            f"indices have shape {indices.shape}, but the last size must be from 1 to {data.ndim}"
        )
    count = indices.shape[-1]
    require_shape("updates", updates, (*indices.shape[:-1], *data.shape[count:]))
    require_within_axes(xp, indices, data.shape[:count])
    places = [indices[..., i] for i in range(count)]
    return _combined(xp, data, places, updates, reduction)


def _combined(
    xp: Backend, data: Array, places: Sequence[Array], updates: Array, reduction: str
) -> Array:
    """Return `data` with the updates written, or combined with the elements by `reduction`."""
    require_one_of("reduction", reduction, ("none", "add", "mul", "max", "min"))
    if reduction == "none":
        return xp.scatter(data, places, updates)
    _require_combinable(xp, data.dtype, reduction)
    if xp.isdtype(data.dtype, "bool"):
        # The sum of booleans is their maximum, and their product is their minimum.
        reduction = {"add": "max", "mul": "min"}.get(reduction, reduction)
        elements, updates = (xp.astype(x, xp.dtype(UINT8)) for x in (data, updates))
    else:
        elements, updates = wide(xp, data), wide(xp, updates)
    return xp.astype(xp.scatter(elements, places, updates, reduction), data.dtype)


def _require_combinable(xp: Backend, dtype: Any, reduction: str) -> None:
    if xp.isdtype(dtype, "complex floating") and reduction in ("max", "min"):
        raise ValueError(f"complex numbers have no order for the reduction {reduction!r}")
    if xp.numpy_dtype(dtype).kind == "O" and reduction == "mul":
        raise ValueError("strings have no product for the reduction 'mul'")


# -- a slice of each sample -----------------------------------------------------------------------


@op
def TensorScatter(
    xp: Backend,
    past_cache: Array,
    update: Array,
    write_indices: Array | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Array:
    require_one_of("mode", mode, ("linear", "circular"))
    axis = axis_within(axis, past_cache.ndim)
    if axis == 0:
        raise ValueError("axis is 0, the batch; it must be the axis of the sequence")
    shape, length = past_cache.shape, update.shape[axis] if axis < update.ndim else 0
    if update.shape != (*shape[:axis], length, *shape[axis + 1 :]) or length > shape[axis]:
        raise ValueError(
            f"update of shape {update.shape} does not fit past_cache of shape {shape}: only axis "
            f"{axis} may differ, and must not be longer"
        )
    if write_indices is None:
        return xp.concat([update, sliced(past_cache, axis, length, None)], axis=axis)
    require_shape("write_indices", write_indices, shape[:1])
    if not update.size:
        return past_cache
    if mode == "linear":
        xp.require(write_indices, Within("write_indices", 0, shape[axis] - length))
    steps = xp.reshape(write_indices, (-1, 1)) + along(xp, length, 1, 2)
    if mode == "circular":
        steps = xp.remainder(steps, shape[axis])
    else:
        # A negative index is out of range; it does not count from the end.
        steps = xp.where(steps < 0, shape[axis], steps)
    return xp.write_rows(past_cache, steps, update, axis=axis)


# -- one-hot vectors ------------------------------------------------------------------------------


@op
def OneHot(xp: Backend, indices: Array, depth: int, values: Array, *, axis: int = -1) -> Array:
    """Return one-hot vectors; negative indices count from the end."""
    return _one_hot(xp, indices, depth, values, axis=axis, from_end=True)


@OneHot.before(11)
def one_hot_of_indices_from_the_front(
    xp: Backend, indices: Array, depth: int, values: Array, *, axis: int = -1
) -> Array:
    """Return one-hot vectors; a negative index is out of range, and its vector is all off."""
    return _one_hot(xp, indices, depth, values, axis=axis, from_end=False)


def _one_hot(
    xp: Backend, indices: Array, depth: int, values: Array, *, axis: int, from_end: bool
) -> Array:
    rank = indices.ndim + 1
    axis = axis_within(axis, rank)
    require_shape("values (off and on)", values, (2,))
    if depth < 0:
        raise ValueError(f"depth is {depth}, but must not be negative")
    shape = (*indices.shape[:axis], depth, *indices.shape[axis:])
    xp.allow(shape, xp.numpy_dtype(values.dtype))
    # Large unsigned indices would become negative in int64.
    unsigned = xp.isdtype(indices.dtype, "unsigned integer")
    counting = xp.dtype(np.dtype(np.uint64 if unsigned else np.int64))
    places = xp.expand_dims(xp.astype(indices, counting), axis=axis)
    if from_end and not unsigned:
        places = xp.where(places < 0, places + depth, places)
    on = xp.equal(places, xp.astype(along(xp, depth, axis, rank), counting))
    return xp.where(on, values[1:], values[:1])
