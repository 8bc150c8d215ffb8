// CUDA's half, as far as CuPy's kernels and common RawKernels use it: rounded to nearest even from float.
#pragma once
struct __half_raw { unsigned short x; };
// A GPU's conversions know but one NaN, whose sign and bits are not those of the number.
template <class To, class From>
inline To emulated_converted(From x) {
  if (x == x) return To(x);
  const unsigned bits = sizeof(To) == 2 ? 0x7fff : 0x7fffffff;
  To nan;
  memcpy(&nan, &bits, sizeof(To));
  return nan;
}
struct __half {
  _Float16 v;
  __half() = default;
  __half(_Float16 x) : v(x) {}
  __half(float x) : v(emulated_converted<_Float16>(x)) {}
  __half(double x) : v(emulated_converted<_Float16>(x)) {}
  __half(int x) : v(_Float16(float(x))) {}
  __half(unsigned x) : v(_Float16(float(x))) {}
  __half(long long x) : v(_Float16(double(x))) {}
  __half(unsigned long long x) : v(_Float16(double(x))) {}
  __half(long x) : v(_Float16(double(x))) {}
  __half(unsigned long x) : v(_Float16(double(x))) {}
  __half(short x) : v(_Float16(float(x))) {}
  __half(unsigned short x) : v(_Float16(float(x))) {}
  __half(const __half_raw& r) { memcpy(&v, &r.x, 2); }
  operator __half_raw() const { __half_raw r; memcpy(&r.x, &v, 2); return r; }
  operator float() const { return emulated_converted<float>(v); }
};
typedef __half half;
inline unsigned short __half_as_ushort(__half h) { return __half_raw(h).x; }
inline __half __ushort_as_half(unsigned short x) { __half_raw r = {x}; return __half(r); }
inline float __half2float(__half h) { return float(h); }
inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }
#define EMULATED_HALF_OPERATION(name, op) inline __half name(__half a, __half b) { return __half(float(a) op float(b)); }
EMULATED_HALF_OPERATION(__hadd, +) EMULATED_HALF_OPERATION(__hsub, -) EMULATED_HALF_OPERATION(__hmul, *) EMULATED_HALF_OPERATION(__hdiv, /)
EMULATED_HALF_OPERATION(operator+, +) EMULATED_HALF_OPERATION(operator-, -) EMULATED_HALF_OPERATION(operator*, *) EMULATED_HALF_OPERATION(operator/, /)
struct __half2 { __half x, y; };
typedef __half2 half2;
