// The numbers of CUDA's data types and of cuBLAS's compute types, and which of them go together.
#pragma once
#include <cstdint>
#include <cstring>

namespace emulated {

enum DataType {
  F32 = 0,
  F64 = 1,
  F16 = 2,
  I8 = 3,
  C64 = 4,
  C128 = 5,
  I32 = 10,
  BF16 = 14,
  F8_E4M3 = 28,
  F8_E5M2 = 29
};

inline int size_of(int type) {
  switch (type) {
    case I8:
    case F8_E4M3:
    case F8_E5M2: return 1;
    case F16:
    case BF16: return 2;
    case F64:
    case C64: return 8;
    case C128: return 16;
    default: return 4;
  }
}

inline bool is_float8(int type) { return type == F8_E4M3 || type == F8_E5M2; }

enum ComputeType {
  IN_F32 = 68,
  IN_F32_PEDANTIC = 69,
  IN_F64 = 70,
  IN_F64_PEDANTIC = 71,
  IN_I32 = 72,
  IN_I32_PEDANTIC = 73,
  IN_F32_FAST_F16 = 74,
  IN_F32_FAST_BF16 = 75,
  IN_F32_FAST_TF32 = 77
};

inline bool computes_in_float32(int compute) {
  return compute == IN_F32 || compute == IN_F32_PEDANTIC || compute == IN_F32_FAST_F16 ||
         compute == IN_F32_FAST_BF16 || compute == IN_F32_FAST_TF32;
}

// Whether products of type `in` with results of type `out` can be computed so.
inline bool can_compute(int compute, int in, int out) {
  if (in == F64 || in == C128) return compute == IN_F64 || compute == IN_F64_PEDANTIC;
  if (out == I32) return compute == IN_I32 || compute == IN_I32_PEDANTIC;
  if (in == F32 || in == C64) return computes_in_float32(compute);
  return compute == IN_F32 || compute == IN_F32_PEDANTIC;
}

// A float whose last bits are rounded away when it is read, as factors are on tensor cores.
template <int DROPPED>
class RoundedFloat {
 public:
  operator float() const {
    uint32_t bits;
    memcpy(&bits, &stored_, 4);
    if ((bits & 0x7f800000u) == 0x7f800000u) return stored_;  // infinities and NaN
    const uint32_t is_odd = (bits >> DROPPED) & 1;
    bits = (bits + (1u << (DROPPED - 1)) - 1 + is_odd) & ~((1u << DROPPED) - 1);
    float rounded;
    memcpy(&rounded, &bits, 4);
    return rounded;
  }

 private:
  float stored_;
};
using AsTf32 = RoundedFloat<13>;
using AsBfloat16 = RoundedFloat<16>;

}  // namespace emulated
