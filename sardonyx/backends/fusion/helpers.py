"""CUDA functions that kernels call; each kernel's source has those that it names."""

from __future__ import annotations

import re

from sardonyx.backends.fusion import narrow_types

_HELPERS = {
    **narrow_types.HELPERS,
    "Vector": """
template <class T, int count> struct alignas(sizeof(T) * count) Vector { T element[count]; };
""",
    "from_bfloat16": """
__device__ inline float from_bfloat16(unsigned short bits) {
    return __uint_as_float((unsigned int)bits << 16);
}
""",
    "to_bfloat16": """
__device__ inline unsigned short to_bfloat16(float x) {
    const unsigned int bits = __float_as_uint(x);
    if (x != x) return (unsigned short)((bits >> 16) | 0x40);
    return (unsigned short)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
""",
    "to_integer": """
// The nearest integer that the type has, and 0 for NaN, as XLA has it; C++ says nothing of these.
template <class T, class Float>
__device__ inline T to_integer(Float x, T least, T greatest) {
    if (!(x > (Float)least)) return x == x ? least : (T)0;
    return x < (Float)greatest ? (T)x : greatest;
}
""",
    "to_float32": """
// Below 2**-126 numbers are counted in units of 2**-149, because NVRTC is asked to flush them.
__device__ inline float to_float32(double x) {
    if (!(fabs(x) < 1.1754943508222875e-38)) return (float)x;
    const unsigned int units = (unsigned int)rint(fabs(x) * 7.1362384635298e44);
    return __uint_as_float(units | (__double_as_longlong(x) < 0 ? 0x80000000u : 0u));
}
""",
    "to_odd": """
// An inexact number becomes the neighbour whose last bit is 1, so that rounding again is right.
__device__ inline float to_odd(double x) {
    const float nearest = (float)x;
    const double back = (double)nearest;
    if (x != x || back == x) return nearest;
    const unsigned int bits = __float_as_uint(nearest) - (fabs(back) > fabs(x) ? 1 : 0);
    return __uint_as_float(bits | 1);
}
""",
    "same_bits": """
template <class To, class From> __device__ inline To same_bits(From x) {
    static_assert(sizeof(To) == sizeof(From), "numbers of one size");
    union { From from; To to; } both;
    both.from = x;
    return both.to;
}
""",
    "floored_remainder": """
template <class T> __device__ inline T floored_remainder(T a, T b) {
    const T rest = fmod(a, b);
    if (b == 0) return rest;
    if (rest == 0) return copysign((T)0, b);
    return (b < 0) != (rest < 0) ? rest + b : rest;
}
""",
    "floor_quotient": """
template <class T> __device__ inline T floor_quotient(T a, T b) {
    if (b == 0) return a / b;
    const T rest = fmod(a, b);
    T quotient = (a - rest) / b;
    if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
    if (quotient == 0) return copysign((T)0, a / b);
    const T whole = floor(quotient);
    return quotient - whole > (T)0.5 ? whole + 1 : whole;
}
""",
    "log_of_sum": """
template <class T> __device__ inline T log_of_sum(T a, T b) {
    if (a == b) return a + (T)0.693147180559945309;
    const T distance = a - b;
    if (distance > 0) return a + log1p(exp(-distance));
    return distance <= 0 ? b + log1p(exp(distance)) : distance;
}
""",
    "remainder_of_integers": """
template <class T> __device__ inline T remainder_of_integers(T a, T b) {
    return b == 0 || b == (T)-1 ? (T)(b == 0 || (T)-1 < 0 ? 0 : a % b) : (T)(a % b);
}
""",
    "floored_remainder_of_integers": """
template <class T> __device__ inline T floored_remainder_of_integers(T a, T b) {
    const T rest = remainder_of_integers<T>(a, b);
    return rest != 0 && (b < 0) != (rest < 0) ? (T)(rest + b) : rest;
}
""",
    "floor_quotient_of_integers": """
template <class T> __device__ inline T floor_quotient_of_integers(T a, T b) {
    if (b == 0) return 0;
    if ((T)-1 < 0 && b == (T)-1) return (T)(0ULL - (unsigned long long)a);
    const T quotient = (T)(a / b);
    return a % b != 0 && (a < 0) != (b < 0) ? (T)(quotient - 1) : quotient;
}
""",
    "shifted_left": """
template <class T> __device__ inline T shifted_left(T a, T count) {
    const int width = 8 * sizeof(T);
    if (count < 0 || (unsigned long long)count >= width) return 0;
    return (T)((unsigned long long)a << (int)count);
}
""",
    "shifted_right": """
template <class T> __device__ inline T shifted_right(T a, T count) {
    const int width = 8 * sizeof(T);
    if (count < 0 || (unsigned long long)count >= width) return a < 0 ? (T)-1 : (T)0;
    return (T)(a >> (int)count);
}
""",
}  # fmt: skip


def with_helpers(source: str) -> str:
    """Put the helpers that a source names in front of it."""
    body = helpers_of(source) + source
    return "#include <cuda_fp16.h>\n" + body if "__half" in body else body


def helpers_of(source: str) -> str:
    """Return the helpers that a source names, each before those that call it."""
    named: list[str] = []
    waiting = source
    for name in reversed(_HELPERS):
        if re.search(rf"\b{name}\b", waiting):
            named.append(name)
            waiting += _HELPERS[name]
    return "".join(_HELPERS[name] for name in _HELPERS if name in named)
