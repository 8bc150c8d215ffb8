"""Kernels that convert the bytes of types that CuPy lacks to numbers, and numbers to such bytes."""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy
import numpy as np

from sardonyx.backends.fusion.c_types import converted
from sardonyx.backends.fusion.helpers import helpers_of
from sardonyx.backends.fusion.narrow_types import number_dtype
from sardonyx.backends.rounding import prepared

BOOL, FLOAT32, FLOAT64 = (np.dtype(name) for name in ("bool", "float32", "float64"))


def numbers(data: Any, dtype: np.dtype[Any], to: np.dtype[Any] | None = None) -> Any:
    """Return the numbers that bytes of a narrow dtype stand for, in the dtype `to` if it is given.

    Without it they are float32, or integers of 8 bits.
    """
    nearest = number_dtype(dtype)
    # Through float32, a number could be flushed to 0, or an infinity become any integer.
    is_direct = to is not None and (to in (FLOAT64, BOOL) or to.kind in "iu")
    read = to if to is not None and is_direct else nearest
    found = _kernel("uint8", dtype, read.name, read)(data)
    return found if to is None else found.astype(to, copy=False)


def encoded(x: Any, dtype: np.dtype[Any]) -> Any:
    """Return the bytes of numbers that are rounded, once, to a narrow dtype."""
    wide = number_dtype(dtype)
    if wide != FLOAT32:
        source = x if x.dtype.kind in "biu" else x.astype(np.int32)
        wide = np.dtype(np.int64) if source.dtype.itemsize == 8 else np.dtype(np.int32)
        return _kernel(wide.name, wide, "uint8", dtype)(source.astype(wide, copy=False))
    source = prepared(x, dtype).astype(FLOAT32, copy=False)
    return _kernel("float32", FLOAT32, "uint8", dtype)(source)


@cache
def _kernel(read: str, source: np.dtype[Any], written: str, dtype: np.dtype[Any]) -> Any:
    text = converted("x", source, dtype)
    return cupy.ElementwiseKernel(
        f"{read} x",
        f"{written} y",
        f"y = {text}",
        f"sardonyx_{source.name}_as_{dtype.name}",
        preamble=helpers_of(text),
    )
