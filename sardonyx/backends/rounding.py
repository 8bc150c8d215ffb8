"""Rounding once, where libraries and processors round twice.

From float64 to a low-precision float they go by way of float32, and may land on a tie that was
none: 1 + 2**-8 + 2**-40 becomes 1 + 2**-8 becomes 1 in bfloat16, though 1 + 2**-7 is nearer.
Rounding to odd the first time keeps ties apart (S. Boldo, G. Melquiond, "Emulation of FMA and
correctly rounded sums: proved algorithms using rounding to odd", IEEE Trans. Computers 57, 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from sardonyx.backends.dtypes import is_low_precision, isdtype

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT8E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)


def to_odd_float32(x: Any) -> Any:
    """float64 `x` as float32; an inexact number becomes the neighbour whose last bit is 1."""
    nearest = x.astype(np.float32)
    back = nearest.astype(np.float64)
    bits = nearest.view(np.uint32)
    towards_zero = bits - (abs(back) > abs(x)).astype(np.uint32)
    return (towards_zero | (back != x).astype(np.uint32)).view(np.float32)


def integers_to_odd(x: Any) -> Any:
    """Integers of 32 or 64 bits as float32 or float64; an inexact one becomes an odd neighbour."""
    wide, digits = (np.float64, 53) if x.dtype.itemsize == 8 else (np.float32, 24)
    spare = 8 * x.dtype.itemsize - digits
    is_long = abs(x.astype(wide)) >= 2.0**digits
    below = x & (is_long.astype(x.dtype) * (2**spare - 1))
    odd = (x - below) | ((below != 0).astype(x.dtype) << spare)
    return odd.astype(wide)


def prepared(x: Any, dtype: np.dtype[Any], to_odd: Callable[[Any], Any] = to_odd_float32) -> Any:
    """`x`, an array of NumPy, CuPy or JAX, in a form whose cast to `dtype` rounds but once."""
    if not is_low_precision(dtype) or not isdtype(dtype, "real floating") or dtype == FLOAT8E8M0:
        return x
    if dtype == BFLOAT16 and x.dtype.kind in "iu" and x.dtype.itemsize >= 4:
        x = integers_to_odd(x)
    return to_odd(x) if x.dtype == np.float64 else x
