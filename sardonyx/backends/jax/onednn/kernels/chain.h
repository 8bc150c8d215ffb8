// Products of which each but the last is read by later ones alone: one call, and one space.
#pragma once

#include "bands.h"
#include "space.h"

namespace sardonyx {

class Chain {
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
      link.convolution = convolution_of(spec);
      threads_ = std::max<size_t>(threads_, link.product->threads());
      links_.push_back(std::move(link));
    }
    plan_stages();
    plan_space();
  }

  // `next` returns the arguments in turn: the arrays, then the weight and bias of each product.
  template <class Pool>
  void run(Pool& pool, std::function<const std::byte*(bool is_there)> next, std::byte* y) const {
    const Space space(space_bytes_);
    std::vector<const std::byte*> arrays;
    for (int64_t i = 0; i < arrays_; ++i) arrays.push_back(next(true));
    for (const Link& link : links_) arrays.push_back(space.get() + link.at);
    std::vector<Product::Pointers> whole;
    for (const Link& link : links_) {
      auto* weights = next(true);
      auto* bias = next(link.product->epilogue().has_bias);
      auto* addend = link.addend < 0 ? nullptr : arrays[link.addend];
      whole.push_back({arrays[link.x], weights, bias, addend, space.get() + link.at});
    }
    whole.back().y = y;
    for_each_piece(pool, threads_, pieces_, [&](size_t i, size_t piece) {
      const Stage& stage = stages_[i];
      if (stage.bands) return stage.bands->run_piece(piece, &whole[stage.first]);
      links_[stage.first].product->run_piece(piece, whole[stage.first]);
    });
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
      if (link.addend >= 0) break;
      ++last;
    }
    return last;
  }

  // Each result gets the first gap between those that are still read.
  void plan_space() {
    struct Block {
      size_t begin, end, last_read;
    };
    std::vector<Block> blocks;
    for (const Stage& stage : stages_) {
      if (stage.last + 1 == links_.size()) break;
      std::erase_if(blocks, [&](const Block& block) { return block.last_read < stage.first; });
      const size_t bytes = aligned(links_[stage.last].product->result_bytes());
      size_t begin = 0, i = 0;
      for (; i < blocks.size() && blocks[i].begin < begin + bytes; ++i) begin = blocks[i].end;
      blocks.insert(blocks.begin() + i, {begin, begin + bytes, last_read(arrays_ + stage.last)});
      links_[stage.last].at = begin;
      space_bytes_ = std::max(space_bytes_, begin + bytes);
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
  size_t threads_ = 1, space_bytes_ = 0;
};

}  // namespace sardonyx
