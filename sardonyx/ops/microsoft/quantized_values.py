"""Values of quantized arrays, rounded step by step as onnxruntime's kernels round them.

Values often lie exactly between two integers, so the last bit decides which one a kernel returns.
"""

from __future__ import annotations

from sardonyx.backends.base import Backend
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import DType
from sardonyx.ops.dtypes import FLOAT32, FLOAT64, INT32
from sardonyx.ops.quantization import quantized, single_number


def wide_value(xp: Backend, x: Array, zero_point: Array | None) -> Array:
    """Return the integers `x` in int32, less their zero point, which is one number if any."""
    require_integers(xp, x)
    int32 = xp.dtype(INT32)
    x = xp.astype(x, int32)
    return x if zero_point is None else x - xp.astype(single_number(xp, zero_point), int32)


def float_zero(xp: Backend, zero_point: Array | None) -> Array:
    """Return a zero point as one float32 number; 0 if there is none."""
    float32 = xp.dtype(FLOAT32)
    if zero_point is None:
        return xp.zeros((), dtype=float32)
    return xp.astype(single_number(xp, zero_point), float32)


def product(xp: Backend, a: Array, b: Array) -> Array:
    """Return `a * b` of short integers or floats, rounded to float32."""
    float32 = xp.dtype(FLOAT32)
    return xp.separate_product(xp.astype(a, float32), xp.astype(b, float32))


def multiply_add(xp: Backend, a: Array, b: Array, c: Array) -> Array:
    """Return `a * b + c`, rounded once to float32, as a processor's fused operation does.

    In float64 the product of a short integer and a float32 number is exact.
    """
    a, b, c = (xp.astype(x, xp.dtype(FLOAT64)) for x in (a, b, c))
    return xp.astype(a * b + c, xp.dtype(FLOAT32))


def dequantized(xp: Backend, x: Array, scale: Array, zero_point: Array | None) -> Array:
    """Return integers as float32 values, for one scale and zero point."""
    return product(xp, wide_value(xp, x, zero_point), single_number(xp, scale))


def in_units(xp: Backend, x: Array, scale: Array, zero_point: Array | None, like: Array) -> Array:
    """Quantize float32 values to the dtype of `like`: round the quotient, then add the zero."""
    quotient = xp.quotient(x, single_number(xp, scale))
    return quantized(xp, quotient, float_zero(xp, zero_point), dtype_of(xp, like))


def require_integers(xp: Backend, *arrays: Array) -> None:
    """Raise a ValueError unless all arrays hold integers."""
    for x in arrays:
        if not xp.isdtype(x.dtype, "integral"):
            raise ValueError(f"a quantized input is {dtype_of(xp, x)}, but must hold integers")


def dtype_of(xp: Backend, x: Array) -> DType:
    return xp.numpy_dtype(x.dtype)
