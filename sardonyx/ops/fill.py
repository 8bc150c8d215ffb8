"""Operators that create tensors from shapes and scalars."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.dtypes import isdtype
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import DType, Host, Ints, Shaped, op
from sardonyx.ops.dtypes import FLOAT32


@op
def ConstantOfShape(xp: Backend, input: Ints, *, value: Host | None = None) -> Array:
    if min(input, default=0) < 0:
        raise ValueError(f"shape {input} has a negative size")
    value = np.zeros((), FLOAT32) if value is None else np.asarray(value)
    if value.size != 1:
        raise ValueError(f"value has {value.size} elements, but must have one")
    return xp.broadcast_to(xp.asarray(value.reshape(())), input)


@ConstantOfShape.infers()
def _infer_constant_of_shape(
    dtypes: Sequence[DType | None], outputs: int, *, value: Host | None = None
) -> list[DType | None]:
    return [FLOAT32 if value is None else value.dtype]


@op
def Range(xp: Backend, start: Host, limit: Host, delta: Host, *, stash_type: int = 1) -> Array:
    """Return evenly spaced numbers; with `stash_type` 1, narrow floats are computed in float32."""
    dtype = start.dtype
    first, end, step = (value.reshape(()).item() for value in (start, limit, delta))
    if step == 0 or not all(map(math.isfinite, (first, end, step))):
        raise ValueError(
            f"there is no range from {first} to {end} by {step}: all three must be finite, and "
            "delta not 0"
        )
    if isdtype(dtype, "integral"):
        return xp.arange(first, end, step, dtype=xp.dtype(dtype))
    # Count the elements in float64, but compute their values in the dtype of the result.
    count = math.ceil((float(end) - float(first)) / float(step))
    wide = FLOAT32 if stash_type == 1 and dtype.itemsize < 4 else dtype
    steps = xp.astype(xp.arange(max(count, 0)), xp.dtype(wide))
    first, step = (xp.asarray(value.reshape(()).astype(wide)) for value in (start, delta))
    return xp.astype(first + steps * step, xp.dtype(dtype))


@op
def EyeLike(xp: Backend, input: Shaped, *, dtype: DType | None = None, k: int = 0) -> Array:
    if len(input.shape) != 2:
        raise ValueError(f"input has shape {input.shape}, but must be a matrix")
    rows, columns = input.shape
    kind = input.dtype if dtype is None else xp.dtype(dtype)
    return xp.eye(rows, columns, k=max(-rows, min(k, columns)), dtype=kind)
