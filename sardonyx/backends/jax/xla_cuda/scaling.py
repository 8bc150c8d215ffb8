"""Products of short numbers and a scale, which XLA fuses into a matrix product.

XLA takes a conversion and a product into the kernel of a matrix product, and matches both where
cuBLASLt multiplies float8, but not a product in float32 that is rounded to a shorter type.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

_HALVES = frozenset({np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)})
# Their values are values of both halves.
_SHORT = frozenset(
    np.dtype(getattr(ml_dtypes, name, name))
    for name in ("int4", "uint4", "int8", "uint8", "float8_e4m3fn", "float8_e5m2")
)


def is_exact(short: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a product of such numbers in this type is the product in float32, rounded to it.

    That product has at most 19 bits, so that float32 does not round it.
    """
    return np.dtype(short) in _SHORT and dtype in _HALVES


def scaled(x: Any, scale: Any, *, dtype: np.dtype[Any]) -> Any:
    """Return `x * scale` in the type of the result, of which all numbers of the scale are."""
    return x.astype(dtype) * scale.astype(dtype)
