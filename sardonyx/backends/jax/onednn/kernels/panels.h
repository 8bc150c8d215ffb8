// Products of float32 with weights that oneDNN packed in panels of columns, for AVX2.
#pragma once

#include <optional>

#include "finish.h"

namespace sardonyx {

// Without AVX-512, oneDNN's own kernels take a tenth longer for many rows, and twice as long for a
// few. They write code for each number of rows; this one is compiled once. A panel has 16 or 24
// columns, and for each step along the inner axis their weights side by side.
class Panels {
 public:
  // Whether oneDNN's kernels are slower, and this can do what follows a product.
  static bool serve(int data_type, const Epilogue& epilogue) {
    const bool can_finish = !epilogue.activation.is_long() ||
                            epilogue.addend != Addend::kAfterActivation;
    return data_type == kFloat32 && has_wide_registers() && !has_avx512() && can_finish;
  }

  // For packed weights whose axes are the inner one and the columns; none if they lie otherwise.
  static std::optional<Panels> of(const Desc& weights, const Epilogue& epilogue) {
    constexpr int kInner = 0, kColumns = 1;
    if (asked<int>(weights, dnnl::kFormatKind) != dnnl::kBlocked) return std::nullopt;
    const Strides form(weights);
    const Dims dims = asked(weights, dnnl::kDims, 2);
    const int64_t width = form.block_of(kColumns), together = form.block_of(kInner);
    const bool are_innermost = !form.axes.empty() && form.axes.back() == kColumns &&
                               form.blocks.back() == width;
    const bool are_dense = form.blocks.size() <= 2 && form.steps[kInner] == width * together;
    if (!are_innermost || !are_dense || (width != 16 && width != 24)) return std::nullopt;
    return Panels(width, dims[kInner], dims[kColumns], form.steps[kColumns], epilogue);
  }

  // For weights that somebody packs at the places that this tells, and nothing that follows.
  static Panels dense(int64_t inner, int64_t columns) {
    const int64_t width = columns % 16 && columns % 24 == 0 ? 24 : 16;
    return Panels(width, inner, columns, width * inner, Epilogue());
  }
  int64_t packed_floats() const { return (columns_ + width_ - 1) / width_ * step_; }
  int64_t place_of(int64_t inner, int64_t column) const {
    return column / width_ * step_ + inner * width_ + column % width_;
  }

  // The bias and the addend may be null; rows of the addend and of the result begin `pitch` apart.
  struct Arrays {
    const float *x, *weights, *bias, *addend;
    float* y;
    int64_t rows, pitch;
  };

  void run(const Arrays& at) const { width_ == 24 ? run_in<3, 4>(at) : run_in<2, 6>(at); }

 private:
  // Steps along the inner axis at once: a panel of them stays in the processor's second cache.
  static constexpr int64_t kSteps = 1024;
  // For fewer rows the processor itself looks ahead far enough.
  static constexpr int64_t kRowsForPrefetch = 64;
  static constexpr int64_t kFloatsOfLine = 16;

  Panels(int64_t width, int64_t inner, int64_t columns, int64_t step, const Epilogue& epilogue)
      : width_(width),
        inner_(inner),
        columns_(columns),
        step_(step),
        finish_(epilogue) {}

  // Some steps of one panel. While rows pass, the next panel is fetched line by line.
  struct Panel {
    const float *weights, *next;
    int64_t column, columns, begin, steps;
    bool is_first, is_last;
  };

  // A few rows of a panel.
  struct Tile {
    const float *x, *weights, *next;
    int64_t lines, steps_of_line;
    const float *bias, *addend;
    float* y;
    int64_t steps, columns;
    bool is_first, is_last;
  };

  template <int kVectors, int kRows>
  void run_in(const Arrays& at) const {
    const int64_t parts = (inner_ + kSteps - 1) / kSteps;
    for (int64_t part = 0; part < parts; ++part) {
      const auto [begin, end] = share(inner_, part, parts);
      for (int64_t column = 0; column < columns_; column += width_) {
        const bool is_last = column + width_ >= columns_;
        const float* weights = at.weights + column / width_ * step_ + begin * width_;
        const float* next = is_last ? at.weights + end * width_ : weights + step_;
        run_panel<kVectors, kRows>(at, {weights, next, column, std::min(columns_ - column, width_),
                                        begin, end - begin, part == 0, part + 1 == parts});
      }
    }
  }

  template <int kVectors, int kRows>
  [[gnu::target("avx2,fma")]] void run_panel(const Arrays& at, const Panel& panel) const {
    const int64_t all_lines = panel.steps * width_ / kFloatsOfLine, tiles = at.rows / kRows;
    const int64_t lines = at.rows < kRowsForPrefetch ? 0 : (all_lines + tiles - 1) / tiles;
    const float* next = panel.next;
    for (int64_t row = 0; row < at.rows; row += kRows, next += lines * kFloatsOfLine) {
      const int64_t y_at = row * at.pitch + panel.column;
      const Tile tile{at.x + row * inner_ + panel.begin,
                      panel.weights,
                      next,
                      lines,
                      panel.steps / (lines + 1),
                      at.bias ? at.bias + panel.column : nullptr,
                      at.addend ? at.addend + y_at : nullptr,
                      at.y + y_at,
                      panel.steps,
                      panel.columns,
                      panel.is_first,
                      panel.is_last};
      compute_up_to<kVectors, kRows>(tile, at.rows - row, at.pitch);
    }
  }

  template <int kVectors, int kRows>
  SARDONYX_INLINE void compute_up_to(const Tile& tile, int64_t rows, int64_t pitch) const {
    if (rows >= kRows) {
      if (tile.columns == width_) {
        compute<kVectors, kRows, true>(tile, pitch);
      } else {
        compute<kVectors, kRows, false>(tile, pitch);
      }
    } else if constexpr (kRows > 1) {
      compute_up_to<kVectors, kRows - 1>(tile, rows, pitch);
    }
  }

  template <int kVectors, int kRows, bool kIsWhole>
  SARDONYX_INLINE void compute(const Tile& tile, int64_t pitch) const {
    Floats sums[kRows][kVectors];
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        sums[row][i] = tile.is_first ? Floats{} : read<kIsWhole>(tile.y + row * pitch, i, tile);
      }
    }
    add_products<kVectors, kRows>(sums, tile);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        Floats value = sums[row][i];
        if (tile.is_last) value = finished<kIsWhole>(value, tile, row * pitch, i);
        write<kIsWhole>(tile.y + row * pitch, value, i, tile);
      }
    }
  }

  template <int kVectors, int kRows>
  SARDONYX_INLINE void add_products(Floats (&sums)[kRows][kVectors], const Tile& tile) const {
    const float* x[kRows];
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) x[row] = tile.x + row * inner_;
    const float* weights = tile.weights;
    int64_t step = 0;
    // One line at a time: if all were fetched at once, what is needed now would wait for them.
    for (int64_t line = 0; line <= tile.lines; ++line) {
      const int64_t end = line < tile.lines ? step + tile.steps_of_line : tile.steps;
      for (; step < end; ++step, weights += kVectors * kLanes) {
        Floats columns[kVectors];
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) columns[i] = loaded(weights + i * kLanes);
#pragma GCC unroll 8
        for (int row = 0; row < kRows; ++row) {
          const float f = x[row][step];
          // An expression with arithmetic would take instructions beyond the one that fills all lanes.
          const Floats factor = {f, f, f, f, f, f, f, f};
#pragma GCC unroll 8
          for (int i = 0; i < kVectors; ++i) sums[row][i] += factor * columns[i];
        }
      }
      __builtin_prefetch(tile.next + line * kFloatsOfLine, 0, 2);
    }
  }

  template <bool kIsWhole>
  SARDONYX_INLINE Floats finished(Floats value, const Tile& tile, int64_t row_at, int i) const {
    if (tile.bias) value += read<kIsWhole>(tile.bias, i, tile);
    return finish_.of(value, tile.addend ? read<kIsWhole>(tile.addend + row_at, i, tile) : Floats{});
  }

  // Vectors of a panel, of which the last may have fewer columns.
  template <bool kIsWhole>
  SARDONYX_INLINE static Floats read(const float* from, int i, const Tile& tile) {
    if (kIsWhole) return loaded(from + i * kLanes);
    const int64_t count = std::clamp<int64_t>(tile.columns - i * kLanes, 0, kLanes);
    return count ? loaded(from + i * kLanes, count, 0) : Floats{};
  }

  template <bool kIsWhole>
  SARDONYX_INLINE static void write(float* to, Floats value, int i, const Tile& tile) {
    if (kIsWhole) return store(to + i * kLanes, value);
    const int64_t count = std::clamp<int64_t>(tile.columns - i * kLanes, 0, kLanes);
    if (count) store(to + i * kLanes, value, count);
  }

  int64_t width_, inner_, columns_;
  // From one panel to the next.
  int64_t step_;
  Finish finish_;
};

}  // namespace sardonyx
