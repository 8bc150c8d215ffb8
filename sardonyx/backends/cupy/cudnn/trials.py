"""Numbers on which plans of cuDNN are tried out."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import cupy
import numpy as np

from sardonyx.backends.standard import Shape

# Of no size of an array, so that neighbours on all axes differ.
PERIOD = 61


def numbers(shape: Shape, dtype: np.dtype[Any], *, order: int = 0) -> Any:
    """Return an array of numbers between -1 and 1, in an order without a pattern.

    Each array of a trial has its own order: a plan that takes one for another must not be right.
    """
    period = np.random.default_rng(order).permutation(PERIOD) * (2 / (PERIOD - 1)) - 1
    size = math.prod(shape)
    repeated = cupy.tile(cupy.asarray(period.astype(np.float32)).astype(dtype), -(-size // PERIOD))
    return repeated[:size].reshape(shape).copy()


@cache
def negative_zeros(size: int, dtype: np.dtype[Any], device: int) -> Any:
    """Return an array that changes nothing that it is added to, on any stream."""
    array = cupy.asarray(np.full(size, -0.0, dtype))
    cupy.cuda.get_current_stream().synchronize()
    return array


def with_specials(array: Any, *, first: int) -> Any:
    """Put NaN and both infinities into an array from a place on, and leave it another number."""
    flat = array.reshape(-1)
    for i, value in enumerate((cupy.nan, cupy.inf, -cupy.inf)):
        if i < flat.size - 1:
            flat[(first + i) % flat.size] = value
    return array
