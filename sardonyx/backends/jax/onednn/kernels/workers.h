// Threads for kernels that Python calls itself, outside of XLA's programs.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "work.h"

namespace sardonyx {

// They start when calls need them, and wait for more work until the process ends. In a forked
// process there are none: then the caller does all of the work itself.
class Workers {
 public:
  // For the time of a call. What no thread has begun by its end is taken back, so that there are
  // never more threads than calls at the same time have asked for.
  class Help {
   public:
    Help(Workers& workers, const std::shared_ptr<Stages>& stages, size_t count)
        : workers_(workers), stages_(stages), count_(count) {
      if (count_ > 0) workers_.add(stages_, count_);
    }
    ~Help() {
      if (count_ > 0) workers_.take_back(stages_, count_);
    }
    Help(const Help&) = delete;
    Help& operator=(const Help&) = delete;

   private:
    Workers& workers_;
    std::shared_ptr<Stages> stages_;
    size_t count_;
  };

  static Workers& all() {
    static auto& workers = *new Workers;
    return workers;
  }

 private:
  static constexpr size_t kMost = 64;

  void add(const std::shared_ptr<Stages>& stages, size_t count) {
    std::lock_guard<std::mutex> lock(changing_);
    waiting_.insert(waiting_.end(), count, stages);
    count_ = waiting_.size();
    asked_ += count;
    for (; threads_ < std::min(asked_, kMost); ++threads_) {
      std::thread([this] { serve(); }).detach();
    }
    for (size_t i = 0; i < count; ++i) added_.notify_one();
  }

  void take_back(const std::shared_ptr<Stages>& stages, size_t count) {
    std::lock_guard<std::mutex> lock(changing_);
    std::erase(waiting_, stages);
    count_ = waiting_.size();
    asked_ -= count;
  }

  void serve() {
    int spins = kSpins;
    std::unique_lock<std::mutex> lock(changing_);
    for (;;) {
      added_.wait(lock, [this] { return !waiting_.empty(); });
      auto stages = std::move(waiting_.front());
      waiting_.pop_front();
      count_ = waiting_.size();
      lock.unlock();
      stages->work();
      stages.reset();
      look_out(spins);
      lock.lock();
    }
  }

  // The next kernel of a call begins soon: to be woken would take as long as a small one lasts.
  void look_out(int& spins) {
    int spin = 0;
    while (spin < spins && !count_) {
      _mm_pause();
      ++spin;
    }
    spins = next_spins(spins, !count_);
  }

  std::mutex changing_;
  std::condition_variable added_;
  std::deque<std::shared_ptr<Stages>> waiting_;
  // How many wait, for those that do not hold the lock.
  std::atomic<size_t> count_{0};
  // Threads that there are, and that calls at this time have asked for.
  size_t threads_ = 0, asked_ = 0;
};

inline Workers::Help helped(Workers& workers, const std::shared_ptr<Stages>& stages, size_t count) {
  return Workers::Help(workers, stages, count);
}

}  // namespace sardonyx
