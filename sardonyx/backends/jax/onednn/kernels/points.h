// Sums, differences, products and quotients of the elements of two arrays of float32, roots, and
// multiples.
#pragma once

#include "lanes.h"
#include "product.h"

namespace sardonyx {

class Points : public Kernel {
 public:
  // The threads, the function, the number that takes the place of an array that is missing, how
  // many axes there are, their sizes, and how many elements apart those of each operand are along
  // them: 0 along axes that it does not have. For multiples there follow the least and the largest
  // one, and that of NaN, as how many times the second operand. The results lie by rows.
  explicit Points(Reader at)
      : threads_(at.next()), function_(static_cast<Function>(at.next())), number_(at.next_float()) {
    sizes_.resize(at.next());
    for (int64_t& size : sizes_) size = at.next();
    for (std::vector<int64_t>* steps : {&steps_of_a_, &steps_of_b_}) {
      for (size_t i = 0; i < sizes_.size(); ++i) steps->push_back(at.next());
    }
    if (function_ == Function::kLevel) level_ = Level(number_, at);
  }

  // Of both operands, of which one may be missing, and of the results.
  Work work(Arrays at, std::byte*) const override {
    auto *a = at[0] ? read_from<float>(at[0]) : &number_;
    auto *b = at[1] ? read_from<float>(at[1]) : &number_;
    auto* y = reinterpret_cast<float*>(at[2]);
    // A number takes about as long as so many operations of a product: memory is waited for.
    constexpr double kOperations = 24;
    int64_t count = 1;
    for (int64_t size : sizes_) count *= size;
    const int64_t parts = std::min(useful_parts(kOperations * count, threads_),
                                   std::max<int64_t>(count / kFewest, 1));
    return {parts, {static_cast<size_t>(parts)}, [=, this](size_t, size_t i) {
              const auto [first, last] = share(count, i, parts);
              run(a, b, y, first, last);
            }};
  }

 private:
  enum class Function : int64_t { kAdd, kSubtract, kMultiply, kDivide, kRoot, kLevel };

  static constexpr int64_t kFewest = 1024;

  struct Add {
    template <class T>
    SARDONYX_INLINE T operator()(T x, T y) const { return x + y; }
  };
  struct Subtract {
    template <class T>
    SARDONYX_INLINE T operator()(T x, T y) const { return x - y; }
  };
  struct Multiply {
    template <class T>
    SARDONYX_INLINE T operator()(T x, T y) const { return x * y; }
  };
  struct Divide {
    template <class T>
    SARDONYX_INLINE T operator()(T x, T y) const { return x / y; }
  };
  // Of the first operand.
  struct Root {
    SARDONYX_INLINE float operator()(float x, float) const { return std::sqrt(x); }
    SARDONYX_INLINE Floats operator()(Floats x, Floats) const {
      for (int i = 0; i < kLanes; ++i) x[i] = std::sqrt(x[i]);
      return x;
    }
  };
  // The multiple of a step that is nearest to the first operand, between two others.
  struct Level {
    Level() = default;
    Level(float step, Reader& at)
        : least(at.next_float()), most(at.next_float()), of_nan(at.next_float()), inverse(1 / step) {
      // By so much a product with the inverse may miss the quotient.
      const float most_missed = std::max(-least, most) * 0x1p-21f, certain = 0.5f - most_missed;
      most_rest = std::isnormal(inverse) ? certain * certain : -1;
    }

    SARDONYX_INLINE float operator()(float x, float step) const {
      return (x == x ? rounded(std::min(std::max(x / step, least), most)) : of_nan) * step;
    }
    // A product takes less time than a quotient, and tells which level is the nearest unless the
    // next one is about as near, or one of the numbers is NaN.
    SARDONYX_INLINE Floats operator()(Floats x, Floats step) const {
      constexpr int kAll = 0xff;
      const Floats guess = within(x * inverse), level = rounded(guess), rest = guess - level;
      if (__builtin_ia32_movmskps256((Floats)(rest * rest <= most_rest)) == kAll) return level * step;
      return (x == x ? rounded(within(x / step)) : Floats{} + of_nan) * step;
    }
    // NaN stays so.
    SARDONYX_INLINE Floats within(Floats quotient) const {
      const Floats level = __builtin_ia32_maxps256(Floats{} + least, quotient);
      return __builtin_ia32_minps256(Floats{} + most, level);
    }
    // Limits are whole and small, so that the sum rounds as NumPy does, and -0 to 0.
    template <class T>
    SARDONYX_INLINE static T rounded(T quotient) {
      constexpr float kRounding = 3 << 22;
      return (quotient + kRounding) - kRounding;
    }

    float least = 0, most = 0, of_nan = 0, inverse = 0;
    // The square of the distance up to which no other level can be nearer.
    float most_rest = 0;
  };

  void run(const float* a, const float* b, float* y, int64_t first, int64_t last) const {
    switch (function_) {
      case Function::kAdd: return run_lines(Add(), a, b, y, first, last);
      case Function::kSubtract: return run_lines(Subtract(), a, b, y, first, last);
      case Function::kMultiply: return run_lines(Multiply(), a, b, y, first, last);
      case Function::kDivide: return run_lines(Divide(), a, b, y, first, last);
      case Function::kRoot: return run_lines(Root(), a, b, y, first, last);
      case Function::kLevel: return run_lines(level_, a, b, y, first, last);
    }
  }

  template <class Of>
  __attribute__((target("avx2"))) void run_lines(Of of, const float* a, const float* b, float* y,
                                                 int64_t first, int64_t last) const {
    const int64_t length = sizes_.back(), step_of_a = steps_of_a_.back();
    const int64_t step_of_b = steps_of_b_.back();
    while (first < last) {
      const int64_t line = first / length, at = first % length;
      const int64_t count = std::min(length - at, last - first);
      const float* from_a = a + place_of(line, steps_of_a_) + at * step_of_a;
      const float* from_b = b + place_of(line, steps_of_b_) + at * step_of_b;
      run_line(of, {from_a, step_of_a}, {from_b, step_of_b}, y + first, count);
      first += count;
    }
  }

  // Elements that are so many apart.
  struct Line {
    const float* at;
    int64_t step;
  };

  template <class Of>
  SARDONYX_INLINE static void run_line(Of of, Line a, Line b, float* y, int64_t count) {
    int64_t i = 0;
    if (a.step == 1 && b.step == 1) {
      for (; i + kLanes <= count; i += kLanes) {
        store(y + i, of(loaded(a.at + i), loaded(b.at + i)));
      }
    } else if (a.step == 1 && b.step == 0) {
      const Floats same = all(*b.at);
      for (; i + kLanes <= count; i += kLanes) store(y + i, of(loaded(a.at + i), same));
    } else if (a.step == 0 && b.step == 1) {
      const Floats same = all(*a.at);
      for (; i + kLanes <= count; i += kLanes) store(y + i, of(same, loaded(b.at + i)));
    }
    for (; i < count; ++i) y[i] = of(a.at[i * a.step], b.at[i * b.step]);
  }

  int64_t place_of(int64_t line, const std::vector<int64_t>& steps) const {
    int64_t place = 0;
    for (size_t axis = sizes_.size() - 1; axis-- > 0; line /= sizes_[axis]) {
      place += line % sizes_[axis] * steps[axis];
    }
    return place;
  }

  int64_t threads_;
  Function function_;
  float number_;
  Level level_;
  std::vector<int64_t> sizes_, steps_of_a_, steps_of_b_;
};

}  // namespace sardonyx
