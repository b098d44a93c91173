// Permits to begin something, so many at once. std::counting_semaphore of libstdc++ 12 may sleep through a release
// where the system has no futex, as on Windows.
#pragma once

#include <condition_variable>
#include <mutex>

namespace st {

class Permits {
 public:
  explicit Permits(unsigned n) : left_(n) {}
  void acquire() {
    std::unique_lock lock(mutex_);
    given_back_.wait(lock, [&] { return left_ > 0; });
    --left_;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    ++left_;
    given_back_.notify_one();
  }

 private:
  std::mutex mutex_;  // of what follows
  std::condition_variable given_back_;
  unsigned left_;
};

}  // namespace st
