// Products with weights: matrix products and convolutions, in pieces that run side by side.
#pragma once

#include <mutex>
#include <optional>
#include <utility>

#include "panels.h"
#include "winograd.h"
#include "work.h"

namespace sardonyx {

// The weights of one piece or more, as they come and as primitives read them.
struct Weights {
  Desc from;
  int64_t from_at;
  Desc to;
  size_t to_at;
};

inline std::optional<Dims> form_of(const std::vector<Weights>& weights) {
  Dims numbers;
  try {
    for (const Weights& part : weights) {
      numbers.insert(numbers.end(), {part.from_at, static_cast<int64_t>(part.to_at)});
      describe(part.from, numbers);
      describe(part.to, numbers);
    }
  } catch (const std::runtime_error&) {
    return std::nullopt;
  }
  return numbers;
}

// What one of the threads computes at a time.
struct Piece {
  // Makes the primitive for weights of this form, with the epilogue or with the bias alone.
  std::function<Primitive(const Desc& weights, bool is_whole)> make;
  Desc x, bias, y;
  // Its results are rows, of which each begins `pitch` after the one before.
  int64_t rows, columns, pitch;
  // Rows of zeros behind those of `x`, whose results nobody reads.
  int64_t rows_more = 0;
  // The activation, if it runs by itself after panels.
  std::optional<Primitive> activation;
  // Its weights as they are packed, and what reads them: a primitive with the epilogue, or panels.
  Desc weights;
  std::optional<Primitive> whole;
  std::optional<Panels> panels;

  // Chooses the form of the weights, for which there are none yet.
  void choose(const Desc& given) {
    whole = make(given, true);
    weights = whole->desc(dnnl::kWeightsDesc);
  }
  void read(const Desc& packed) {
    weights = packed;
    whole = make(packed, true);
  }
  // Computes it without oneDNN. A long activation runs apart.
  void use(const Panels& found, const Desc& packed, const Epilogue& epilogue) {
    weights = packed;
    panels = found;
    if (!epilogue.activation.is_long()) return;
    const Activation& f = epilogue.activation;
    activation = elementwise(f.algorithm(), f.alpha, f.beta, kFloat32, rows * columns);
  }
  void generate() const {
    if (whole) whole->generate();
    if (activation) activation->generate();
  }
  size_t scratch_bytes() const {
    return std::max(whole ? whole->scratch_bytes() : 0, activation ? activation->scratch_bytes() : 0);
  }
  // Without the epilogue; most are never needed.
  Primitive bare() const {
    std::lock_guard<std::mutex> lock(making_bare_);
    if (!bare_) bare_ = make(weights, false);
    return *bare_;
  }

 private:
  mutable std::mutex making_bare_;
  mutable std::optional<Primitive> bare_;
};

// A piece, and where it begins in the arrays, in elements, and in the packed weights, in bytes.
struct Placed {
  std::shared_ptr<const Piece> piece;
  int64_t x_at = 0, bias_at = 0, y_at = 0;
  size_t weights_at = 0;
};

// Waking a thread takes longer than what it would do for less.
inline int64_t useful_parts(double operations, int64_t threads) {
  constexpr double kWorthAThread = 2e6;
  return std::clamp<int64_t>(operations / kWorthAThread, 1, threads);
}

struct Convolution;
class Pieces;
struct Matrix;
struct MatrixForm;

class Product : public Kernel {
 public:
  explicit Product(Spec spec);

  // The same product in other pieces, which are parts of `like`.
  Product(const Product& like, std::vector<Placed> pieces)
      : threads_(like.threads_),
        data_type_(like.data_type_),
        item_(like.item_),
        epilogue_(like.epilogue_),
        pieces_(std::move(pieces)),
        weights_(like.weights_) {
    check_primitives();
  }

  const Epilogue& epilogue() const { return epilogue_; }
  size_t packed_bytes() const { return packed_bytes_; }
  size_t result_bytes() const { return results_ * item_; }
  size_t pieces() const { return winograd_ ? winograd_->pieces() : pieces_.size(); }
  // Whether it is made of pieces that compute any rows of its results.
  bool has_parts() const { return !winograd_; }
  int64_t threads() const { return threads_; }
  int data_type() const { return data_type_; }

  // The piece for a part of the convolution; throws where there is none.
  std::shared_ptr<const Piece> part(const Convolution& convolution) const;

  void pack(const std::byte* weights, std::byte* packed) const {
    if (winograd_) return winograd_->pack(reinterpret_cast<const float*>(weights), packed);
    OneThread one_thread;
    std::call_once(ordering_, [&] {
      for (const Weights& part : weights_) orders_.push_back(reordering(part.from, part.to));
    });
    for (size_t i = 0; i < weights_.size(); ++i) {
      const Weights& part = weights_[i];
      const Primitive& reorder = orders_[i];
      reorder(scratch(reorder.scratch_bytes()),
              {{dnnl::kSource, part.from, weights + part.from_at * item_},
               {dnnl::kDestination, part.to, packed + part.to_at}});
    }
  }

  // The same for products that read the same packed weights; none where only oneDNN knows them.
  std::optional<Dims> form() const;

  // Generates its code ahead of its first run.
  void generate() const {
    OneThread one_thread;
    for (const Placed& each : pieces_) each.piece->generate();
  }
  void list_products(std::vector<const Product*>& found) const override { found.push_back(this); }

  // The whole arrays of a product; the bias and the addend may be null.
  struct Pointers {
    const std::byte *x, *weights, *bias, *addend;
    std::byte* y;
  };

  // In the order of these.
  Work work(Arrays at, std::byte*) const override {
    const Pointers whole{at[0], at[1], at[2], at[3], at[4]};
    return {threads_, {pieces()}, [=, this](size_t, size_t i) { run_piece(i, whole); }};
  }

  void run_piece(size_t i, Pointers whole) const {
    if (winograd_) {
      auto floats = [](const std::byte* bytes) { return reinterpret_cast<const float*>(bytes); };
      return winograd_->run_piece(i, {floats(whole.x), whole.weights, floats(whole.bias),
                                      floats(whole.addend), reinterpret_cast<float*>(whole.y)});
    }
    const Placed& at = pieces_[i];
    compute(*at.piece, {whole.x + at.x_at * item_, whole.weights + at.weights_at,
                        whole.bias ? whole.bias + at.bias_at * item_ : nullptr,
                        whole.addend ? whole.addend + at.y_at * item_ : nullptr,
                        whole.y + at.y_at * item_});
  }

 private:
  Product(Spec numbers, Reader spec);

  // Of convolution.h and matrix.h. They add pieces; weights are shared by all, or one for each.
  void plan_convolution(Spec numbers, Reader& spec);
  bool plan_outputs(Convolution whole, int64_t parts);
  void plan_images(const Convolution& whole, int64_t parts);
  bool plan_winograd(const Convolution& whole, int64_t parts);
  void plan_matrix(Reader& spec);
  bool plan_panels(const Matrix& whole, const MatrixForm& form, int64_t parts);
  void plan_rows(const Matrix& whole, const MatrixForm& form, int64_t parts);
  void plan_columns(const Matrix& whole, const MatrixForm& form, int64_t parts);

  const Weights& add_weights(const Desc& from, int64_t from_at, const Desc& to) {
    weights_.push_back({from, from_at, to, packed_bytes_});
    packed_bytes_ += aligned(bytes_of(to));
    return weights_.back();
  }

  void check_primitives() const {
    if (winograd_ || pieces_.front().piece->panels) return;
    const Primitive& first = *pieces_.front().piece->whole;
    if (first.is_slow()) throw std::runtime_error("oneDNN has no fast kernel");
    for (const Placed& each : pieces_) {
      if (each.piece->whole->implementation() != first.implementation()) {
        throw std::runtime_error("the pieces differ in their kernels");
      }
    }
  }

  void compute(const Piece& piece, Pointers at) const {
    OneThread one_thread;
    const bool is_apart = piece.pitch != piece.columns && (!piece.panels || piece.activation);
    const bool is_staged = piece.rows_more || is_apart;
    const size_t of_x = piece.rows_more ? aligned(bytes_of(piece.x)) : 0;
    const size_t of_y = is_staged ? aligned(bytes_of(piece.y)) : 0;
    const size_t of_addend = at.addend ? of_y : 0;
    std::byte* space = scratch(of_x + of_y + of_addend + piece.scratch_bytes());
    auto take = [&](size_t bytes) { return std::exchange(space, space + bytes); };
    Pointers staged = at;
    if (of_x) staged.x = with_more_rows(piece, at.x, take(of_x));
    if (of_y) staged.y = take(of_y);
    if (of_addend) staged.addend = staged_addend(piece, at.addend, take(of_addend));
    FaultWatch watch(FaultWatch::kInvalid);
    multiply(piece, staged, is_staged ? piece.columns : piece.pitch, space);
    if (piece.activation) {
      const Desc numbers = piece.activation->desc(dnnl::kSourceDesc);
      (*piece.activation)(space, {{dnnl::kSource, numbers, staged.y},
                                  {dnnl::kDestination, numbers, staged.y}});
    }
    const bool is_exact = piece.panels && !piece.activation;
    if (epilogue_.activation && !is_exact && watch.saw()) run_exactly(piece, staged);
    if (is_staged) copy_rows(piece, staged.y, piece.columns, at.y, piece.pitch);
  }

  void multiply(const Piece& piece, Pointers at, int64_t pitch, std::byte* space) const {
    if (piece.panels) {
      auto floats = [](const std::byte* bytes) { return reinterpret_cast<const float*>(bytes); };
      piece.panels->run({floats(at.x), floats(at.weights), floats(at.bias), floats(at.addend),
                         reinterpret_cast<float*>(at.y), piece.rows, pitch});
      return;
    }
    (*piece.whole)(space, {{dnnl::kSource, piece.x, at.x},
                           {dnnl::kWeights, piece.weights, at.weights},
                           {dnnl::kBias, piece.bias, at.bias},
                           {epilogue_.addend_argument(), piece.y, at.addend},
                           {dnnl::kDestination, piece.y, at.y}});
  }

  const std::byte* with_more_rows(const Piece& piece, const std::byte* x, std::byte* to) const {
    const size_t bytes = bytes_of(piece.x) / (piece.rows + piece.rows_more) * piece.rows;
    std::memcpy(to, x, bytes);
    std::memset(to + bytes, 0, bytes_of(piece.x) - bytes);
    return to;
  }

  const std::byte* staged_addend(const Piece& piece, const std::byte* addend, std::byte* to) const {
    copy_rows(piece, addend, piece.pitch, to, piece.columns);
    const size_t bytes = piece.rows * piece.columns * item_;
    std::memset(to + bytes, 0, bytes_of(piece.y) - bytes);
    return to;
  }

  void run_exactly(const Piece& piece, Pointers at) const {
    const Primitive bare = piece.bare();
    Memory space = allocated(bare.scratch_bytes());
    bare(space.get(), {{dnnl::kSource, piece.x, at.x},
                       {dnnl::kWeights, piece.weights, at.weights},
                       {dnnl::kBias, piece.bias, at.bias},
                       {dnnl::kDestination, piece.y, at.y}});
    epilogue_.apply(data_type_, piece.rows * piece.columns, at.addend, at.y);
  }

  void copy_rows(const Piece& piece, const std::byte* from, int64_t from_pitch, std::byte* to,
                 int64_t to_pitch) const {
    for (int64_t row = 0; row < piece.rows; ++row) {
      std::memcpy(to + row * to_pitch * item_, from + row * from_pitch * item_,
                  piece.columns * item_);
    }
  }

  int64_t threads_;
  int data_type_;
  int64_t item_;
  Epilogue epilogue_;
  std::vector<Placed> pieces_;
  std::vector<Weights> weights_;
  // What packs each of them: layers of the same shapes have one product.
  mutable std::once_flag ordering_;
  mutable std::vector<Primitive> orders_;
  size_t packed_bytes_ = 0;
  int64_t results_ = 0;
  // Of a convolution.
  std::shared_ptr<const Pieces> of_any_batch_;
  // What computes it in place of pieces, if anything.
  std::optional<Winograd> winograd_;
};

}  // namespace sardonyx
