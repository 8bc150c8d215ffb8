"""Operators that convert elements from one dtype to another."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from sardonyx.backends.base import Backend
from sardonyx.backends.dtypes import is_low_precision, isdtype
from sardonyx.backends.standard import Array
from sardonyx.ops.definition import DType, Shaped, op

FLOAT32 = np.dtype(np.float32)
FLOAT64 = np.dtype(np.float64)
INT64 = np.dtype(np.int64)
UINT8 = np.dtype(np.uint8)
UINT32 = np.dtype(np.uint32)
FLOAT8E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)


@op
def Cast(
    xp: Backend, input: Array, *, to: DType, saturate: int = 1, round_mode: str = "up"
) -> Array:
    source = xp.numpy_dtype(input.dtype)
    if source == to:
        return input
    if to.kind == "O":
        return _to_strings(xp.fetch(input))
    if source.kind == "O":
        input = xp.asarray(_from_strings(input, to))
    return _converted(xp, input, to, bool(saturate), round_mode)


@Cast.before(6)
def cast_to_name(xp: Backend, input: Array, *, to: str) -> Array:
    name = {"FLOAT": "float32", "DOUBLE": "float64"}.get(to, to.lower())
    return Cast(xp, input, to=np.dtype(name))


@op
def CastLike(
    xp: Backend, input: Array, target_type: Shaped, *, saturate: int = 1, round_mode: str = "up"
) -> Array:
    to = xp.numpy_dtype(target_type.dtype)
    return Cast(xp, input, to=to, saturate=saturate, round_mode=round_mode)


@op
def BitCast(xp: Backend, input: Array, *, to: DType) -> Array:
    source = xp.numpy_dtype(input.dtype)
    if source == to:
        return input
    if "O" in (source.kind, to.kind) or _bits(source) != _bits(to):
        raise ValueError(f"{source.name} and {to.name} do not have the same number of bits")
    if to.kind == "b":
        # Any nonzero byte is true, and must become the bits of true.
        return xp.not_equal(BitCast(xp, input, to=UINT8), 0)
    return xp.bitcast(input, xp.dtype(to))


def _bits(dtype: DType) -> int:
    """Return the bits of one element; in a file, several elements may share a byte."""
    if not is_low_precision(dtype):
        return 8 * dtype.itemsize
    info = ml_dtypes.iinfo if isdtype(dtype, "integral") else ml_dtypes.finfo
    return int(info(dtype).bits)


# -- numbers --------------------------------------------------------------------------------------


def _converted(xp: Backend, x: Array, to: DType, saturate: bool, round_mode: str) -> Array:
    if xp.isdtype(x.dtype, "complex floating") and to.kind != "c":
        x = xp.not_equal(x, xp.zeros_like(x)) if to.kind == "b" else xp.real(x)
    if to == FLOAT8E8M0:
        return _to_power_of_two(xp, x, saturate, round_mode)
    if to.name.startswith("float8") and saturate:
        greatest = _greatest(to)
        x = xp.minimum(xp.maximum(_widened(xp, x), -greatest), greatest)
    elif is_low_precision(to) and isdtype(to, "integral"):
        # Convert to int32 first: libraries differ when they narrow a float directly.
        x = xp.astype(x, xp.dtype(np.dtype(np.int32)))
    elif is_low_precision(to) and is_low_precision(xp.numpy_dtype(x.dtype)):
        # Convert to float32 first: not every library converts between narrow dtypes.
        x = _widened(xp, x)
    return xp.astype(x, xp.dtype(to))


def _greatest(dtype: DType) -> float:
    return float(ml_dtypes.finfo(dtype).max)


def _widened(xp: Backend, x: Array) -> Array:
    return x if xp.numpy_dtype(x.dtype) == FLOAT64 else xp.astype(x, xp.dtype(FLOAT32))


def _to_power_of_two(xp: Backend, x: Array, saturate: bool, round_mode: str) -> Array:
    """Convert to float8e8m0: the exponent of a float32, without sign, zero or fraction."""
    if round_mode not in ("up", "down", "nearest"):
        raise ValueError(f"round_mode {round_mode!r} is not one of up, down and nearest")
    x = xp.astype(x, xp.dtype(FLOAT32))
    size = xp.bitcast(x, xp.dtype(UINT32)) & 0x7FFFFFFF
    exponent, fraction = size >> 23, size & 0x7FFFFF
    # The lowest power, 2**-127, is subnormal in float32: its leading 1 is in the fraction.
    is_lowest = xp.equal(exponent, 0)
    above = xp.astype(fraction, xp.dtype(INT64)) - xp.where(is_lowest, 0x400000, 0)
    if round_mode == "up":
        exponent = exponent + xp.astype(above > 0, exponent.dtype)
    elif round_mode == "nearest":
        half = xp.where(is_lowest, 0x200000, 0x400000)
        exponent = exponent + xp.astype(above >= half, exponent.dtype)
    not_a_number = xp.isnan(x)
    if not saturate:
        not_a_number = not_a_number | (size < 0x400000) | (size > 0x7F000000)
    exponent = xp.where(not_a_number, 0xFF, xp.minimum(exponent, 0xFE))
    return xp.bitcast(xp.astype(exponent, xp.dtype(UINT8)), xp.dtype(FLOAT8E8M0))


# -- strings on the host --------------------------------------------------------------------------


def _to_strings(x: np.ndarray[Any, Any]) -> Array:
    """Return the shortest decimal of each number that parses back to it."""
    if is_low_precision(x.dtype):
        x = x.astype(FLOAT32 if x.dtype.name.startswith(("float", "bfloat")) else np.int8)
    texts: Any = np.empty(x.size, dtype=object)
    texts[:] = [_SPECIAL.get(text, text) for text in map(str, x.reshape(-1))]
    shaped: Array = texts.reshape(x.shape)
    return shaped


_SPECIAL = {"inf": "INF", "-inf": "-INF", "nan": "NaN"}


def _from_strings(texts: Any, to: DType) -> np.ndarray[Any, Any]:
    """Parse `texts` as numbers of a dtype wide enough to convert to `to` afterwards."""
    each = texts.reshape(-1).tolist()
    if isdtype(to, "integral"):
        # Parse as 64 bits; the later cast discards the upper ones, as for any integer.
        values = np.array([_integer(text) % 2**64 for text in each], dtype=np.uint64)
    elif to.kind == "c":
        values = np.array([complex(text) for text in each], dtype=np.complex128)
    else:
        values = np.array([_number(text) for text in each], dtype=FLOAT64)
    return values.reshape(texts.shape)


def _number(text: str) -> float:
    words = {"true": 1.0, "false": 0.0}
    word = text.strip().lower()
    return words[word] if word in words else float(text)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return int(_number(text))
