// Permits to begin something, so many at once. std::counting_semaphore of libstdc++ 12 may sleep through a release
// where the system has no futex, as on Windows.
#pragma once

#include <chrono>
#include <mutex>

#include "base/waiters.h"

namespace st {

class Permits {
 public:
  explicit Permits(unsigned n) : left_(n) {}
  // False: `stops`, which is asked ten times a second, said so.
  template <class Stops>
  bool acquire_unless(Stops stops) {
    std::unique_lock lock(mutex_);
    while (!given_back_.wait_for(lock, std::chrono::milliseconds(100), [&] { return left_ > 0; })) {
      lock.unlock();
      if (stops()) return false;
      lock.lock();
    }
    --left_;
    return true;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    ++left_;
    given_back_.notify_one();
  }

 private:
  std::mutex mutex_;  // of what follows
  Waiters given_back_;
  unsigned left_;
};

}  // namespace st
