// Work shared among the threads of a pool, and plans of it that are made once.
#pragma once

#include <xmmintrin.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

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

 private:
  const int64_t* at_;
};

// Which of `count` things are the part's.
inline std::pair<int64_t, int64_t> share(int64_t count, int64_t part, int64_t parts) {
  return {count * part / parts, count * (part + 1) / parts};
}

// The pieces are taken by this thread and by those of the pool that come in time. What none of them
// has begun is never waited for, so that a call from within the pool ends too.
template <class Pool>
void for_each_piece(Pool& pool, size_t count, std::function<void(size_t)> run_piece) {
  if (count == 1) return run_piece(0);
  struct Shared {
    std::function<void(size_t)> run_piece;
    size_t count;
    std::atomic<size_t> taken{0}, done{0};
    std::mutex failing;
    std::exception_ptr failure;
  };
  auto shared = std::make_shared<Shared>();
  shared->run_piece = std::move(run_piece);
  shared->count = count;
  auto work = [shared] {
    for (size_t piece; (piece = shared->taken++) < shared->count;) {
      try {
        shared->run_piece(piece);
      } catch (...) {
        std::lock_guard<std::mutex> lock(shared->failing);
        shared->failure = std::current_exception();
      }
      if (++shared->done == shared->count) shared->done.notify_all();
    }
  };
  for (size_t other = 1; other < count; ++other) pool.Schedule(std::function<void()>(work));
  work();
  // The others are about to end: to sleep and be woken would take longer, most of the time.
  for (int spins = 0; spins < 4096 && shared->done < count; ++spins) _mm_pause();
  for (size_t done; (done = shared->done) < count;) shared->done.wait(done);
  if (shared->failure) std::rethrow_exception(shared->failure);
}

// Tells whether what ran since met a NaN, or made one: the processor notes it. oneDNN's maxima take
// a NaN for a number, and its exponential takes it for a large one.
class InvalidWatch {
 public:
  InvalidWatch() : before_(_mm_getcsr()) { _mm_setcsr(before_ & ~kInvalid); }
  ~InvalidWatch() { _mm_setcsr(_mm_getcsr() | (before_ & kInvalid)); }
  InvalidWatch(const InvalidWatch&) = delete;
  InvalidWatch& operator=(const InvalidWatch&) = delete;

  bool saw() const { return _mm_getcsr() & kInvalid; }

 private:
  static constexpr unsigned kInvalid = 1;
  unsigned before_;
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
