// Convolutions: arrays have their channels last in memory, weights come with their taps last.
#pragma once

#include <array>
#include <bit>
#include <map>
#include <numeric>
#include <optional>

#include "product.h"

namespace sardonyx {

struct Axis {
  int64_t size, kernel, stride, pad_before, pad_after, dilation;

  static Axis read(Reader& spec) {
    Axis axis;
    for (int64_t* field : {&axis.size, &axis.kernel, &axis.stride, &axis.pad_before,
                           &axis.pad_after, &axis.dilation}) {
      *field = spec.next();
    }
    return axis;
  }

  int64_t reach() const { return (kernel - 1) * dilation + 1; }
  bool is_single() const { return size == 1 && kernel == 1 && !pad_before && !pad_after; }
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
  // The same for all parts of a convolution, which read weights in one form.
  bool has_few_weights;

  explicit Convolution(Reader& spec) {
    axes.resize(spec.next());
    for (int64_t* field : {&batch, &inputs, &outputs, &groups}) *field = spec.next();
    for (Axis& axis : axes) axis = Axis::read(spec);
    // Threads share the first axis. One of a single pixel is there for want of another form only.
    while (axes.size() > 1 && axes.front().is_single()) axes.erase(axes.begin());
    constexpr int64_t kFewWeights = 1 << 15;
    has_few_weights = outputs * taps() <= kFewWeights;
  }

  // Where the specification that follows has its batch.
  static const int64_t* batch_at(const Reader& spec) { return spec.at() + 1; }

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
  int64_t inputs_in_all() const {
    return std::accumulate(axes.begin(), axes.end(), inputs * batch,
                           [](int64_t count, const Axis& axis) { return count * axis.size; });
  }
  // Results for each channel.
  int64_t pixels() const {
    return std::accumulate(axes.begin(), axes.end(), batch, [](int64_t count, const Axis& axis) {
      return count * axis.results();
    });
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

// With AVX-512, oneDNN makes convolutions of many small products of matrices. For few weights its
// other code is as fast, and written in a third of the time: 1 ms in place of 3 for 1000 pixels in a
// row. Whether the primitive has that code now.
inline bool takes_shorter_code(dnnl_primitive_desc_t primitive) {
  while (implementation_of(primitive).starts_with("brgconv:")) {
    if (dnnl_primitive_desc_next_impl(primitive) != dnnl::kSuccess) return false;
  }
  return implementation_of(primitive).starts_with("jit:");
}

inline std::shared_ptr<Piece> piece_of(const Convolution& part, int data_type,
                                       const Epilogue& epilogue) {
  auto made = std::make_shared<Piece>();
  Piece& piece = *made;
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
    auto described = [&] {
      dnnl_primitive_desc_t primitive;
      check(dnnl_convolution_forward_primitive_desc_create(
                &primitive, engine(), dnnl::kInference, dnnl::kDirectConvolution, x.get(),
                weights.get(), bias.get(), y.get(), strides.data(), gaps.data(), before.data(),
                after.data(), attributes.get()),
            "convolution");
      return primitive;
    };
    dnnl_primitive_desc_t primitive = described();
    const bool is_for_shorter_code = has_avx512() && data_type == kFloat32 && part.has_few_weights;
    if (is_for_shorter_code && !takes_shorter_code(primitive)) {
      dnnl_primitive_desc_destroy(primitive);
      primitive = described();
    }
    return Primitive(primitive);
  };
  return made;
}

// What a piece computes, and where that begins in the arrays.
struct Share {
  Convolution part;
  int64_t x_at, y_at;
};

// How many images a piece takes at most: weights are to be read for more than a few pixels.
inline int64_t most_together(const Convolution& image) {
  constexpr int64_t kManyPixels = 256;
  int64_t count = 1;
  while (count * image.pixels() < kManyPixels) count *= 2;
  return count;
}

// Of so many images for each thread: pieces are not to become very many.
inline int64_t most_of_many(int64_t images) {
  constexpr uint64_t kManyPieces = 32;
  return std::bit_floor(std::max<uint64_t>(images / kManyPieces, 1));
}

// Where to cut a long axis, so that only short parts read far beyond its ends: to choose a kernel for
// those, oneDNN takes 10 us for each result. Empty where no part does.
inline std::vector<int64_t> cuts_at_ends(const Convolution& image) {
  constexpr int64_t kFar = 3, kLong = 256, kShort = 32;
  const Axis& axis = image.axes[0];
  const int64_t results = axis.results(), before = axis.pad_before, after = axis.pad_after;
  if (image.axes.size() > 1 || std::max(before, after) < kFar || results < kLong) return {};
  auto results_for = [&](int64_t pad) {
    return pad ? std::max((pad + axis.stride - 1) / axis.stride, kShort) : 0;
  };
  const int64_t first = results_for(before), last = results - results_for(after);
  if (first >= last) return {};
  return {first, last};
}

// For each thread the same. oneDNN takes milliseconds to write the code for another number of
// images, so that pieces take a power of two of them, and most new batches need no new code. Images
// beyond what all threads have are divided among them in bands of rows.
inline std::vector<Share> shares(const Convolution& whole, int64_t threads, int64_t most,
                                 bool has_ends_apart = true) {
  std::vector<Share> shares;
  Convolution image = whole;
  image.batch = 1;
  const int64_t of_x = image.inputs_in_all(), of_y = image.pixels() * image.outputs;
  std::vector<int64_t> ends;
  if (has_ends_apart) ends = cuts_at_ends(image);
  int64_t images = 0;

  for (int64_t count = ends.empty() ? most : 0; count > 0; count /= 2) {
    Convolution part = whole;
    part.batch = count;
    part.join_pixels();
    for (; (whole.batch - images) / threads >= count; images += count) {
      shares.push_back({part, images * of_x, images * of_y});
    }
  }
  image.join_pixels();
  const Axis rows = image.axes[0];
  const int64_t left = whole.batch - images;
  const int64_t bands = std::min(threads / std::gcd(threads, left), rows.results());
  std::vector<int64_t> cuts = ends;
  for (int64_t band = 0; band < bands; ++band) {
    cuts.push_back(share(rows.results(), band, bands).first);
  }
  cuts.push_back(rows.results());
  std::ranges::sort(cuts);
  for (; images < whole.batch; ++images) {
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      if (cuts[i] == cuts[i + 1]) continue;
      auto [axis, begin] = rows.part(cuts[i], cuts[i + 1]);
      Convolution part = image;
      part.axes[0] = axis;
      shares.push_back({part, images * of_x + begin * (of_x / rows.size),
                        images * of_y + cuts[i] * (of_y / rows.results())});
    }
  }
  return shares;
}

inline const Convolution& largest_of(const std::vector<Share>& shares) {
  auto pixels = [](const Share& share) { return share.part.pixels(); };
  return std::ranges::max_element(shares, {}, pixels)->part;
}

// The pieces of a convolution, whatever its batch. All of them read the weights in one form, and each
// is described once. For a few sizes oneDNN has no kernel of the same kind that reads this form.
class Pieces {
 public:
  // The specification of the product for one image.
  explicit Pieces(Spec spec) : Pieces(Reader(spec)) {}

  // The weights as they come, as they are packed, and both in numbers.
  const Desc& given() const { return given_; }
  const Desc& packed() const { return packed_; }
  const std::optional<Dims>& form() const { return form_; }

  // What differs from the whole convolution is how many images and which rows the part takes. Throws
  // where there is none.
  std::shared_ptr<const Piece> of(const Convolution& part) const {
    const Axis& rows = part.axes[0];
    const Key key{part.batch, rows.size, rows.pad_before, rows.pad_after};
    std::lock_guard<std::mutex> lock(making_);
    auto found = made_.find(key);
    if (found == made_.end()) found = made_.emplace(key, made(part)).first;
    return found->second;
  }

  // One image in shares that there are in any case.
  const std::vector<Share>& image() const { return image_; }

 private:
  using Key = std::array<int64_t, 4>;

  explicit Pieces(Reader spec) {
    OneThread one_thread;
    const int64_t threads = spec.next();
    data_type_ = spec.next();
    epilogue_ = Epilogue(spec);
    spec.next();  // That it is a convolution.
    const Convolution image(spec);
    image_ = shares(image, 1, 1);
    given_ = dense(data_type_, image_.front().part.weights());
    const auto bands = shares(image, useful_parts(image.operations(), threads), 1);
    choose_form(image_);
    if (!reads(bands)) {
      // Without AVX-512, oneDNN chooses for some images what it cannot read for their bands.
      choose_form(bands);
      if (reads(bands)) {
        image_ = bands;
      } else {
        image_ = shares(image, 1, 1, false);
        choose_form(image_);
      }
    }
    form_ = form_of({{given_, 0, packed_, 0}});
  }

  // The one that oneDNN chooses for the largest part.
  void choose_form(const std::vector<Share>& shares) {
    const Convolution& part = largest_of(shares);
    const auto piece = piece_of(part, data_type_, epilogue_);
    piece->choose(in_any_form(data_type_, part.weights()));
    packed_ = piece->weights;
    implementation_ = piece->whole->implementation();
    made_.clear();
  }

  bool reads(const std::vector<Share>& shares) const {
    try {
      for (const Share& share : shares) of(share.part);
    } catch (const std::runtime_error&) {
      return false;
    }
    return true;
  }

  std::shared_ptr<const Piece> made(const Convolution& part) const {
    OneThread one_thread;
    const auto piece = piece_of(part, data_type_, epilogue_);
    piece->read(packed_);
    if (piece->whole->implementation() != implementation_) {
      throw std::runtime_error("it takes another kernel");
    }
    return piece;
  }

  int data_type_;
  Epilogue epilogue_;
  std::vector<Share> image_;
  Desc given_, packed_;
  std::optional<Dims> form_;
  std::string implementation_;
  mutable std::mutex making_;
  mutable std::map<Key, std::shared_ptr<const Piece>> made_;
};

// False where it does not serve the convolution.
inline bool Product::plan_winograd(const Convolution& whole, int64_t parts) {
  auto is_served = [](const Axis& axis) {
    return axis.kernel == 3 && axis.stride == 1 && axis.dilation == 1;
  };
  const bool are_served = std::ranges::all_of(whole.axes, is_served);
  if (whole.axes.size() != 2 || whole.groups != 1 || !are_served) return false;
  const Axis &rows = whole.axes[0], &columns = whole.axes[1];
  const Winograd::Sizes sizes{.images = whole.batch,
                              .height = rows.size,
                              .width = columns.size,
                              .inputs = whole.inputs,
                              .outputs = whole.outputs,
                              .top = rows.pad_before,
                              .left = columns.pad_before,
                              .rows = rows.results(),
                              .columns = columns.results()};
  if (!Winograd::serves(sizes, data_type_, epilogue_)) return false;
  winograd_.emplace(sizes, epilogue_, parts);
  packed_bytes_ = winograd_->packed_bytes();
  return true;
}

inline void Product::plan_convolution(Spec numbers, Reader& spec) {
  Dims one_image(numbers.begin(), numbers.end());
  one_image[Convolution::batch_at(spec) - numbers.begin()] = 1;
  const Convolution whole(spec);
  results_ = whole.pixels() * whole.outputs;
  const int64_t parts = useful_parts(whole.operations(), threads_);
  if (plan_winograd(whole, parts)) return;
  of_any_batch_ = planned<Pieces>(Spec(one_image.data(), one_image.size()));
  add_weights(of_any_batch_->given(), 0, of_any_batch_->packed());

  const int64_t weights = whole.outputs * whole.taps();
  const int64_t arrays = whole.pixels() * (whole.outputs + whole.inputs);
  // Where weights outweigh the arrays, each thread is to read but its own part of them.
  if (whole.groups == 1 && parts > 1 && weights > 8 * arrays && plan_outputs(whole, parts)) return;
  plan_images(whole, parts);
}

// Each thread reads its own blocks of the packed weights. False where they cannot be divided so.
inline bool Product::plan_outputs(Convolution whole, int64_t parts) {
  const Desc& packed = of_any_batch_->packed();
  if (asked<int>(packed, dnnl::kFormatKind) != dnnl::kBlocked) return false;
  const Strides form(packed);
  const int64_t block = form.block_of(0), blocks = (whole.outputs + block - 1) / block;
  if (block == 1 || blocks < parts) return false;
  std::vector<Placed> pieces;
  whole.join_pixels();
  for (int64_t i = 0; i < parts; ++i) {
    auto [first, last] = share(blocks, i, parts);
    Convolution part = whole;
    part.outputs = std::min(last * block, whole.outputs) - first * block;
    const auto piece = piece_of(part, data_type_, epilogue_);
    piece->pitch = whole.outputs;
    piece->choose(in_any_form(data_type_, part.weights()));
    if (Strides(piece->weights) != form) return false;
    const size_t weights_at = first * form.steps[0] * item_;
    pieces.push_back({piece, 0, first * block, first * block, weights_at});
  }
  pieces_ = std::move(pieces);
  return true;
}

inline void Product::plan_images(const Convolution& whole, int64_t parts) {
  Convolution image = whole;
  image.batch = 1;
  const int64_t of_x = image.inputs_in_all(), of_y = image.pixels() * image.outputs;
  auto add = [&](const Share& share, int64_t before) {
    const int64_t x_at = before * of_x + share.x_at, y_at = before * of_y + share.y_at;
    pieces_.push_back({part(share.part), x_at, 0, y_at});
  };
  const int64_t together = std::max(most_together(image), most_of_many(whole.batch / parts));
  for (int64_t most : {together, int64_t{1}}) {
    try {
      for (const Share& share : shares(whole, parts, most)) add(share, 0);
      return;
    } catch (const std::runtime_error&) {
      // It takes another kernel for so many images, or so few rows.
      pieces_.clear();
    }
  }
  for (int64_t i = 0; i < whole.batch; ++i) {
    for (const Share& share : of_any_batch_->image()) add(share, i);
  }
}

inline std::shared_ptr<const Piece> Product::part(const Convolution& convolution) const {
  return of_any_batch_->of(convolution);
}

inline std::optional<Dims> Product::form() const {
  if (winograd_) return winograd_->form();
  return of_any_batch_ ? of_any_batch_->form() : form_of(weights_);
}

}  // namespace sardonyx
