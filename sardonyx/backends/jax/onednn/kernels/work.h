// Work shared among the threads of a pool, and plans of it that are made once.
#pragma once

#include <xmmintrin.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace sardonyx {

namespace ffi = xla::ffi;

using Spec = ffi::Span<const int64_t>;

// A specification is a list of integers. Each part of a plan reads what it asks for, in turn.
class Reader {
 public:
  explicit Reader(Spec spec) : at_(spec.begin()) {}
  int64_t next() { return *at_++; }
  float next_float() {
    auto bits = static_cast<int32_t>(next());
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  const int64_t* at() const { return at_; }
  // A specification within this one, with its length ahead.
  Spec next_spec() {
    const int64_t length = next();
    const Spec spec(at_, length);
    at_ += length;
    return spec;
  }

 private:
  const int64_t* at_;
};

// Which of `count` things are the part's.
inline std::pair<int64_t, int64_t> share(int64_t count, int64_t part, int64_t parts) {
  return {count * part / parts, count * (part + 1) / parts};
}

// A thread spins for so long before it sleeps: most pieces end about when their neighbours do, and
// to sleep and be woken would take longer than they last. Where it waits in vain, because others
// share the processor, it soon looks for less long.
constexpr int kSpins = 4096, kFewestSpins = 64;

inline int next_spins(int spins, bool was_in_vain) {
  return was_in_vain ? std::max(spins / 2, kFewestSpins) : std::min(2 * spins, kSpins);
}

// Stages one after the other, each in pieces side by side. The pieces are taken by this thread and
// by those of the pool that come in time. What none of them has begun is never waited for, so that
// a call from within the pool ends too.
class Stages {
 public:
  using RunPiece = std::function<void(size_t stage, size_t piece)>;

  Stages(std::vector<size_t> pieces, RunPiece run_piece)
      : run_piece_(std::move(run_piece)),
        pieces_(std::move(pieces)),
        progress_(new Progress[pieces_.size()]) {}

  void work() {
    int spins = kSpins;
    for (size_t stage = 0; stage < pieces_.size(); ++stage) {
      Progress& progress = progress_[stage];
      const size_t count = pieces_[stage];
      for (size_t piece; (piece = progress.taken++) < count;) {
        run(stage, piece);
        if (++progress.done == count) progress.done.notify_all();
      }
      wait(progress.done, count, spins);
    }
  }

  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  // Apart in memory, so that threads in different stages do not disturb each other.
  struct alignas(64) Progress {
    std::atomic<size_t> taken{0}, done{0};
  };

  void run(size_t stage, size_t piece) {
    try {
      run_piece_(stage, piece);
    } catch (...) {
      std::lock_guard<std::mutex> lock(failing_);
      failure_ = std::current_exception();
    }
  }

  static void wait(std::atomic<size_t>& done, size_t count, int& spins) {
    for (int spin = 0; spin < spins && done < count; ++spin) _mm_pause();
    spins = next_spins(spins, done < count);
    for (size_t now; (now = done) < count;) done.wait(now);
  }

  RunPiece run_piece_;
  std::vector<size_t> pieces_;
  std::unique_ptr<Progress[]> progress_;
  std::mutex failing_;
  std::exception_ptr failure_;
};

// What a kernel does with certain arrays: how many pieces each of its stages has, and one of them.
struct Work {
  int64_t threads;
  std::vector<size_t> pieces;
  Stages::RunPiece run_piece;
};

// The arrays of a kernel in turn: first those that it reads, of which some may be null.
using Arrays = std::byte* const*;

class Product;

// It computes the same for all arrays of certain shapes.
class Kernel {
 public:
  virtual ~Kernel() = default;
  // Of the memory that its work needs for itself.
  virtual size_t space_bytes() const { return 0; }
  // The arrays and the space, not the list of arrays, must outlive the work, and the kernel too.
  virtual Work work(Arrays arrays, std::byte* space) const = 0;
  // Appends the products that it consists of.
  virtual void list_products(std::vector<const Product*>&) const {}
};

template <class Number>
const Number* read_from(std::byte* array) {
  return reinterpret_cast<const Number*>(array);
}

// Lets other threads help for as long as the result lasts, or for longer.
template <class Pool>
std::nullptr_t helped(Pool& pool, const std::shared_ptr<Stages>& stages, size_t count) {
  for (size_t i = 0; i < count; ++i) pool.Schedule([stages] { stages->work(); });
  return nullptr;
}

template <class Pool>
void perform(Pool& pool, Work work) {
  const size_t most = *std::max_element(work.pieces.begin(), work.pieces.end());
  const size_t threads = std::min<size_t>(work.threads, most);
  auto stages = std::make_shared<Stages>(std::move(work.pieces), std::move(work.run_piece));
  [[maybe_unused]] const auto help = helped(pool, stages, threads - 1);
  stages->work();
  stages->rethrow();
}

// Tells whether what ran since met a NaN, or made one, or a number that is too large: the processor
// notes it. oneDNN's maxima take a NaN for a number, and its exponential takes it for a large one.
class FaultWatch {
 public:
  static constexpr unsigned kInvalid = 1, kOverflow = 8;

  explicit FaultWatch(unsigned faults) : faults_(faults), before_(_mm_getcsr()) {
    _mm_setcsr(before_ & ~faults);
  }
  ~FaultWatch() { _mm_setcsr(_mm_getcsr() | (before_ & faults_)); }
  FaultWatch(const FaultWatch&) = delete;
  FaultWatch& operator=(const FaultWatch&) = delete;

  bool saw() const { return _mm_getcsr() & faults_; }

 private:
  unsigned faults_, before_;
};

// The plan for a specification, which says all that there is to know of a call.
template <class Plan>
std::shared_ptr<const Plan> planned(Spec spec) {
  constexpr size_t kMostPlans = 2048;
  static std::mutex making;
  static auto& plans = *new std::unordered_map<std::string, std::shared_ptr<const Plan>>;
  std::string key(reinterpret_cast<const char*>(spec.begin()), spec.size() * sizeof(int64_t));
  std::lock_guard<std::mutex> lock(making);
  auto found = plans.find(key);
  if (found != plans.end()) return found->second;
  if (plans.size() >= kMostPlans) plans.clear();
  auto plan = std::make_shared<const Plan>(spec);
  plans.emplace(std::move(key), plan);
  return plan;
}

}  // namespace sardonyx
