// The largest numbers of windows over float32, or their sums; channels are last in memory.
#pragma once

#include "convolution.h"
#include "lanes.h"

namespace sardonyx {

class Windows : public Kernel {
 public:
  // The threads, whether numbers are added up, how many images and channels there are, and the
  // axes: each with its size, and then as in a convolution.
  explicit Windows(Reader at)
      : threads_(at.next()), is_sum_(at.next()), images_(at.next()), channels_(at.next()) {
    for (Axis& axis : axes_) axis = Axis::read(at);
  }

  // Of what lies under the windows, and of the results.
  Work work(Arrays at, std::byte*) const override {
    auto* x = read_from<float>(at[0]);
    auto* y = reinterpret_cast<float*>(at[1]);
    // Memory is waited for, too.
    constexpr double kOperations = 8;
    const auto [planes, rows, columns] = results();
    const int64_t lines = images_ * planes * rows;
    double operations = kOperations * lines * columns * channels_;
    for (const Axis& axis : axes_) operations *= axis.kernel;
    const int64_t parts = std::min(useful_parts(operations, threads_), std::max<int64_t>(lines, 1));
    return {parts, {static_cast<size_t>(parts)}, [=, this](size_t, size_t i) {
              auto [first, last] = share(lines, i, parts);
              run_lines(x, y, first, last);
            }};
  }

 private:
  // From where the first window begins, and the taps that lie within the axis.
  struct Taps {
    int64_t at, first, last;
  };

  std::array<int64_t, 3> results() const {
    return {axes_[0].results(), axes_[1].results(), axes_[2].results()};
  }

  static Taps taps_of(const Axis& axis, int64_t result) {
    const int64_t at = result * axis.stride - axis.pad_before, gap = axis.dilation;
    const int64_t first = at < 0 ? (-at + gap - 1) / gap : 0;
    const int64_t behind = at < axis.size ? (axis.size - at + gap - 1) / gap : 0;
    return {at, first, std::min(axis.kernel, behind)};
  }

  // Windows along the last axis. The numbers of each lie at the same place of each tap.
  __attribute__((target("avx2"))) void run_lines(const float* x, float* y, int64_t first,
                                                 int64_t last) const {
    const auto [planes, rows, columns] = results();
    const auto& [depth, height, width] = axes_;
    const int64_t image_size = depth.size * height.size * width.size;
    std::vector<const float*> taps;
    for (int64_t line = first; line < last; ++line) {
      const Taps in_depth = taps_of(depth, line / rows % planes);
      const Taps in_height = taps_of(height, line % rows);
      const float* image = x + line / rows / planes * image_size * channels_;
      for (int64_t column = 0; column < columns; ++column) {
        const Taps in_width = taps_of(width, column);
        taps.clear();
        for (int64_t i = in_depth.first; i < in_depth.last; ++i) {
          for (int64_t j = in_height.first; j < in_height.last; ++j) {
            for (int64_t k = in_width.first; k < in_width.last; ++k) {
              const int64_t plane = in_depth.at + i * depth.dilation;
              const int64_t row = plane * height.size + in_height.at + j * height.dilation;
              const int64_t place = row * width.size + in_width.at + k * width.dilation;
              taps.push_back(image + place * channels_);
            }
          }
        }
        reduce(taps, y + (line * columns + column) * channels_);
      }
    }
  }

  SARDONYX_INLINE void reduce(const std::vector<const float*>& taps, float* y) const {
    const int64_t whole = channels_ / kLanes * kLanes, rest = channels_ - whole;
    if (is_sum_) {
      for (int64_t i = 0; i < whole; i += kLanes) store(y + i, total(taps, i, kLanes));
      if (rest) store(y + whole, total(taps, whole, rest), rest);
    } else {
      for (int64_t i = 0; i < whole; i += kLanes) store(y + i, greatest(taps, i, kLanes));
      if (rest) store(y + whole, greatest(taps, whole, rest), rest);
    }
  }

  SARDONYX_INLINE static Floats total(const std::vector<const float*>& taps, int64_t at,
                                      int64_t count) {
    Floats found{};
    for (const float* tap : taps) found += loaded(tap + at, count, 0);
    return found;
  }

  // NaN, if there is one.
  SARDONYX_INLINE static Floats greatest(const std::vector<const float*>& taps, int64_t at,
                                         int64_t count) {
    Floats found = all(-std::numeric_limits<float>::infinity());
    for (const float* tap : taps) {
      const Floats each = loaded(tap + at, count, 0);
      const Integers is_next = (each > found) | (each != each);
      found = is_next ? each : found;
    }
    return found;
  }

  int64_t threads_;
  bool is_sum_;
  int64_t images_, channels_;
  std::array<Axis, 3> axes_;
};

}  // namespace sardonyx
