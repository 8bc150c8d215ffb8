// Functions of whole rows of float32: softmax and normalization.
#pragma once

#include "lanes.h"
#include "product.h"

namespace sardonyx {

// The exponential of numbers that are not above 0, with an error of two units in the last place.
// It is 0 where the exact one has fewer digits than others.
SARDONYX_INLINE Floats exponential(Floats x) {
  constexpr float kLeast = -87.3f, kPerLog2 = 1.44269504f;
  // Adding it rounds to an integer, which then lies in the lowest bits.
  constexpr float kRounding = 12582912;
  // The logarithm of 2, in two parts of which the first has few digits.
  constexpr float kHigh = 0.693359375f, kLow = -2.12194440e-4f;
  const Integers is_less = x < all(kLeast);
  const Floats clamped = is_less ? all(kLeast) : x;
  const Floats shifted = clamped * kPerLog2 + kRounding, whole = shifted - kRounding;
  const Floats rest = (clamped - whole * kHigh) - whole * kLow;
  Floats powers = all(1.9875691500e-4f);
  for (float factor : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                       5.0000001201e-1f}) {
    powers = powers * rest + factor;
  }
  const Floats fraction = powers * rest * rest + rest + 1;
  Integers bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  bits = (bits + 127) << 23;
  Floats power;
  std::memcpy(&power, &bits, sizeof power);
  return is_less ? Floats{} : fraction * power;
}

// A row has no weights if one of its numbers is NaN, or if the largest is not finite: the difference
// of an infinity and itself is no number. Then all of them are `none`.
SARDONYX_INLINE void softmax_of(const float* x, float* y, int64_t count, float none) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const int64_t whole = count / kLanes * kLanes, rest = count - whole;
  Floats top = loaded(x + whole, rest, -kInfinity);
  Integers is_nan = top != top;
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Floats each = loaded(x + i);
    is_nan |= each != each;
    top = top < each ? each : top;
  }
  float greatest = largest(top);
  for (int i = 0; i < kLanes; ++i) {
    if (is_nan[i]) greatest = kInfinity;
  }
  if (!std::isfinite(greatest)) {
    std::fill(y, y + count, none);
    return;
  }
  Floats total{};
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Floats weights = exponential(loaded(x + i) - greatest);
    total += weights;
    store(y + i, weights);
  }
  const Floats last = exponential(loaded(x + whole, rest, -kInfinity) - greatest);
  const float divisor = sum(total + last);
  for (int64_t i = 0; i < whole; i += kLanes) store(y + i, loaded(y + i) / divisor);
  store(y + whole, last / divisor, rest);
}

struct Normalization {
  bool is_centred;
  float epsilon;
  const float* scale;
  // May be null.
  const float* bias;
};

struct Statistics {
  float mean, inverse_deviation;
};

SARDONYX_INLINE Statistics normalize(const Normalization& how, const float* x, float* y,
                                     int64_t count) {
  const int64_t whole = count / kLanes * kLanes, rest = count - whole;
  float mean = 0;
  if (how.is_centred) {
    Floats total = loaded(x + whole, rest, 0);
    for (int64_t i = 0; i < whole; i += kLanes) total += loaded(x + i);
    mean = sum(total) / count;
  }
  const Floats last = loaded(x + whole, rest, mean) - mean;
  Floats squares = last * last;
  for (int64_t i = 0; i < whole; i += kLanes) {
    const Floats each = loaded(x + i) - mean;
    squares += each * each;
  }
  const float factor = 1 / std::sqrt(sum(squares) / count + how.epsilon);
  auto scaled = [&](Floats value, int64_t at, int64_t number) __attribute__((always_inline)) {
    Floats result = value * factor * loaded(how.scale + at, number, 0);
    if (how.bias) result += loaded(how.bias + at, number, 0);
    store(y + at, result, number);
  };
  for (int64_t i = 0; i < whole; i += kLanes) scaled(loaded(x + i) - mean, i, kLanes);
  scaled(last, whole, rest);
  return {mean, factor};
}

enum class RowFunction : int64_t { kSoftmax, kSoftmaxOrZero, kStandardize, kByRootMeanSquare };

// The scale and what comes after it are for normalization alone, and but for the scale may be null.
struct RowArrays {
  const float *x, *scale, *bias;
  float *y, *means, *inverse_deviations;
};

// Rows that lie one after the other, each of which is computed by one thread.
class Rows : public Kernel {
 public:
  // The threads, the function, how many rows there are, how long they are, and what is added to the
  // mean square.
  explicit Rows(Reader at)
      : threads_(at.next()),
        function_(static_cast<RowFunction>(at.next())),
        rows_(at.next()),
        columns_(at.next()),
        epsilon_(at.next_float()) {}

  // In the order of RowArrays.
  Work work(Arrays at, std::byte*) const override {
    const RowArrays arrays{read_from<float>(at[0]), read_from<float>(at[1]),
                           read_from<float>(at[2]), reinterpret_cast<float*>(at[3]),
                           reinterpret_cast<float*>(at[4]), reinterpret_cast<float*>(at[5])};
    // A number takes about as long as so many operations of a product.
    constexpr double kOperations = 48;
    const int64_t parts = std::min(useful_parts(kOperations * rows_ * columns_, threads_),
                                   std::max<int64_t>(rows_, 1));
    return {parts, {static_cast<size_t>(parts)}, [=, this](size_t, size_t i) {
              auto [first, last] = share(rows_, i, parts);
              run_rows(arrays, first, last);
            }};
  }

 private:
  __attribute__((target("avx2,fma"))) void run_rows(const RowArrays& arrays, int64_t first,
                                                    int64_t last) const {
    const Normalization how{function_ == RowFunction::kStandardize, epsilon_, arrays.scale,
                            arrays.bias};
    for (int64_t row = first; row < last; ++row) {
      const float* x = arrays.x + row * columns_;
      float* y = arrays.y + row * columns_;
      if (function_ == RowFunction::kSoftmax) {
        softmax_of(x, y, columns_, std::numeric_limits<float>::quiet_NaN());
      } else if (function_ == RowFunction::kSoftmaxOrZero) {
        softmax_of(x, y, columns_, 0);
      } else {
        const Statistics found = normalize(how, x, y, columns_);
        if (arrays.means) arrays.means[row] = found.mean;
        if (arrays.inverse_deviations) arrays.inverse_deviations[row] = found.inverse_deviation;
      }
    }
  }

  int64_t threads_;
  RowFunction function_;
  int64_t rows_, columns_;
  float epsilon_;
};

}  // namespace sardonyx
