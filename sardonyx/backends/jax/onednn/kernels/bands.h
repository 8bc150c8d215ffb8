// Convolutions in turn, for a band of rows at a time.
#pragma once

#include <map>

#include "convolution.h"

namespace sardonyx {

// Each but the first reads the result of the one before, which nothing else reads. A band of rows
// of the last one goes through all of them, so that what lies between is still in the processor's
// cache when it is read, and threads meet once and not after each. Rows at the border of two bands
// are computed for both.
class Bands {
 public:
  struct Part {
    Convolution convolution;
    std::shared_ptr<const Product> product;
  };

  // Empty where it gains nothing, or oneDNN has no kernel for such parts.
  static std::shared_ptr<const Bands> of(const std::vector<Part>& parts) {
    try {
      auto bands = std::shared_ptr<Bands>(new Bands(parts));
      return bands->bands_.empty() ? nullptr : bands;
    } catch (const std::runtime_error&) {
      return nullptr;
    }
  }

  size_t pieces() const { return images_ * bands_.size(); }

  void list_products(std::vector<const Product*>& found) const {
    for (const auto& each : products_) each->list_products(found);
  }

  // `whole` are the arrays of the convolutions. Of those in between there are none.
  void run_piece(size_t piece, const Product::Pointers* whole) const {
    const size_t image = piece / bands_.size(), last = products_.size() - 1;
    const Band& band = bands_[piece % bands_.size()];
    std::byte* between = scratch<For::kBand>(between_bytes_);
    const std::byte* x = whole[0].x + image * x_bytes_ + band.x_at;
    const size_t y_at = image * y_bytes_ + band.y_at;
    for (size_t i = 0; i <= last; ++i) {
      auto* addend = i == last && whole[i].addend ? whole[i].addend + y_at : nullptr;
      std::byte* y = i == last ? whole[i].y + y_at : between + between_at_[i];
      products_[i]->run_piece(band.kind, {x, whole[i].weights, whole[i].bias, addend, y});
      x = y;
    }
  }

 private:
  // Of the processor's second cache, which weights and other arrays need too.
  static constexpr size_t kBetween = size_t{1} << 20;
  // Operations beyond those that are needed: as many as take the time of what is saved.
  static constexpr double kMostWork = 1.03, kMostWorkOfLarge = 1.1;

  struct Band {
    size_t kind;
    // Bytes from where an image begins.
    size_t x_at, y_at;
  };
  // A band's part of each convolution, and its first row of the input and of the result.
  struct Cut {
    std::vector<Convolution> parts;
    int64_t x_row, y_row;
  };

  explicit Bands(const std::vector<Part>& parts) {
    const Convolution &first = parts.front().convolution, &last = parts.back().convolution;
    item_ = item_bytes(parts.front().product->data_type());
    images_ = first.batch;
    x_bytes_ = bytes_of_rows(first.inputs, first.axes, &Axis::size);
    y_bytes_ = last.pixels() / images_ * last.outputs * item_;

    double operations = 0;
    int64_t weights = 0, between = 0;
    for (const Part& part : parts) {
      operations += part.convolution.operations();
      weights += part.convolution.taps() * part.convolution.outputs;
      if (&part != &parts.back()) between += part.product->result_bytes() / images_;
    }
    // Each band reads all weights.
    if (weights * item_ > between) return;

    const int64_t rows = last.axes[0].results();
    const int64_t threads = useful_parts(operations, parts.front().product->threads());
    const int64_t apart = threads / std::gcd(threads, images_);
    for (int64_t count = apart; count <= rows; count += apart) {
      const std::vector<Cut> cuts = cut(parts, count);
      const bool fits = between_bytes(cuts) <= kBetween;
      if (!fits && count + apart <= rows / 3) continue;
      const double most = between > int64_t{kBetween} ? kMostWorkOfLarge : kMostWork;
      if (fits && work(cuts) * images_ <= most * operations) plan(parts, cuts);
      return;
    }
  }

  size_t bytes_of_rows(int64_t channels, const std::vector<Axis>& axes, int64_t Axis::*size) const {
    size_t bytes = channels * item_;
    for (const Axis& axis : axes) bytes *= axis.*size;
    return bytes;
  }

  // From the last one back: the rows that each must have for the one behind it.
  static std::vector<Cut> cut(const std::vector<Part>& parts, int64_t count) {
    std::vector<Cut> cuts;
    for (int64_t i = 0; i < count; ++i) {
      auto [from, to] = share(parts.back().convolution.axes[0].results(), i, count);
      Cut cut{{}, 0, from};
      for (size_t at = parts.size(); at-- > 0;) {
        Convolution part = parts[at].convolution;
        auto [axis, begin] = part.axes[0].part(from, to);
        part.axes[0] = axis;
        part.batch = 1;
        from = cut.x_row = begin;
        to = begin + axis.size;
        cut.parts.insert(cut.parts.begin(), part);
      }
      cuts.push_back(std::move(cut));
    }
    return cuts;
  }

  size_t between_bytes(const std::vector<Cut>& cuts) const {
    size_t most = 0;
    for (const Cut& cut : cuts) {
      size_t bytes = 0;
      for (size_t i = 0; i + 1 < cut.parts.size(); ++i) bytes += bytes_of_result(cut.parts[i]);
      most = std::max(most, bytes);
    }
    return most;
  }

  size_t bytes_of_result(const Convolution& part) const {
    return aligned(part.pixels() * part.outputs * item_);
  }

  static double work(const std::vector<Cut>& cuts) {
    double operations = 0;
    for (const Cut& cut : cuts) {
      for (const Convolution& part : cut.parts) operations += part.operations();
    }
    return operations;
  }

  // Bands of the same sizes and paddings are of one kind.
  void plan(const std::vector<Part>& parts, const std::vector<Cut>& cuts) {
    const Convolution &first = parts.front().convolution, &last = parts.back().convolution;
    const size_t x_row = x_bytes_ / first.axes[0].size, y_row = y_bytes_ / last.axes[0].results();
    std::map<std::vector<int64_t>, size_t> kinds;
    std::vector<std::vector<Placed>> pieces(parts.size());
    between_at_.resize(parts.size());
    for (const Cut& cut : cuts) {
      std::vector<int64_t> key;
      for (const Convolution& part : cut.parts) {
        const Axis& axis = part.axes[0];
        key.insert(key.end(), {axis.size, axis.pad_before, axis.pad_after});
      }
      auto [kind, is_new] = kinds.emplace(std::move(key), kinds.size());
      bands_.push_back({kind->second, cut.x_row * x_row, cut.y_row * y_row});
      for (size_t i = 0; is_new && i < parts.size(); ++i) {
        Convolution part = cut.parts[i];
        part.join_pixels();
        pieces[i].push_back({parts[i].product->part(part)});
      }
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      products_.push_back(std::make_shared<const Product>(*parts[i].product, std::move(pieces[i])));
      between_at_[i] = between_bytes_;
      size_t most = 0;
      for (const Cut& cut : cuts) most = std::max(most, bytes_of_result(cut.parts[i]));
      if (i + 1 < parts.size()) between_bytes_ += most;
    }
  }

  int64_t item_;
  size_t images_, x_bytes_, y_bytes_, between_bytes_ = 0;
  std::vector<std::shared_ptr<const Product>> products_;
  std::vector<size_t> between_at_;
  std::vector<Band> bands_;
};

}  // namespace sardonyx
