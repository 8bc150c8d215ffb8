"""Types of 8 bits and fewer that kernels carry as bytes: what the bits mean, in C.

A register holds an element's byte, as memory does, so that a copy keeps every bit. Functions
compute with the number: a float32, or an integer of 8 bits. Conversions are integer arithmetic,
because CuPy has NVRTC flush subnormal numbers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

FLOAT32 = np.dtype(np.float32)
FLOAT8E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)
# More than any byte: a code that no element has.
NO_CODE = 256


class Format(NamedTuple):
    """A float of few bits, and its special codes without their signs."""

    exponent: int
    fraction: int
    bias: int
    # The greatest number, what greater ones become, and what NaN becomes.
    largest: int
    overflow: int
    nan: int
    # What is read as infinity, and from where on codes are NaN.
    infinity: int = NO_CODE
    least_nan: int = NO_CODE
    # Without -0 its code is the only NaN.
    signed_zero: bool = True

    @property
    def source(self) -> str:
        """The fields as constants of C."""
        fields = ", ".join(f"{name} = {int(value)}" for name, value in self._asdict().items())
        return f"enum {{ {fields} }};"


# Where there is no NaN, it becomes a zero of the other sign, as ml_dtypes has it.
_FORMATS = {
    "float8_e5m2": Format(5, 2, 15, 0x7B, 0x7C, 0x7E, infinity=0x7C, least_nan=0x7D),
    "float8_e5m2fnuz": Format(5, 2, 16, 0x7F, 0x80, 0x80, signed_zero=False),
    "float8_e4m3fn": Format(4, 3, 7, 0x7E, 0x7F, 0x7F, least_nan=0x7F),
    "float8_e4m3fnuz": Format(4, 3, 8, 0x7F, 0x80, 0x80, signed_zero=False),
    "float6_e3m2fn": Format(3, 2, 3, 0x1F, 0x1F, 0x20),
    "float6_e2m3fn": Format(2, 3, 1, 0x1F, 0x1F, 0x20),
    "float4_e2m1fn": Format(2, 1, 1, 0x07, 0x07, 0x08),
}
_INTEGER_BITS = {"int4": 4, "uint4": 4, "int2": 2, "uint2": 2}

NARROW = frozenset(np.dtype(getattr(ml_dtypes, name)) for name in (*_FORMATS, *_INTEGER_BITS))
NARROW |= {FLOAT8E8M0}


def number_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the numbers that a narrow dtype's bytes stand for.

    >>> str(number_dtype(np.dtype(ml_dtypes.uint4))), str(number_dtype(FLOAT8E8M0))
    ('uint8', 'float32')
    """
    if dtype.name in _INTEGER_BITS:
        return np.dtype(np.uint8 if dtype.name.startswith("uint") else np.int8)
    return FLOAT32


def number(text: str, dtype: np.dtype[Any]) -> str:
    """Return the number that a byte stands for, of the type `number_dtype`."""
    if dtype.name in _INTEGER_BITS:
        unused = 8 - _INTEGER_BITS[dtype.name]
        kind = "unsigned char" if dtype.name.startswith("uint") else "signed char"
        return f"({kind})(({kind})(({text}) << {unused}) >> {unused})"
    if dtype == FLOAT8E8M0:
        return f"from_power_of_two({text})"
    return f"from_narrow<{dtype.name}>({text})"


def byte(text: str, dtype: np.dtype[Any]) -> str:
    """Return the byte of a float32, or for narrow integers of any integer."""
    if dtype.name in _INTEGER_BITS:
        return f"(unsigned char)(({text}) & {2 ** _INTEGER_BITS[dtype.name] - 1})"
    if dtype == FLOAT8E8M0:
        return f"to_power_of_two({text})"
    return f"to_narrow<{dtype.name}>({text})"


def byte_of(value: np.ndarray[Any, Any]) -> int:
    """Return the byte of an array of one narrow element.

    >>> byte_of(np.ones((), ml_dtypes.float8_e5m2)), byte_of(np.full(1, -1, ml_dtypes.int4))
    (60, 15)
    """
    return int(value.reshape(()).view(np.uint8))


# Each before those that call it.
HELPERS = {
    **{name: f"\nstruct {name} {{ {shape.source} }};\n" for name, shape in _FORMATS.items()},
    "from_narrow": """
template <class Format> __device__ inline float from_narrow(unsigned char byte) {
    const int digits = Format::exponent + Format::fraction, size = byte & ((1 << digits) - 1);
    const unsigned int sign = (unsigned int)(byte >> digits & 1) << 31;
    if (!Format::signed_zero && byte == 0x80) return __uint_as_float(0xffc00000u);
    if (size >= Format::least_nan) return __uint_as_float(sign | 0x7fc00000u);
    if (size == Format::infinity) return __uint_as_float(sign | 0x7f800000u);
    if (size >> Format::fraction == 0) {
        const float unit = __uint_as_float((128 - Format::bias - Format::fraction) << 23);
        return __uint_as_float(sign | __float_as_uint((float)size * unit));
    }
    const unsigned int number = (size << (23 - Format::fraction)) + ((127 - Format::bias) << 23);
    return __uint_as_float(sign | number);
}
""",
    "to_narrow": """
template <class Format> __device__ inline unsigned char to_narrow(float x) {
    const unsigned int bits = __float_as_uint(x), size = bits & 0x7fffffffu;
    const unsigned int sign = bits >> 31 << (Format::exponent + Format::fraction);
    const int exponent = (int)(size >> 23) - 127 + Format::bias;
    unsigned int code;
    if (size > 0x7f800000u) {
        code = Format::nan;
    } else {
        // The digits that are left out: of a subnormal number more, up to all of them.
        const int out = 23 - Format::fraction + (exponent > 0 ? 0 : min(1 - exponent, 8));
        const unsigned int digits = exponent > 0
            ? size - ((unsigned int)(127 - Format::bias) << 23) : (size & 0x7fffffu) | 0x800000u;
        code = (digits + (1u << out >> 1) - 1 + (digits >> out & 1)) >> out;
        if (code > Format::largest) code = Format::overflow;
    }
    if (!Format::signed_zero && (code == 0 || code == 0x80)) return (unsigned char)code;
    return (unsigned char)(code ^ sign);
}
""",
    "from_power_of_two": """
__device__ inline float from_power_of_two(unsigned char byte) {
    if (byte == 0xff) return __uint_as_float(0x7fc00000u);
    return __uint_as_float(byte == 0 ? 0x400000u : (unsigned int)byte << 23);
}
""",
    "from_power_of_two_to_double": """
__device__ inline double from_power_of_two_to_double(unsigned char byte) {
    if (byte == 0xff) return __longlong_as_double(0x7ff8000000000000LL);
    return __longlong_as_double((long long)(byte + 1023 - 127) << 52);
}
""",
    "to_power_of_two": """
// Zero, negative numbers and those beyond the greatest power become NaN.
__device__ inline unsigned char to_power_of_two(float x) {
    const unsigned int bits = __float_as_uint(x);
    if (bits == 0 || bits >= 0x7f800000u) return 0xff;
    // Ties become the greater power, but for the least one, which is subnormal.
    return (unsigned char)((bits + (bits < 0x800000u ? 0x3fffffu : 0x400000u)) >> 23);
}
""",
}
