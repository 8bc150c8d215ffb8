"""Floats as integers on NumPy, as XLA and the kernels for CUDA convert them.

The standard does not say what an integer too large for its type becomes, and NumPy leaves it to the
processor. A model must not answer otherwise once its program is compiled.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from sardonyx.backends.dtypes import is_low_precision, isdtype


def can_saturate(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Whether a cast may meet numbers that the target lacks, as one of floats to integers does."""
    is_whole = isdtype(target, "integral") and not is_low_precision(target)
    return is_whole and isdtype(source, "real floating")


def saturated(x: Any, dtype: np.dtype[Any]) -> Any:
    """Return floats as integers: the nearest ones that the type has, and 0 for NaN.

    >>> saturated(np.float32([-1.5, 3e9, np.inf, np.nan]), np.dtype(np.uint8)).tolist()
    [0, 255, 255, 0]
    """
    if is_low_precision(x.dtype):
        # These types may lack what the numbers are compared with: infinities, zero, signs.
        x = x.astype(np.float32)
    least, most = _bounds(x.dtype, dtype)
    fits = (x >= least) & (x < most)
    if np.logical_and.reduce(fits, axis=None):
        return x.astype(dtype)
    limits = np.iinfo(dtype)
    whole = np.where(fits, x, x.dtype.type(0)).astype(dtype)
    above, below = (x >= most) * dtype.type(limits.max), (x < least) * dtype.type(limits.min)
    return whole + above + below


@lru_cache(maxsize=256)
def _bounds(source: np.dtype[Any], target: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the least number that fits, and the greatest integer that does, or one more.

    One more is a power of two, or infinity, where the floats lack the integer itself.
    """
    limits, lowest = np.iinfo(target), ml_dtypes.finfo(source).min
    with np.errstate(over="ignore"):
        return max(source.type(limits.min), lowest), source.type(limits.max)
