// Threads, of which one goes on at a time.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace st::testing {

class Baton {
 public:
  void await(size_t self) {
    std::unique_lock guard(mutex_);
    changed_.wait(guard, [&] { return holder_ == self; });
  }
  void give(size_t to) {
    std::lock_guard guard(mutex_);
    holder_ = to;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t holder_ = SIZE_MAX;
};

}  // namespace st::testing
