"""Rounding once, where libraries round twice.

From float64 to a low-precision float they go by way of float32, and may land on a tie that was
none: 1 + 2**-8 + 2**-40 becomes 1 + 2**-8 becomes 1 in bfloat16, though 1 + 2**-7 is nearer.
Rounding to odd the first time keeps ties apart (S. Boldo, G. Melquiond, "Emulation of FMA and
correctly rounded sums: proved algorithms using rounding to odd", IEEE Trans. Computers 57, 2008).
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from sardonyx.backends.base import is_low_precision, isdtype

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOAT8E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)


def prepared(x: Any, dtype: np.dtype[Any]) -> Any:
    """`x`, an array of NumPy, CuPy or JAX, in a form whose cast to `dtype` rounds but once."""
    if not is_low_precision(dtype) or not isdtype(dtype, "real floating") or dtype == FLOAT8E8M0:
        return x
    if dtype == BFLOAT16 and x.dtype.kind in "iu" and x.dtype.itemsize >= 4:
        x = x.astype(np.float64)
    return to_odd_float32(x) if x.dtype == np.float64 else x


def to_odd_float32(x: Any) -> Any:
    """float64 `x` as float32: what is inexact becomes the neighbour whose last bit is 1."""
    nearest = x.astype(np.float32)
    back = nearest.astype(np.float64)
    bits = nearest.view(np.uint32)
    towards_zero = bits - (abs(back) > abs(x)).astype(np.uint32)
    return (towards_zero | (back != x).astype(np.uint32)).view(np.float32)
