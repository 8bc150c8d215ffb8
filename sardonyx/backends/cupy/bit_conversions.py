"""Kernels for conversions: of types that CuPy lacks, and where CuPy's depend on the processor."""

from __future__ import annotations

from functools import cache
from typing import Any

import cupy
import numpy as np

from sardonyx.backends.fusion import c_types
from sardonyx.backends.fusion.helpers import helpers_of
from sardonyx.backends.fusion.narrow_types import number_dtype
from sardonyx.backends.rounding import prepared
from sardonyx.backends.saturation import can_saturate

BOOL, FLOAT32, FLOAT64 = (np.dtype(name) for name in ("bool", "float32", "float64"))
INT32 = np.dtype(np.int32)


def converted(x: Any, dtype: np.dtype[Any]) -> Any:
    """Return an array of CuPy in another of its dtypes, as fused kernels convert it.

    CuPy's own kernels leave integers out of range to the processor, and flush subnormal float32.
    """
    source = x.dtype
    if not can_saturate(source, dtype) and (source, dtype) != (FLOAT64, FLOAT32):
        return prepared(x, dtype).astype(dtype, copy=False)
    if source != FLOAT64:
        x = x.astype(FLOAT32, copy=False)
    return _kernel(x.dtype.name, x.dtype, dtype.name, dtype)(x)


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
        source = x if x.dtype.kind in "biu" else converted(x, INT32)
        wide = np.dtype(np.int64) if source.dtype.itemsize == 8 else INT32
        return _kernel(wide.name, wide, "uint8", dtype)(source.astype(wide, copy=False))
    source = converted(prepared(x, dtype), FLOAT32)
    return _kernel("float32", FLOAT32, "uint8", dtype)(source)


@cache
def _kernel(read: str, source: np.dtype[Any], written: str, dtype: np.dtype[Any]) -> Any:
    text = c_types.converted("x", source, dtype)
    return cupy.ElementwiseKernel(
        f"{read} x",
        f"{written} y",
        f"y = {text}",
        f"sardonyx_{source.name}_as_{dtype.name}",
        preamble=helpers_of(text),
    )
