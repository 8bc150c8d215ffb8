// Products of which each but the last is read by later ones alone: one call, and one space.
#pragma once

#include "product.h"
#include "space.h"

namespace sardonyx {

class Chain {
 public:
  // How many arrays come from outside, how many products there are, and for each of these: which
  // arrays it reads as `x` and as addend (or -1), and its own specification, with its length ahead.
  // Arrays are numbered: first those from outside, then the results in turn.
  explicit Chain(Spec numbers) {
    const int64_t* at = numbers.begin();
    arrays_ = *at++;
    const int64_t count = *at++;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t x = at[0], addend = at[1], length = at[2];
      at += 3;
      links_.push_back({planned<Product>(Spec(at, length)), x, addend, 0});
      pieces_.push_back(links_.back().product->pieces());
      at += length;
    }
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
    for_each_piece(pool, pieces_, [&](size_t stage, size_t piece) {
      links_[stage].product->run_piece(piece, whole[stage]);
    });
  }

 private:
  struct Link {
    std::shared_ptr<const Product> product;
    int64_t x, addend;
    // Where in the space its result begins.
    size_t at;
  };

  // Each result gets the first gap between those that are still read.
  void plan_space() {
    struct Block {
      size_t begin, end, last_read;
    };
    std::vector<Block> blocks;
    for (size_t i = 0; i + 1 < links_.size(); ++i) {
      std::erase_if(blocks, [&](const Block& block) { return block.last_read < i; });
      const size_t bytes = aligned(links_[i].product->result_bytes());
      size_t begin = 0, at = 0;
      for (; at < blocks.size() && blocks[at].begin < begin + bytes; ++at) begin = blocks[at].end;
      blocks.insert(blocks.begin() + at, {begin, begin + bytes, last_read(arrays_ + i)});
      links_[i].at = begin;
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

  int64_t arrays_;
  std::vector<Link> links_;
  std::vector<size_t> pieces_;
  size_t space_bytes_ = 0;
};

}  // namespace sardonyx
