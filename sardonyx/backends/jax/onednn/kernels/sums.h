// Sums of float32 over axes that lie beside each other.
#pragma once

#include "lanes.h"
#include "product.h"

namespace sardonyx {

class Sums : public Kernel {
 public:
  // The threads, and the sizes of an array with three axes that lies by rows. Sums are over its
  // second axis.
  explicit Sums(Reader at)
      : threads_(at.next()), blocks_(at.next()), length_(at.next()), columns_(at.next()) {}

  // Of the array, and of the sums.
  Work work(Arrays at, std::byte*) const override {
    auto* x = read_from<float>(at[0]);
    auto* y = reinterpret_cast<float*>(at[1]);
    // Memory is waited for.
    constexpr double kOperations = 8;
    const int64_t groups = blocks_ * groups_of_columns();
    const int64_t parts = std::min(useful_parts(kOperations * blocks_ * length_ * columns_, threads_),
                                   std::max<int64_t>(groups, 1));
    return {parts, {static_cast<size_t>(parts)}, [=, this](size_t, size_t i) {
              const auto [first, last] = share(groups, i, parts);
              run(x, y, first, last);
            }};
  }

 private:
  // So many are added up one after the other: the sum of more loses digits.
  static constexpr int64_t kTogether = 128;

  int64_t groups_of_columns() const { return (columns_ + kLanes - 1) / kLanes; }

  __attribute__((target("avx2"))) void run(const float* x, float* y, int64_t first,
                                           int64_t last) const {
    for (int64_t group = first; group < last; ++group) {
      const int64_t block = group / groups_of_columns(), column = group % groups_of_columns() * kLanes;
      const float* from = x + block * length_ * columns_ + column;
      float* to = y + block * columns_ + column;
      if (columns_ == 1) {
        *to = sum_of_row(from);
      } else if (column + kLanes <= columns_) {
        store(to, sum_of_columns<true>(from, kLanes));
      } else {
        store(to, sum_of_columns<false>(from, columns_ - column), columns_ - column);
      }
    }
  }

  SARDONYX_INLINE float sum_of_row(const float* x) const {
    const int64_t whole = length_ / kLanes * kLanes;
    Floats total = loaded(x + whole, length_ - whole, 0);
    for (int64_t start = 0; start < whole; start += kTogether * kLanes) {
      Floats part{};
      const int64_t end = std::min(start + kTogether * kLanes, whole);
      for (int64_t i = start; i < end; i += kLanes) part += loaded(x + i);
      total += part;
    }
    return sum(total);
  }

  template <bool kIsWhole>
  SARDONYX_INLINE Floats sum_of_columns(const float* x, int64_t count) const {
    Floats total{};
    for (int64_t start = 0; start < length_; start += kTogether) {
      Floats part{};
      const int64_t end = std::min(start + kTogether, length_);
      for (int64_t i = start; i < end; ++i) {
        const float* from = x + i * columns_;
        part += kIsWhole ? loaded(from) : loaded(from, count, 0);
      }
      total += part;
    }
    return total;
  }

  int64_t threads_, blocks_, length_, columns_;
};

}  // namespace sardonyx
