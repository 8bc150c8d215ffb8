"""The C types of elements: in memory, and in the registers of a kernel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sardonyx.backends.fusion.narrow_types import (
    FLOAT8E8M0,
    FLOAT32,
    NARROW,
    byte,
    byte_of,
    number,
    number_dtype,
)
from sardonyx.backends.saturation import can_saturate

FLOAT64 = np.dtype(np.float64)
INT32 = np.dtype(np.int32)
# By dtype: the type of an element in memory, and the type in which kernels compute.
_TYPES = {
    "bool": ("bool", "bool"),
    "int8": ("signed char", "signed char"),
    "int16": ("short", "short"),
    "int32": ("int", "int"),
    "int64": ("long long", "long long"),
    "uint8": ("unsigned char", "unsigned char"),
    "uint16": ("unsigned short", "unsigned short"),
    "uint32": ("unsigned int", "unsigned int"),
    "uint64": ("unsigned long long", "unsigned long long"),
    "float16": ("__half", "float"),
    "bfloat16": ("unsigned short", "float"),
    "float32": ("float", "float"),
    "float64": ("double", "double"),
    **{dtype.name: ("unsigned char", "unsigned char") for dtype in NARROW},
}
_UNSIGNED = {4: "unsigned int", 8: "unsigned long long"}


def memory_type(dtype: np.dtype[Any]) -> str:
    return _TYPES[dtype.name][0]


def register_type(dtype: np.dtype[Any]) -> str:
    return _TYPES[dtype.name][1]


def wrapping_type(dtype: np.dtype[Any]) -> str:
    """Return the type of the same size whose arithmetic wraps by C's rules."""
    return _UNSIGNED.get(dtype.itemsize, "int")


def loaded(text: str, dtype: np.dtype[Any]) -> str:
    """Return the register's form of an element in memory."""
    return {"float16": f"__half2float({text})", "bfloat16": f"from_bfloat16({text})"}.get(
        dtype.name, text
    )


def stored(text: str, dtype: np.dtype[Any]) -> str:
    """Return the memory's form of a register's number, which is rounded already."""
    return {"float16": f"__float2half_rn({text})", "bfloat16": f"to_bfloat16({text})"}.get(
        dtype.name, text
    )


def rounded(text: str, dtype: np.dtype[Any]) -> str:
    """Round a float32 to the numbers that the dtype has."""
    return {
        "float16": f"__half2float(__float2half_rn({text}))",
        "bfloat16": f"from_bfloat16(to_bfloat16({text}))",
    }.get(dtype.name, text)


def converted(text: str, source: np.dtype[Any], dtype: np.dtype[Any]) -> str:
    """Convert a register's element to another dtype, rounding once."""
    if source == dtype:
        return text
    if source in NARROW:
        return _from_narrow(text, source, dtype)
    if dtype in NARROW:
        return byte(_to_number(text, source, dtype), dtype)
    return _between_cupys(text, source, dtype)


def _between_cupys(text: str, source: np.dtype[Any], dtype: np.dtype[Any]) -> str:
    if dtype.kind == "b":
        return f"{text} != 0"
    if can_saturate(source, dtype):
        limits = np.iinfo(dtype)
        ends = f"{_integer(limits.min, dtype)}, {_integer(limits.max, dtype)}"
        return f"to_integer<{register_type(dtype)}>({text}, {ends})"
    if (source, dtype) == (FLOAT64, FLOAT32):
        return f"to_float32({text})"
    if dtype.name not in ("float16", "bfloat16"):
        return f"({register_type(dtype)})({text})"
    return _to_half(text, source, dtype)


def _to_half(text: str, source: np.dtype[Any], dtype: np.dtype[Any]) -> str:
    if source.kind in "iu" and source.itemsize >= 4:
        text, source = f"(double)({text})", FLOAT64
    if source == FLOAT64:
        text = f"to_odd({text})"
    elif source.kind in "biu":
        text = f"(float)({text})"
    return rounded(text, dtype)


def _from_narrow(text: str, source: np.dtype[Any], dtype: np.dtype[Any]) -> str:
    if source == FLOAT8E8M0 and dtype.kind == "b":
        # None of its numbers is zero, but the kernel would flush the least one.
        return "true"
    if source == FLOAT8E8M0 and dtype == FLOAT64:
        return f"from_power_of_two_to_double({text})"
    return converted(number(text, source), number_dtype(source), dtype)


def _to_number(text: str, source: np.dtype[Any], dtype: np.dtype[Any]) -> str:
    """Convert to what a narrow type's bytes are computed from: a float32, or any integer."""
    if number_dtype(dtype) != FLOAT32:
        return text if source.kind in "biu" else converted(text, source, INT32)
    if source == FLOAT64 and dtype != FLOAT8E8M0:
        return f"to_odd({text})"
    return converted(text, source, FLOAT32)


def literal_of(value: np.ndarray[Any, Any]) -> str:
    """Return an array's only element as C writes it, in the register's type."""
    if value.dtype in NARROW:
        return str(byte_of(value))
    return literal(value.reshape(()).item(), value.dtype)


def literal(value: Any, dtype: np.dtype[Any]) -> str:
    """Return a number as C writes it, in the register's type."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind in "iu":
        return _integer(int(value), dtype)
    number, suffix = float(value), "" if dtype.itemsize == 8 else "f"
    if math.isnan(number):
        return _bits("7fc00000" if suffix else "7ff8000000000000")
    if math.isinf(number):
        sign = "f" if number < 0 else "7"
        return _bits(f"{sign}f800000" if suffix else f"{sign}ff0000000000000")
    return f"({number!r}{suffix})" if math.copysign(1, number) < 0 else f"{number!r}{suffix}"


def _bits(digits: str) -> str:
    if len(digits) == 8:
        return f"__uint_as_float(0x{digits}U)"
    return f"__longlong_as_double(0x{digits}ULL)"


def _integer(number: int, dtype: np.dtype[Any]) -> str:
    suffix = {"int64": "LL", "uint64": "ULL", "uint32": "U"}.get(dtype.name, "")
    if dtype.kind == "i" and number == np.iinfo(dtype).min:
        return f"({number + 1}{suffix} - 1)"
    return f"({number}{suffix})" if number < 0 else f"{number}{suffix}"
