// What follows a product: oneDNN's own form of it, and an exact one for what is not finite.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "primitive.h"
#include "work.h"

namespace sardonyx {

enum DataType { kFloat16 = 1, kBfloat16 = 2, kFloat32 = 3 };

inline int64_t item_bytes(int data_type) { return data_type == kFloat32 ? 4 : 2; }

enum class Function : int64_t {
  kNone,
  kLeakyRelu,  // Relu where alpha is 0.
  kClip,
  kGelu,
  kGeluTanh,
  kSwish,
  kTanh,
  kSigmoid,
  kHardSwish,
  kHardSigmoid,
  kElu,
};

struct Activation {
  Function function;
  float alpha, beta;

  explicit operator bool() const { return function != Function::kNone; }

  // Whether it takes more than a few instructions.
  bool is_long() const {
    switch (function) {
      case Function::kNone:
      case Function::kLeakyRelu:
      case Function::kClip:
      case Function::kHardSwish:
      case Function::kHardSigmoid: return false;
      default: return true;
    }
  }

  int algorithm() const {
    switch (function) {
      case Function::kLeakyRelu: return dnnl::kRelu;
      case Function::kClip: return dnnl::kClip;
      case Function::kGelu: return dnnl::kGeluErf;
      case Function::kGeluTanh: return dnnl::kGeluTanh;
      case Function::kSwish: return dnnl::kSwish;
      case Function::kTanh: return dnnl::kTanh;
      case Function::kSigmoid: return dnnl::kLogistic;
      case Function::kHardSwish: return dnnl::kHardSwish;
      case Function::kHardSigmoid: return dnnl::kHardSigmoid;
      case Function::kElu: return dnnl::kElu;
      case Function::kNone: break;
    }
    return 0;
  }

  float operator()(float x) const {
    switch (function) {
      case Function::kLeakyRelu: return x < 0 ? (alpha == 0 ? 0 : alpha * x) : x;
      case Function::kClip: return clip(x, alpha, beta);
      case Function::kGelu: return 0.5f * x * (1 + std::erf(x * 0.70710678f));
      case Function::kGeluTanh:
        return 0.5f * x * (1 + std::tanh(0.79788456f * (x + 0.044715f * x * x * x)));
      case Function::kSwish: return x * sigmoid(alpha * x);
      case Function::kTanh: return std::tanh(x);
      case Function::kSigmoid: return sigmoid(x);
      case Function::kHardSwish: return x * clip(alpha * x + beta, 0, 1);
      case Function::kHardSigmoid: return clip(alpha * x + beta, 0, 1);
      case Function::kElu: return x < 0 ? alpha * std::expm1(x) : x;
      case Function::kNone: break;
    }
    return x;
  }

 private:
  static float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }
  // NaN stays NaN.
  static float clip(float x, float low, float high) { return x < low ? low : x > high ? high : x; }
};

// A number of 16 bits that is the upper half of a float.
struct Bfloat16 {
  uint16_t bits;

  Bfloat16() = default;
  explicit Bfloat16(float value) {
    uint32_t wide;
    std::memcpy(&wide, &value, sizeof wide);
    uint32_t half_to_even = 0x7fff + (wide >> 16 & 1);
    bits = std::isnan(value) ? 0x7fc0 : (wide + half_to_even) >> 16;
  }
  explicit operator float() const {
    uint32_t wide = uint32_t{bits} << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }
};

// The processors for whose sake there is this type have instructions for it.
struct Float16 {
  uint16_t bits;

  Float16() = default;
  __attribute__((target("f16c"))) explicit Float16(float value)
      : bits(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)) {}
  __attribute__((target("f16c"))) explicit operator float() const { return _cvtsh_ss(bits); }
};

enum class Addend : int64_t { kNone, kBeforeActivation, kAfterActivation };

// x * weights, + bias, and then an activation and the sum with another array, in this order or not.
struct Epilogue {
  bool has_bias = false;
  Addend addend = Addend::kNone;
  Activation activation{};

  Epilogue() = default;
  explicit Epilogue(Reader& spec)
      : has_bias(spec.next()),
        addend(static_cast<Addend>(spec.next())),
        activation{static_cast<Function>(spec.next()), spec.next_float(), spec.next_float()} {}

  void add_to(Attributes& attributes, const Desc& y, bool has_activation) const {
    if (addend == Addend::kBeforeActivation) attributes.then_add(y);
    if (activation && has_activation) attributes.then(activation.algorithm(), activation.alpha, activation.beta);
    if (addend == Addend::kAfterActivation) attributes.then_add(y);
  }

  int addend_argument() const {
    bool is_second = addend == Addend::kAfterActivation && activation;
    return dnnl::kPostOp * (is_second ? 2 : 1) | dnnl::kSecondSource;
  }

  // To `count` results, in place.
  void apply(int data_type, int64_t count, const std::byte* added, std::byte* y) const {
    if (data_type == kFloat32) return apply_as<float>(count, added, y);
    if (data_type == kFloat16) return apply_as<Float16>(count, added, y);
    apply_as<Bfloat16>(count, added, y);
  }

 private:
  template <class T>
  void apply_as(int64_t count, const std::byte* added_bytes, std::byte* y_bytes) const {
    auto* added = reinterpret_cast<const T*>(added_bytes);
    auto* y = reinterpret_cast<T*>(y_bytes);
    for (int64_t i = 0; i < count; ++i) {
      float value = static_cast<float>(y[i]);
      if (addend == Addend::kBeforeActivation) value += static_cast<float>(added[i]);
      value = activation(value);
      if (addend == Addend::kAfterActivation) value += static_cast<float>(added[i]);
      y[i] = static_cast<T>(value);
    }
  }
};

}  // namespace sardonyx
