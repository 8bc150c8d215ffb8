// Several float32 at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace sardonyx {

// Eight numbers at a time, in registers that nearly all processors have. On others NumPy is faster.
typedef float Floats __attribute__((vector_size(32)));
typedef int32_t Integers __attribute__((vector_size(32)));
constexpr int64_t kLanes = 8;

// Sixteen, for what AVX-512 makes faster by more than it takes to write it.
typedef float LongFloats __attribute__((vector_size(64)));
template <class V>
constexpr int64_t lanes_of = sizeof(V) / sizeof(float);

// All of what follows is a part of the one function that may use them: others are passed vectors in
// another way.
#define SARDONYX_INLINE [[gnu::always_inline]] inline

inline bool has_wide_registers() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

// Compilers make one instruction of this; of a list of values many, and of arithmetic two.
template <class V = Floats>
SARDONYX_INLINE V all(float value) {
  float values[lanes_of<V>];
  for (float& each : values) each = value;
  V lanes;
  std::memcpy(&lanes, values, sizeof lanes);
  return lanes;
}

template <class V = Floats>
SARDONYX_INLINE V loaded(const float* from) {
  V values;
  std::memcpy(&values, from, sizeof values);
  return values;
}

// The last numbers of a row, fewer than there are lanes, and others in place of those that are
// missing.
template <class V = Floats>
SARDONYX_INLINE V loaded(const float* from, int64_t count, float others) {
  V values = all<V>(others);
  std::memcpy(&values, from, count * sizeof(float));
  return values;
}

template <class V>
SARDONYX_INLINE void store(float* to, V values, int64_t count = lanes_of<V>) {
  std::memcpy(to, &values, count * sizeof(float));
}

SARDONYX_INLINE float sum(Floats values) {
  float halves[4];
  for (int i = 0; i < 4; ++i) halves[i] = values[i] + values[i + 4];
  return (halves[0] + halves[2]) + (halves[1] + halves[3]);
}

SARDONYX_INLINE float largest(Floats values) {
  float found = values[0];
  for (int i = 1; i < kLanes; ++i) found = std::max(found, values[i]);
  return found;
}

}  // namespace sardonyx
