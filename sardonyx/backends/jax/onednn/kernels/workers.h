// Threads for kernels that Python calls itself, outside of XLA's programs.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace sardonyx {

// They start with the first work, and wait for more until the process ends. In a forked process
// there are none: then the caller does all of the work itself.
class Workers {
 public:
  static Workers& all() {
    static auto& workers = *new Workers;
    return workers;
  }

  void Schedule(std::function<void()> work) {
    std::lock_guard<std::mutex> lock(changing_);
    waiting_.push_back(std::move(work));
    if (idle_ < waiting_.size() && threads_ < kMost) {
      ++threads_;
      std::thread([this] { serve(); }).detach();
    }
    added_.notify_one();
  }

 private:
  static constexpr size_t kMost = 64;

  void serve() {
    std::unique_lock<std::mutex> lock(changing_);
    for (;;) {
      ++idle_;
      added_.wait(lock, [this] { return !waiting_.empty(); });
      --idle_;
      auto work = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }

  std::mutex changing_;
  std::condition_variable added_;
  std::deque<std::function<void()>> waiting_;
  size_t threads_ = 0, idle_ = 0;
};

}  // namespace sardonyx
