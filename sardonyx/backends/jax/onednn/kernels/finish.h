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

  // Of a result with its bias, and what is added, if anything.
  SARDONYX_INLINE Floats of(Floats value, Floats added) const {
    if (addend_ == Addend::kBeforeActivation) value += added;
    value = activated(value);
    return addend_ == Addend::kAfterActivation ? value + added : value;
  }

 private:
  // NaN stays NaN: it is not less than a number, nor more.
  SARDONYX_INLINE Floats activated(Floats value) const {
    const Floats alpha = all(activation_.alpha), beta = all(activation_.beta);
    switch (activation_.function) {
      case Function::kLeakyRelu:
        return value < Floats{} ? (activation_.alpha == 0 ? Floats{} : alpha * value) : value;
      case Function::kClip: return clip(value, alpha, beta);
      case Function::kHardSwish: return value * clip(alpha * value + beta, Floats{}, all(1));
      case Function::kHardSigmoid: return clip(alpha * value + beta, Floats{}, all(1));
      default: return value;
    }
  }
  SARDONYX_INLINE static Floats clip(Floats value, Floats low, Floats high) {
    return value < low ? low : value > high ? high : value;
  }

  Addend addend_;
  Activation activation_;
};

}  // namespace sardonyx
