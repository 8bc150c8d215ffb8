// Convolutions: arrays have their channels last in memory, weights come with their taps last.
#pragma once

#include <numeric>
#include <optional>

#include "product.h"

namespace sardonyx {

struct Axis {
  int64_t size, kernel, stride, pad_before, pad_after, dilation;

  int64_t reach() const { return (kernel - 1) * dilation + 1; }
  int64_t results() const { return (size + pad_before + pad_after - reach()) / stride + 1; }

  // The part of the axis that gives the results from one to before another, and where it begins.
  std::pair<Axis, int64_t> part(int64_t first, int64_t last) const {
    if (first == 0 && last == results()) return {*this, 0};
    int64_t begin = first * stride - pad_before;
    int64_t end = (last - 1) * stride - pad_before + reach();
    Axis axis = *this;
    axis.pad_before = std::max<int64_t>(-begin, 0);
    axis.pad_after = std::max<int64_t>(end - size, 0);
    begin = std::max<int64_t>(begin, 0);
    axis.size = std::min(end, size) - begin;
    return {axis, begin};
  }
};

struct Convolution {
  int64_t batch, inputs, outputs, groups;
  std::vector<Axis> axes;

  explicit Convolution(Reader& spec) {
    axes.resize(spec.next());
    for (int64_t* field : {&batch, &inputs, &outputs, &groups}) *field = spec.next();
    for (Axis& axis : axes) {
      axis.size = spec.next();
      axis.kernel = spec.next();
      axis.stride = spec.next();
      axis.pad_before = spec.next();
      axis.pad_after = spec.next();
      axis.dilation = spec.next();
    }
  }

  Dims x() const { return with_sizes({batch, inputs}, &Axis::size); }
  Dims weights() const {
    if (groups == 1) return with_sizes({outputs, inputs}, &Axis::kernel);
    return with_sizes({groups, outputs / groups, inputs / groups}, &Axis::kernel);
  }
  Dims y() const {
    Dims dims{batch, outputs};
    for (const Axis& axis : axes) dims.push_back(axis.results());
    return dims;
  }

  int64_t taps() const {
    int64_t product = inputs / groups;
    for (const Axis& axis : axes) product *= axis.kernel;
    return product;
  }
  // Results for each channel.
  int64_t pixels() const { return pixels_beyond(0) * batch; }
  int64_t pixels_beyond(size_t axis) const {
    int64_t product = 1;
    for (; axis < axes.size(); ++axis) product *= axes[axis].results();
    return product;
  }

  double operations() const { return 2.0 * pixels() * outputs * taps(); }

  // Each pixel of a pointwise one stands for itself: they can be shared among threads in any number.
  void join_pixels() {
    if (!is_pointwise()) return;
    axes = {{pixels(), 1, 1, 0, 0, 1}, {1, 1, 1, 0, 0, 1}};
    batch = 1;
  }

 private:
  Dims with_sizes(Dims dims, int64_t Axis::*size) const {
    for (const Axis& axis : axes) dims.push_back(axis.*size);
    return dims;
  }

  bool is_pointwise() const {
    return groups == 1 && std::all_of(axes.begin(), axes.end(), [](const Axis& axis) {
             return axis.kernel == 1 && axis.stride == 1 && !axis.pad_before && !axis.pad_after;
           });
  }
};

// The convolution of a product's specification, if it is one.
inline std::optional<Convolution> convolution_of(Spec spec) {
  Reader reader(spec);
  reader.next();  // The threads.
  reader.next();  // The data type.
  Epilogue{reader};
  if (!reader.next()) return std::nullopt;
  return Convolution(reader);
}

// oneDNN writes the code of a convolution out many times, and the activation with it: for 1000
// pixels in a row that took 5 ms, and 1 ms without. While the results are in the cache, a second
// pass over them takes no longer. Numbers of 16 bits would be rounded before it.
inline bool has_activation_apart(const Convolution& part, int data_type, const Epilogue& epilogue) {
  constexpr int64_t kInCache = int64_t{1} << 19;
  return data_type == kFloat32 && epilogue.activation.is_long() &&
         epilogue.addend != Addend::kAfterActivation &&
         part.pixels() * part.outputs * item_bytes(data_type) <= kInCache;
}

inline Piece piece_of(const Convolution& part, int data_type, const Epilogue& epilogue) {
  Piece piece{};
  const bool is_apart = has_activation_apart(part, data_type, epilogue);
  if (is_apart) {
    const Activation& f = epilogue.activation;
    const int64_t results = part.pixels() * part.outputs;
    piece.activation = elementwise(f.algorithm(), f.alpha, f.beta, data_type, results);
  }
  piece.x = channels_last(data_type, part.x());
  piece.y = channels_last(data_type, part.y());
  if (epilogue.has_bias) piece.bias = dense(data_type, {part.outputs});
  piece.rows = part.pixels();
  piece.columns = piece.pitch = part.outputs;
  piece.make = [=, x = piece.x, y = piece.y, bias = piece.bias](const Desc& weights,
                                                               bool is_whole) {
    Dims strides, gaps, before, after;
    for (const Axis& axis : part.axes) {
      strides.push_back(axis.stride);
      gaps.push_back(axis.dilation - 1);
      before.push_back(axis.pad_before);
      after.push_back(axis.pad_after);
    }
    Attributes attributes;
    if (is_whole) epilogue.add_to(attributes, y, !is_apart);
    dnnl_primitive_desc_t made;
    check(dnnl_convolution_forward_primitive_desc_create(
              &made, engine(), dnnl::kInference, dnnl::kDirectConvolution, x.get(), weights.get(),
              bias.get(), y.get(), strides.data(), gaps.data(), before.data(), after.data(),
              attributes.get()),
          "convolution");
    return Primitive(made);
  };
  return piece;
}

inline void Product::plan_convolution(Reader& spec) {
  Convolution whole(spec);
  whole.join_pixels();
  const int64_t rows = whole.axes[0].results(), outputs = whole.outputs;
  results_ = whole.pixels() * outputs;
  const int64_t parts = useful_parts(whole.operations(), threads_);
  const int64_t weights = outputs * whole.taps();
  const int64_t arrays = whole.pixels() * (outputs + whole.inputs);
  const int64_t row_of_x = std::accumulate(whole.axes.begin() + 1, whole.axes.end(), whole.inputs,
                                           [](int64_t n, const Axis& a) { return n * a.size; });
  const int64_t row_of_y = whole.pixels_beyond(1) * outputs;

  // Where weights outweigh the arrays, each thread is to read but its own part of them.
  if (whole.groups == 1 && outputs >= 32 * parts && weights > 4 * arrays && parts > 1) {
    for (int64_t i = 0; i < parts; ++i) {
      auto [first, last] = share(outputs / 16, i, parts);
      Convolution part = whole;
      part.outputs = i + 1 == parts ? outputs - first * 16 : (last - first) * 16;
      Piece piece = piece_of(part, data_type_, epilogue_);
      piece.bias_at = piece.y_at = first * 16;
      piece.pitch = outputs;
      piece.read(add_weights_for(piece, dense(data_type_, part.weights()),
                                 first * 16 * whole.taps()));
      pieces_.push_back(std::move(piece));
    }
    return;
  }
  const int64_t bands = std::min(parts / std::gcd(parts, whole.batch), rows);
  const int64_t images = bands > 1 ? 1 : (whole.batch + parts - 1) / parts;
  for (int64_t image = 0; image < whole.batch; image += images) {
    for (int64_t band = 0; band < bands; ++band) {
      auto [first, last] = share(rows, band, bands);
      auto [axis, begin] = whole.axes[0].part(first, last);
      Convolution part = whole;
      part.axes[0] = axis;
      part.batch = std::min(images, whole.batch - image);
      Piece piece = piece_of(part, data_type_, epilogue_);
      piece.x_at = (image * whole.axes[0].size + begin) * row_of_x;
      piece.y_at = (image * rows + first) * row_of_y;
      pieces_.push_back(std::move(piece));
    }
  }
  const Weights& packed =
      add_weights_for(pieces_.front(), dense(data_type_, whole.weights()), 0);
  for (Piece& piece : pieces_) piece.read(packed);
}

}  // namespace sardonyx
