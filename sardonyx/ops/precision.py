"""The precision in which an op computes where it differs from that of its inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.dtypes import FLOAT32


def at_least_float32(function: Callable[..., Array]) -> Callable[..., Array]:
    """Make a function compute narrower floats in float32 and round once, at the end.

    All inputs that are present must be arrays of one dtype, which is that of the result.
    """

    @wraps(function)
    def widened(xp: Backend, *inputs: Any, **attributes: Any) -> Array:
        dtype = inputs[0].dtype
        if not is_narrow(xp, dtype):
            return function(xp, *inputs, **attributes)
        float32 = xp.dtype(FLOAT32)
        wider = (None if x is None else xp.astype(x, float32) for x in inputs)
        return xp.astype(function(xp, *wider, **attributes), dtype)

    return widened


def wide(xp: Backend, x: Array) -> Array:
    """Return `x` in float32 if it is a narrower float, and unchanged otherwise."""
    return xp.astype(x, xp.dtype(FLOAT32)) if is_narrow(xp, x.dtype) else x


def is_narrow(xp: Backend, dtype: Any) -> bool:
    """Return whether `dtype` is a float of fewer than 32 bits."""
    return xp.isdtype(dtype, "real floating") and xp.numpy_dtype(dtype).itemsize < 4
