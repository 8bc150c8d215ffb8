// CuPy's dtypes as the host's types.
#pragma once
#include <complex>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace emulated {

struct half {
  _Float16 value;
  half() = default;
  half(float x) : value(_Float16(x)) {}
  operator float() const { return value; }
};

struct bfloat16 {
  uint16_t bits;
  bfloat16() = default;
  bfloat16(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    bits = x != x ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
  }
  operator float() const {
    uint32_t u = uint32_t(bits) << 16;
    float x;
    memcpy(&x, &u, 4);
    return x;
  }
};

// Floats of 8 bits as NVIDIA and ONNX have them: e4m3 has no infinity.
struct float8_e4m3 {
  uint8_t bits;
  operator float() const {
    const int exponent = bits >> 3 & 15, fraction = bits & 7;
    const float size = exponent == 15 && fraction == 7 ? NAN
                       : exponent ? std::ldexp(8.0f + fraction, exponent - 10)
                                  : std::ldexp(float(fraction), -9);
    return bits & 0x80 ? -size : size;
  }
};

struct float8_e5m2 {
  uint8_t bits;
  operator float() const {
    const uint16_t wide = uint16_t(bits << 8);
    _Float16 x;
    memcpy(&x, &wide, 2);
    return float(x);
  }
};

template <class T>
bool is_nan(T x) {
  return x != x;
}
inline bool is_nan(half x) { return float(x) != float(x); }

// NumPy's order: numbers, then NaN; of complex numbers by the real part first.
template <class T>
bool less(const T& a, const T& b) {
  return is_nan(b) ? !is_nan(a) : a < b;
}
inline bool less(const half& a, const half& b) { return less(float(a), float(b)); }
template <class T>
bool less(const std::complex<T>& a, const std::complex<T>& b) {
  const bool ar = is_nan(a.real()), ai = is_nan(a.imag()), br = is_nan(b.real()),
             bi = is_nan(b.imag());
  const int arank = ar * 2 + ai, brank = br * 2 + bi;
  if (arank != brank) return arank < brank;
  if (!ar && a.real() != b.real()) return a.real() < b.real();
  return !ai && a.imag() < b.imag();
}

// Calls `work` with a value of the type that has this number in CuPy.
template <class Work>
void with_type(int dtype, Work work) {
  switch (dtype) {
    case 0: return work(int8_t());
    case 1: return work(uint8_t());
    case 2: return work(int16_t());
    case 3: return work(uint16_t());
    case 4: return work(int32_t());
    case 5: return work(uint32_t());
    case 6: return work(int64_t());
    case 7: return work(uint64_t());
    case 8: return work(half());
    case 9: return work(float());
    case 10: return work(double());
    case 11: return work(std::complex<float>());
    case 12: return work(std::complex<double>());
    case 13: return work(bool());
  }
  throw std::runtime_error("Unsupported dtype ID");
}

}  // namespace emulated
