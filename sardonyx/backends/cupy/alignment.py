"""Arrays that lie askew: kernels and CUDA's libraries read elements at multiples of their size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np


def is_askew(array: Any) -> bool:
    """Return whether an array has elements that do not lie at multiples of their size."""
    size, start = array.itemsize, array.data.ptr
    if array.flags.c_contiguous or not array.size:
        return bool(array.size and start % size)
    steps = (step for step, n in zip(array.strides, array.shape, strict=True) if n > 1)
    return bool(start % size or any(step % size for step in steps))


def aligned(array: Any) -> Any:
    """Return the array, or a row-major copy if it lies askew."""
    if not is_askew(array):
        return array
    # Its bytes are copied one by one.
    shape, strides = (*array.shape, array.itemsize), (*array.strides, 1)
    in_bytes = cupy.ndarray(shape, np.uint8, array.data, strides)
    with cupy.cuda.Device(array.data.device_id):
        return in_bytes.copy(order="C").view(array.dtype)[..., 0]


def with_aligned(arrays: Sequence[Any], count: int) -> list[Any]:
    """Return the arrays, of which the first so many are aligned."""
    first = [
        aligned(array) if isinstance(array, cupy.ndarray) else array for array in arrays[:count]
    ]
    return [*first, *arrays[count:]]
