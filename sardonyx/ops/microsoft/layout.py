"""Operators of com.microsoft that move, repeat or select elements.

Most are older than those of the same name in the standard, and do what these do now.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops import fill, indexing, layout, selection
from sardonyx.ops.axes import axis_within
from sardonyx.ops.definition import Alias, Host, Ints, Unsized, op
from sardonyx.ops.dtypes import INT64
from sardonyx.ops.precision import wide


@op(domain="com.microsoft")
def SampleOp(xp: Backend, X: Array) -> Alias:
    return X


@op(domain="com.microsoft")
def ExpandDims(xp: Backend, X: Array, axis: int) -> Alias:
    return layout.Unsqueeze(xp, X, (axis,))


@op(domain="com.microsoft")
def Pad(
    xp: Backend, data: Array, pads: Ints, value: Array | None = None, *, mode: str = "constant"
) -> Array:
    return layout.Pad(xp, data, pads, value, mode=mode)


@op(domain="com.microsoft")
def GatherND(xp: Backend, data: Array, indices: Array) -> Array:
    return indexing.GatherND(xp, data, indices)


@op(domain="com.microsoft")
def Trilu(xp: Backend, X: Array, k: int = 0, *, upper: int = 1) -> Array:
    return layout.Trilu(xp, X, k, upper=upper)


@op(domain="com.microsoft")
def Range(xp: Backend, start: Host, limit: Host, delta: Host | None = None) -> Array:
    return fill.Range(xp, start, limit, np.ones((), start.dtype) if delta is None else delta)


@op(domain="com.microsoft")
def Unique(xp: Backend, x: Array) -> tuple[Unsized, Unsized, Unsized]:
    """Return the distinct elements as they first occur, where each went, and their counts."""
    if x.ndim != 1:
        raise ValueError(f"x has shape {x.shape}, but must have one axis")
    y, _, idx, counts = selection.distinct_slices(xp, x, 0, is_sorted=False)
    return y, idx, counts


@op(domain="com.microsoft")
def UnfoldTensor(xp: Backend, input: Array, *, dim: int = -1, size: int, step: int = 1) -> Array:
    """Return the slices of an axis, along an axis that is appended to the others."""
    axis = axis_within(dim, input.ndim)
    length = input.shape[axis]
    if not 0 <= size <= length or step < 1:
        raise ValueError(
            f"size is {size} and step is {step}, but size must be at most {length}, as axis {axis} "
            "is, and step at least 1"
        )
    count = (length - size) // step + 1
    xp.allow((*input.shape, size), xp.numpy_dtype(input.dtype))
    first = xp.arange(count, dtype=xp.dtype(INT64)) * step
    places = xp.expand_dims(first, axis=1) + xp.arange(size, dtype=xp.dtype(INT64))
    slices = xp.take(input, xp.reshape(places, (count * size,)), axis=axis)
    shape = (*input.shape[:axis], count, size, *input.shape[axis + 1 :])
    return xp.moveaxis(xp.reshape(slices, shape), axis + 1, -1)


@op(domain="com.microsoft")
def IsAllFinite(xp: Backend, *input: Array, isinf_only: int = 0, isnan_only: int = 0) -> Array:
    """Return whether no element is infinite or NaN; each of the two may be left out."""
    if not input or (isinf_only and isnan_only):
        raise ValueError("it needs an input, and at most one of isinf_only and isnan_only")
    tests = (xp.isinf,) if isinf_only else (xp.isnan,) if isnan_only else (xp.isinf, xp.isnan)
    any_wrong = (xp.any(test(wide(xp, x))) for test in tests for x in input)
    return xp.logical_not(reduce(xp.logical_or, any_wrong))
