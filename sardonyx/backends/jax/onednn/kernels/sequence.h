// Kernels one after the other in one call, whose threads stay awake from the first to the last.
#pragma once

#include "attention.h"
#include "chain.h"
#include "copy.h"
#include "points.h"
#include "rows.h"
#include "space.h"
#include "stack.h"
#include "sums.h"
#include "windows.h"

namespace sardonyx {

enum class Kind : int64_t {
  kProduct,
  kChain,
  kStack,
  kAttention,
  kRows,
  kWindows,
  kCopy,
  kPoints,
  kSums,
  kSequence,
};

std::shared_ptr<const Kernel> kernel_of(Kind kind, Spec spec);

// What they read of each other lies in memory that the next call gets again.
class Sequence : public Kernel {
 public:
  // How many arrays come from outside, how many lie between the kernels, with the bytes of each of
  // these, and how many kernels there are. Each has its kind, its specification and its arrays, with
  // the length of both ahead: the number of an array and a place in it, in bytes; or -1 and any
  // place for none. Those from outside are numbered first.
  explicit Sequence(Spec numbers) {
    Reader at(numbers);
    outside_ = at.next();
    between_.resize(at.next());
    for (Between& each : between_) each.bytes = at.next();
    steps_.resize(at.next());
    for (Step& step : steps_) {
      const auto kind = static_cast<Kind>(at.next());
      step.kernel = kernel_of(kind, at.next_spec());
      step.arrays.resize(at.next());
      for (Operand& array : step.arrays) array = {.number = at.next(), .at = at.next()};
    }
    plan_space();
  }

  size_t space_bytes() const override { return plan_.bytes(); }

  Work work(Arrays outside, std::byte* space) const override {
    Work all{1, {}, nullptr};
    // The kernel that a stage is of, and which of its stages it is.
    std::vector<std::pair<Stages::RunPiece, size_t>> stages;
    for (const Step& step : steps_) {
      std::vector<std::byte*> arrays;
      for (const Operand& array : step.arrays) arrays.push_back(address(array, outside, space));
      const Work work = step.kernel->work(arrays.data(), space + step.space_at);
      all.threads = std::max(all.threads, work.threads);
      for (size_t i = 0; i < work.pieces.size(); ++i) {
        all.pieces.push_back(work.pieces[i]);
        stages.push_back({work.run_piece, i});
      }
    }
    all.run_piece = [stages = std::move(stages)](size_t stage, size_t piece) {
      stages[stage].first(stages[stage].second, piece);
    };
    return all;
  }

 private:
  struct Operand {
    int64_t number, at;
  };
  struct Step {
    std::shared_ptr<const Kernel> kernel;
    std::vector<Operand> arrays;
    size_t space_at = 0;
  };
  struct Between {
    size_t bytes, at = 0, last_use = 0;
    bool has_place = false;
  };

  std::byte* address(const Operand& array, Arrays outside, std::byte* space) const {
    if (array.number < 0) return nullptr;
    if (array.number < outside_) return outside[array.number] + array.at;
    return space + between_[array.number - outside_].at + array.at;
  }

  void plan_space() {
    auto for_each = [this](auto use) {
      for (size_t i = 0; i < steps_.size(); ++i) {
        for (const Operand& array : steps_[i].arrays) {
          if (array.number >= outside_) use(between_[array.number - outside_], i);
        }
      }
    };
    for_each([](Between& each, size_t step) { each.last_use = step; });
    size_t begun = 0;
    for_each([&](Between& each, size_t step) {
      for (; begun <= step; ++begun) place_own_space(begun);
      if (std::exchange(each.has_place, true)) return;
      each.at = plan_.place(each.bytes, step, each.last_use);
    });
    for (; begun < steps_.size(); ++begun) place_own_space(begun);
  }

  void place_own_space(size_t step) {
    steps_[step].space_at = plan_.place(steps_[step].kernel->space_bytes(), step, step);
  }

  int64_t outside_;
  std::vector<Between> between_;
  std::vector<Step> steps_;
  SpacePlan plan_;
};

inline std::shared_ptr<const Kernel> kernel_of(Kind kind, Spec spec) {
  switch (kind) {
    case Kind::kProduct: return planned<Product>(spec);
    case Kind::kChain: return planned<Chain>(spec);
    case Kind::kStack: return std::make_shared<const Stack>(Reader(spec));
    case Kind::kAttention: return std::make_shared<const Attention>(Reader(spec));
    case Kind::kRows: return std::make_shared<const Rows>(Reader(spec));
    case Kind::kWindows: return std::make_shared<const Windows>(Reader(spec));
    case Kind::kCopy: return std::make_shared<const Copy>(Reader(spec));
    case Kind::kPoints: return std::make_shared<const Points>(Reader(spec));
    case Kind::kSums: return std::make_shared<const Sums>(Reader(spec));
    case Kind::kSequence: return planned<Sequence>(spec);
  }
  throw std::runtime_error("there is no such kernel");
}

}  // namespace sardonyx
