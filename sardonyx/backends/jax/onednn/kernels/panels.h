// Products of float32 with weights that oneDNN packed in panels of columns.
#pragma once

#include <optional>

#include "finish.h"

namespace sardonyx {

// oneDNN takes 1 ms to write the code for another number of rows; this is compiled once. For a few
// rows oneDNN's own kernels take up to twice as long, and for many a tenth longer; with AVX-512 those
// are faster for many. A panel has 16 or 24 columns, with AVX-512 64, and for each step along the
// inner axis their weights side by side.
class Panels {
 public:
  // Whether this is faster than oneDNN, and can do what follows a product.
  static bool serve(int64_t rows, int64_t inner, int data_type, const Epilogue& epilogue) {
    const bool can_finish = !epilogue.activation.is_long() ||
                            epilogue.addend != Addend::kAfterActivation;
    const int64_t most_rows = inner < kFewSteps ? kMostLongRows / 4 : kMostLongRows;
    const bool is_faster = !has_avx512() || rows <= most_rows;
    return data_type == kFloat32 && has_wide_registers() && is_faster && can_finish;
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
    const bool is_served = has_avx512() ? width == kLongWidth : width == 16 || width == 24;
    if (!are_innermost || !are_dense || !is_served) return std::nullopt;
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

  void run(const Arrays& at) const {
    if (width_ == kLongWidth) return run_in<LongFloats, 4, 6>(at);
    width_ == 24 ? run_in<Floats, 3, 4>(at) : run_in<Floats, 2, 6>(at);
  }

 private:
  // Steps along the inner axis at once: a panel of them stays in the processor's second cache.
  static constexpr int64_t kSteps = 1024;
  // For fewer rows the processor itself looks ahead far enough.
  static constexpr int64_t kRowsForPrefetch = 64;
  static constexpr int64_t kFloatsOfLine = 16;
  // With AVX-512.
  static constexpr int64_t kLongWidth = 64, kMostLongRows = 64, kFewSteps = 128;

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
    bool is_first;
  };

  template <class V, int kVectors, int kRows>
  void run_in(const Arrays& at) const {
    // What is read once need not stay in the cache.
    const int64_t parts = at.rows > kRows ? (inner_ + kSteps - 1) / kSteps : 1;
    for (int64_t part = 0; part < parts; ++part) {
      const auto [begin, end] = share(inner_, part, parts);
      for (int64_t column = 0; column < columns_; column += width_) {
        const bool is_last = column + width_ >= columns_;
        const float* weights = at.weights + column / width_ * step_ + begin * width_;
        const float* next = is_last ? at.weights + end * width_ : weights + step_;
        const Panel panel{weights, next, column, std::min(columns_ - column, width_),
                          begin, end - begin, part == 0, part + 1 == parts};
        if constexpr (lanes_of<V> == kLanes) {
          run_short<V, kVectors, kRows>(at, panel);
        } else {
          run_long<V, kVectors, kRows>(at, panel);
        }
      }
    }
  }

  template <class V, int kVectors, int kRows>
  [[gnu::target("avx2,fma")]] void run_short(const Arrays& at, const Panel& panel) const {
    run_panel<V, kVectors, kRows>(at, panel);
  }
  template <class V, int kVectors, int kRows>
  [[gnu::target("avx512f,avx2,fma")]] void run_long(const Arrays& at, const Panel& panel) const {
    run_panel<V, kVectors, kRows>(at, panel);
  }

  template <class V, int kVectors, int kRows>
  SARDONYX_INLINE void run_panel(const Arrays& at, const Panel& panel) const {
    const int64_t all_lines = panel.steps * width_ / kFloatsOfLine;
    const int64_t tiles = (at.rows + kRows - 1) / kRows;
    const int64_t lines = at.rows < kRowsForPrefetch ? 0 : (all_lines + tiles - 1) / tiles;
    const bool has_more = at.bias || !finish_.is_nothing();
    const float* next = panel.next;
    for (int64_t i = 0; i < tiles; ++i, next += lines * kFloatsOfLine) {
      const auto [row, end] = share(at.rows, i, tiles);
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
                      panel.is_first};
      compute_up_to<V, kVectors, kRows>(tile, end - row, at.pitch);
      if (panel.is_last && has_more) finish<V>(tile, end - row, at.pitch);
    }
  }

  template <class V, int kVectors, int kRows>
  SARDONYX_INLINE void compute_up_to(const Tile& tile, int64_t rows, int64_t pitch) const {
    if (rows >= kRows) {
      if (tile.columns == width_) {
        compute<V, kVectors, kRows, true>(tile, pitch);
      } else {
        compute<V, kVectors, kRows, false>(tile, pitch);
      }
    } else if constexpr (kRows > 1) {
      compute_up_to<V, kVectors, kRows - 1>(tile, rows, pitch);
    }
  }

  template <class V, int kVectors, int kRows, bool kIsWhole>
  SARDONYX_INLINE void compute(const Tile& tile, int64_t pitch) const {
    V sums[kRows][kVectors];
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        sums[row][i] = tile.is_first ? V{} : read<V, kIsWhole>(tile.y + row * pitch, i, tile);
      }
    }
    add_products<V, kVectors, kRows>(sums, tile);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
#pragma GCC unroll 8
      for (int i = 0; i < kVectors; ++i) {
        write<V, kIsWhole>(tile.y + row * pitch, sums[row][i], i, tile);
      }
    }
  }

  template <class V, int kVectors, int kRows>
  SARDONYX_INLINE void add_products(V (&sums)[kRows][kVectors], const Tile& tile) const {
    const float* x[kRows];
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) x[row] = tile.x + row * inner_;
    const float* weights = tile.weights;
    int64_t step = 0;
    // One line at a time: if all were fetched at once, what is needed now would wait for them.
    for (int64_t line = 0; line <= tile.lines; ++line) {
      const int64_t end = line < tile.lines ? step + tile.steps_of_line : tile.steps;
      for (; step < end; ++step, weights += kVectors * lanes_of<V>) {
        V columns[kVectors];
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) columns[i] = loaded<V>(weights + i * lanes_of<V>);
#pragma GCC unroll 8
        for (int row = 0; row < kRows; ++row) {
          const V factor = all<V>(x[row][step]);
#pragma GCC unroll 8
          for (int i = 0; i < kVectors; ++i) sums[row][i] += factor * columns[i];
        }
      }
      __builtin_prefetch(tile.next + line * kFloatsOfLine, 0, 2);
    }
  }

  // What follows the sums, which are still in the first cache.
  template <class V>
  SARDONYX_INLINE void finish(const Tile& tile, int64_t rows, int64_t pitch) const {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < tile.columns; i += lanes_of<V>) {
        const int64_t count = std::min(tile.columns - i, lanes_of<V>), place = row * pitch + i;
        V value = up_to<V>(count, tile.y + place);
        if (tile.bias) value += up_to<V>(count, tile.bias + i);
        value = finish_.of(value, tile.addend ? up_to<V>(count, tile.addend + place) : V{});
        store_up_to(count, tile.y + place, value);
      }
    }
  }

  // Vectors of a panel, of which the last may have fewer columns.
  template <class V, bool kIsWhole>
  SARDONYX_INLINE static V read(const float* from, int i, const Tile& tile) {
    if (kIsWhole) return loaded<V>(from + i * lanes_of<V>);
    return up_to<V>(tile.columns - i * lanes_of<V>, from + i * lanes_of<V>);
  }

  template <class V, bool kIsWhole>
  SARDONYX_INLINE static void write(float* to, V value, int i, const Tile& tile) {
    if (kIsWhole) return store(to + i * lanes_of<V>, value);
    store_up_to(tile.columns - i * lanes_of<V>, to + i * lanes_of<V>, value);
  }

  template <class V>
  SARDONYX_INLINE static V up_to(int64_t count, const float* from) {
    if (count >= lanes_of<V>) return loaded<V>(from);
    return count > 0 ? loaded<V>(from, count, 0) : V{};
  }

  template <class V>
  SARDONYX_INLINE static void store_up_to(int64_t count, float* to, V values) {
    if (count >= lanes_of<V>) return store(to, values);
    if (count > 0) store(to, values, count);
  }

  int64_t width_, inner_, columns_;
  // From one panel to the next.
  int64_t step_;
  Finish finish_;
};

}  // namespace sardonyx
