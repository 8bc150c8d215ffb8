// What follows a product of float32, while its results are in registers.
#pragma once

#include "epilogue.h"
#include "lanes.h"

namespace sardonyx {

// All but long activations, which take more than a few instructions.
class Finish {
 public:
  explicit Finish(const Epilogue& epilogue)
      : addend_(epilogue.addend),
        activation_(epilogue.activation.is_long() ? Activation{} : epilogue.activation) {}

  bool is_nothing() const { return addend_ == Addend::kNone && !activation_; }

  // Of a result with its bias, and what is added, if anything.
  template <class V>
  SARDONYX_INLINE V of(V value, V added) const {
    if (addend_ == Addend::kBeforeActivation) value += added;
    value = activated(value);
    return addend_ == Addend::kAfterActivation ? value + added : value;
  }

 private:
  // NaN stays NaN: it is not less than a number, nor more.
  template <class V>
  SARDONYX_INLINE V activated(V value) const {
    const V alpha = all<V>(activation_.alpha), beta = all<V>(activation_.beta);
    switch (activation_.function) {
      case Function::kLeakyRelu:
        return value < V{} ? (activation_.alpha == 0 ? V{} : alpha * value) : value;
      case Function::kClip: return clip(value, alpha, beta);
      case Function::kHardSwish: return value * clip(alpha * value + beta, V{}, all<V>(1));
      case Function::kHardSigmoid: return clip(alpha * value + beta, V{}, all<V>(1));
      default: return value;
    }
  }
  template <class V>
  SARDONYX_INLINE static V clip(V value, V low, V high) {
    return value < low ? low : value > high ? high : value;
  }

  Addend addend_;
  Activation activation_;
};

}  // namespace sardonyx
