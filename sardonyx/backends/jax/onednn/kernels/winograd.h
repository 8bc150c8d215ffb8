// Convolutions of 3 by 3 taps with less than half of the products, for AVX2.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "finish.h"
#include "panels.h"
#include "work.h"

namespace sardonyx {

// Winograd's F(2x2, 3x3): a tile of 2 by 2 results takes 16 products for each pair of channels in
// place of 36. The 16 numbers of a tile of 4 by 4 pixels are sums of these, and so are those of the
// weights, which are packed in this form. Products for all tiles are 16 products of matrices, and
// the results are sums of theirs. Tiles begin at every other pixel whatever part of an image a
// thread computes, so that the results do not depend on that.
class Winograd {
 public:
  // Of the images and the results, and the pixels of padding before the first ones.
  struct Sizes {
    int64_t images, height, width, inputs, outputs, top, left, rows, columns;
  };

  // Fewer pixels than these would pass while the weights are read, of which there are more than
  // those of the convolution itself.
  static constexpr int64_t kFewestPixels = 144, kFewestChannels = 16;

  static bool serves(const Sizes& sizes, int data_type, const Epilogue& epilogue) {
    const bool are_lanes = sizes.inputs % kLanes == 0 && sizes.outputs % kLanes == 0;
    // With AVX-512 oneDNN's own kernels are faster.
    return data_type == kFloat32 && has_wide_registers() && !has_avx512() &&
           !epilogue.activation.is_long() && are_lanes &&
           std::min(sizes.inputs, sizes.outputs) >= kFewestChannels &&
           sizes.rows * sizes.columns >= kFewestPixels;
  }

  // `parts` threads share each image.
  Winograd(const Sizes& sizes, const Epilogue& epilogue, int64_t parts)
      : sizes_(sizes),
        epilogue_(epilogue),
        finish_(epilogue),
        panels_(Panels::dense(sizes.inputs, sizes.outputs)),
        tile_rows_((sizes.rows + 1) / 2),
        tile_columns_((sizes.columns + 1) / 2),
        bands_(std::min(parts, tile_rows_)),
        zeros_(sizes.inputs) {
    const int64_t of_tile = kMatrices * (sizes.inputs + sizes.outputs) * sizeof(float);
    const int64_t fewest = (kFewestTiles + tile_columns_ - 1) / tile_columns_;
    together_ = std::max(fewest, kInCache / (of_tile * tile_columns_));
  }

  size_t pieces() const { return sizes_.images * bands_; }
  size_t packed_bytes() const {
    return kHeader + kMatrices * panels_.packed_floats() * sizeof(float);
  }
  // Of the packed weights, and of no other ones.
  Dims form() const { return {-1, kMatrices, sizes_.inputs, sizes_.outputs}; }

  void pack(const float* weights, std::byte* packed) const {
    float* to = matrices(packed);
    std::fill_n(to, kMatrices * panels_.packed_floats(), 0.f);
    bool is_finite = true;
    for (int64_t output = 0; output < sizes_.outputs; ++output) {
      for (int64_t input = 0; input < sizes_.inputs; ++input) {
        const float* taps = weights + (output * sizes_.inputs + input) * kTaps * kTaps;
        const int64_t place = panels_.place_of(input, output);
        for (int i = 0; i < kMatrices; ++i) {
          const float value = transformed(taps, i / kSide, i % kSide);
          is_finite &= std::isfinite(value);
          to[i * panels_.packed_floats() + place] = value;
        }
      }
    }
    std::fill_n(packed, kHeader, std::byte{is_finite});
    // There is no way back from sums of these.
    if (!is_finite) std::copy_n(weights, sizes_.outputs * sizes_.inputs * kTaps * kTaps, to);
  }

  // The bias and the addend may be null.
  struct Arrays {
    const float* x;
    const std::byte* packed;
    const float *bias, *addend;
    float* y;
  };

  void run_piece(size_t i, Arrays at) const {
    const auto [first, last] = share(tile_rows_, i % bands_, bands_);
    const int64_t image = i / bands_, results = sizes_.rows * sizes_.columns * sizes_.outputs;
    at.x += image * sizes_.height * sizes_.width * sizes_.inputs;
    at.y += image * results;
    if (at.addend) at.addend += image * results;
    const bool is_finite = are_finite(at.packed);
    FaultWatch watch(FaultWatch::kInvalid | FaultWatch::kOverflow);
    for (int64_t row = first; is_finite && row < last; row += together_) {
      run_tiles(at, row, std::min(together_, last - row));
    }
    // A sum of what is not finite is no number, and one of large numbers may be too large.
    if (!is_finite || watch.saw()) run_exactly(at, 2 * first, std::min(2 * last, sizes_.rows));
  }

 private:
  static constexpr int64_t kTaps = 3, kSide = 4, kMatrices = kSide * kSide;
  static constexpr size_t kHeader = 64;
  // Bytes of what lies between the sums and the results, and tiles that pass a panel at least.
  static constexpr int64_t kInCache = int64_t{3} << 17, kFewestTiles = 24;

  static float* matrices(std::byte* packed) { return reinterpret_cast<float*>(packed + kHeader); }
  static const float* matrices(const std::byte* packed) {
    return reinterpret_cast<const float*>(packed + kHeader);
  }

  // Whether the packed weights are sums.
  static bool are_finite(const std::byte* packed) { return *packed != std::byte{0}; }

  // A number of G g G', where the rows of G are 1 0 0, 1/2 1/2 1/2, 1/2 -1/2 1/2 and 0 0 1.
  static float transformed(const float* taps, int row, int column) {
    auto along = [](float first, float second, float third, int i) {
      switch (i) {
        case 0: return first;
        case 1: return (first + third + second) / 2;
        case 2: return (first + third - second) / 2;
        default: return third;
      }
    };
    float sums[kTaps];
    for (int i = 0; i < kTaps; ++i) sums[i] = along(taps[i], taps[3 + i], taps[6 + i], row);
    return along(sums[0], sums[1], sums[2], column);
  }

  void run_tiles(const Arrays& at, int64_t row, int64_t count) const {
    const int64_t tiles = count * tile_columns_;
    const int64_t of_x = tiles * sizes_.inputs, of_y = tiles * sizes_.outputs;
    auto* sums = reinterpret_cast<float*>(
        scratch<For::kTiles>(kMatrices * (of_x + of_y) * sizeof(float)));
    float* products = sums + kMatrices * of_x;
    for (int64_t i = 0; i < tiles; ++i) {
      add_up(at.x, 2 * (row + i / tile_columns_), 2 * (i % tile_columns_), of_x,
             sums + i * sizes_.inputs);
    }
    const float* weights = matrices(at.packed);
    for (int64_t i = 0; i < kMatrices; ++i, weights += panels_.packed_floats()) {
      panels_.run({sums + i * of_x, weights, nullptr, nullptr, products + i * of_y, tiles,
                   sizes_.outputs});
    }
    for (int64_t i = 0; i < tiles; ++i) {
      finish(at, 2 * (row + i / tile_columns_), 2 * (i % tile_columns_), of_y,
             products + i * sizes_.outputs);
    }
  }

  // The sums of the tile whose first result is this one: B' d B.
  __attribute__((target("avx2,fma"))) void add_up(const float* x, int64_t row, int64_t column,
                                                  int64_t step, float* sums) const {
    const float* pixels[kSide][kSide];
    for (int i = 0; i < kSide; ++i) {
      for (int j = 0; j < kSide; ++j) {
        const int64_t y_at = row - sizes_.top + i, x_at = column - sizes_.left + j;
        const bool is_there = 0 <= y_at && y_at < sizes_.height && 0 <= x_at && x_at < sizes_.width;
        pixels[i][j] =
            is_there ? x + (y_at * sizes_.width + x_at) * sizes_.inputs : zeros_.data();
      }
    }
    for (int64_t channel = 0; channel < sizes_.inputs; channel += kLanes) {
      Floats between[kSide][kSide];
#pragma GCC unroll 4
      for (int j = 0; j < kSide; ++j) {
        const Floats first = loaded(pixels[0][j] + channel), second = loaded(pixels[1][j] + channel);
        const Floats third = loaded(pixels[2][j] + channel), last = loaded(pixels[3][j] + channel);
        between[0][j] = first - third;
        between[1][j] = second + third;
        between[2][j] = third - second;
        between[3][j] = second - last;
      }
#pragma GCC unroll 4
      for (int i = 0; i < kSide; ++i) {
        float* to = sums + i * kSide * step + channel;
        store(to, between[i][0] - between[i][2]);
        store(to + step, between[i][1] + between[i][2]);
        store(to + 2 * step, between[i][2] - between[i][1]);
        store(to + 3 * step, between[i][1] - between[i][3]);
      }
    }
  }

  // The results of a tile, of which some may lie behind the last one: A' m A.
  __attribute__((target("avx2,fma"))) void finish(const Arrays& at, int64_t row, int64_t column,
                                                  int64_t step, const float* products) const {
    const int64_t outputs = sizes_.outputs;
    for (int64_t channel = 0; channel < outputs; channel += kLanes) {
      Floats between[2][kSide];
#pragma GCC unroll 4
      for (int j = 0; j < kSide; ++j) {
        const float* from = products + j * step + channel;
        const Floats first = loaded(from), second = loaded(from + kSide * step);
        const Floats third = loaded(from + 2 * kSide * step);
        const Floats last = loaded(from + 3 * kSide * step);
        between[0][j] = first + second + third;
        between[1][j] = second - third - last;
      }
      const float* bias = at.bias ? at.bias + channel : nullptr;
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const Floats results[2] = {between[i][0] + between[i][1] + between[i][2],
                                   between[i][1] - between[i][2] - between[i][3]};
#pragma GCC unroll 2
        for (int j = 0; j < 2; ++j) {
          if (row + i >= sizes_.rows || column + j >= sizes_.columns) continue;
          const int64_t place = ((row + i) * sizes_.columns + column + j) * outputs + channel;
          Floats value = results[j];
          if (bias) value += loaded(bias);
          const Floats added = at.addend ? loaded(at.addend + place) : Floats{};
          store(at.y + place, finish_.of(value, added));
        }
      }
    }
  }

  // Without sums, for some rows of the results.
  void run_exactly(const Arrays& at, int64_t first, int64_t last) const {
    const std::vector<float> taps = taps_of(at.packed);
    const int64_t inputs = sizes_.inputs, outputs = sizes_.outputs;
    for (int64_t row = first; row < last; ++row) {
      for (int64_t column = 0; column < sizes_.columns; ++column) {
        float* y = at.y + (row * sizes_.columns + column) * outputs;
        std::fill_n(y, outputs, 0.f);
        for (int64_t tap = 0; tap < kTaps * kTaps; ++tap) {
          const int64_t y_at = row - sizes_.top + tap / kTaps;
          const int64_t x_at = column - sizes_.left + tap % kTaps;
          if (y_at < 0 || y_at >= sizes_.height || x_at < 0 || x_at >= sizes_.width) continue;
          const float* x = at.x + (y_at * sizes_.width + x_at) * inputs;
          add_products(x, taps.data() + tap * inputs * outputs, y);
        }
        for (int64_t i = 0; at.bias && i < outputs; ++i) y[i] += at.bias[i];
      }
    }
    const int64_t row_results = sizes_.columns * outputs, begin = first * row_results;
    const float* added = at.addend ? at.addend + begin : nullptr;
    epilogue_.apply(kFloat32, (last - first) * row_results, reinterpret_cast<const std::byte*>(added),
                    reinterpret_cast<std::byte*>(at.y + begin));
  }

  __attribute__((target("avx2,fma"))) void add_products(const float* x, const float* weights,
                                                        float* y) const {
    const int64_t outputs = sizes_.outputs;
    for (int64_t input = 0; input < sizes_.inputs; ++input, weights += outputs) {
      const Floats factor = all(x[input]);
      for (int64_t i = 0; i < outputs; i += kLanes) {
        store(y + i, loaded(y + i) + factor * loaded(weights + i));
      }
    }
  }

  // The weights of each tap, from all inputs to all outputs.
  std::vector<float> taps_of(const std::byte* packed) const {
    const int64_t inputs = sizes_.inputs, outputs = sizes_.outputs, count = kTaps * kTaps;
    std::vector<float> taps(count * inputs * outputs);
    const float* from = matrices(packed);
    const bool is_finite = are_finite(packed);
    for (int64_t output = 0; output < outputs; ++output) {
      for (int64_t input = 0; input < inputs; ++input) {
        const float* own = from + (output * inputs + input) * count;
        const int64_t place = panels_.place_of(input, output);
        for (int64_t tap = 0; tap < count; ++tap) {
          auto of = [&](int row, int column) {
            return from[(row * kSide + column) * panels_.packed_floats() + place];
          };
          taps[(tap * inputs + input) * outputs + output] =
              is_finite ? restored(of, tap / kTaps, tap % kTaps) : own[tap];
        }
      }
    }
    return taps;
  }

  // One of the weights, of which the numbers in the middle are half of sums and of differences.
  template <class Number>
  static float restored(Number of, int row, int column) {
    auto along = [](auto number, int i) {
      return i == 0 ? number(0) : i == 1 ? number(1) - number(2) : number(3);
    };
    return along([&](int i) { return along([&](int j) { return of(i, j); }, column); }, row);
  }

  Sizes sizes_;
  Epilogue epilogue_;
  Finish finish_;
  Panels panels_;
  int64_t tile_rows_, tile_columns_, bands_, together_;
  // What lies outside of an image.
  std::vector<float> zeros_;
};

}  // namespace sardonyx
