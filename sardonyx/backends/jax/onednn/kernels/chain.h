// Products of which each but the last is read by later ones alone: one call, and one space.
#pragma once

#include "bands.h"
#include "space.h"

namespace sardonyx {

class Chain : public Kernel {
 public:
  // How many arrays come from outside, how many products there are, and for each of these: which
  // arrays it reads as `x` and as addend (or -1), and its own specification, with its length ahead.
  // Arrays are numbered: first those from outside, then the results in turn.
  explicit Chain(Spec numbers) {
    Reader at(numbers);
    arrays_ = at.next();
    const int64_t count = at.next();
    for (int64_t i = 0; i < count; ++i) {
      Link link{.x = at.next(), .addend = at.next()};
      const Spec spec = at.next_spec();
      link.product = planned<Product>(spec);
      if (link.product->has_parts()) link.convolution = convolution_of(spec);
      threads_ = std::max(threads_, link.product->threads());
      links_.push_back(std::move(link));
    }
    plan_stages();
    plan_space();
  }

  size_t space_bytes() const override { return plan_.bytes(); }

  void list_products(std::vector<const Product*>& found) const override {
    for (const Stage& stage : stages_) {
      if (stage.bands) stage.bands->list_products(found);
      else links_[stage.first].product->list_products(found);
    }
  }

  // Of the arrays from outside, then of the weight and, if it has one, the bias of each product, and
  // of the last results.
  Work work(Arrays next, std::byte* space) const override {
    std::vector<const std::byte*> arrays;
    for (int64_t i = 0; i < arrays_; ++i) arrays.push_back(*next++);
    for (const Link& link : links_) arrays.push_back(space + link.at);
    std::vector<Product::Pointers> whole;
    for (const Link& link : links_) {
      auto* weights = *next++;
      auto* bias = link.product->epilogue().has_bias ? *next++ : nullptr;
      auto* addend = link.addend < 0 ? nullptr : arrays[link.addend];
      whole.push_back({arrays[link.x], weights, bias, addend, space + link.at});
    }
    whole.back().y = *next;
    return {threads_, pieces_, [this, whole = std::move(whole)](size_t i, size_t piece) {
              const Stage& stage = stages_[i];
              if (stage.bands) return stage.bands->run_piece(piece, &whole[stage.first]);
              links_[stage.first].product->run_piece(piece, whole[stage.first]);
            }};
  }

 private:
  struct Link {
    int64_t x, addend;
    std::shared_ptr<const Product> product;
    std::optional<Convolution> convolution;
    // Where in the space its result begins.
    size_t at = 0;
  };
  // Links from the first to the last, in bands if there are several.
  struct Stage {
    size_t first, last;
    std::shared_ptr<const Bands> bands;
  };

  // Longer ones compute too many rows twice.
  static constexpr size_t kMostInBands = 3;

  void plan_stages() {
    for (size_t first = 0; first < links_.size();) {
      Stage stage{first, first, nullptr};
      for (size_t last = banded_up_to(first); last > first && !stage.bands; --last) {
        std::vector<Bands::Part> parts;
        for (size_t i = first; i <= last; ++i) {
          parts.push_back({*links_[i].convolution, links_[i].product});
        }
        if (auto bands = Bands::of(parts)) stage = {first, last, bands};
      }
      pieces_.push_back(stage.bands ? stage.bands->pieces() : links_[first].product->pieces());
      stages_.push_back(stage);
      first = stage.last + 1;
    }
  }

  // The last of the convolutions from the first on of which each reads the one before it alone.
  size_t banded_up_to(size_t first) const {
    size_t last = first;
    while (last + 1 < links_.size() && last + 1 < first + kMostInBands) {
      const Link &link = links_[last], &next = links_[last + 1];
      const int64_t result = arrays_ + last;
      const bool is_alone = last_read(result) == last + 1 && reads(result) == 1;
      if (!link.convolution || !next.convolution || !is_alone || next.x != result) break;
      // Of an image of one row, some have given up that axis, and their bands lie along the other.
      if (link.convolution->axes.size() != next.convolution->axes.size()) break;
      if (link.addend >= 0) break;
      ++last;
    }
    return last;
  }

  void plan_space() {
    for (const Stage& stage : stages_) {
      if (stage.last + 1 == links_.size()) break;
      Link& link = links_[stage.last];
      const size_t last_use = last_read(arrays_ + stage.last);
      link.at = plan_.place(link.product->result_bytes(), stage.first, last_use);
    }
  }

  size_t last_read(int64_t array) const {
    size_t last = 0;
    for (size_t i = 0; i < links_.size(); ++i) {
      if (links_[i].x == array || links_[i].addend == array) last = i;
    }
    return last;
  }

  int64_t reads(int64_t array) const {
    int64_t count = 0;
    for (const Link& link : links_) count += (link.x == array) + (link.addend == array);
    return count;
  }

  int64_t arrays_;
  std::vector<Link> links_;
  std::vector<Stage> stages_;
  std::vector<size_t> pieces_;
  int64_t threads_ = 1;
  SpacePlan plan_;
};

}  // namespace sardonyx
