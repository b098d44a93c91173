// A condition variable that a forked child may destroy. Threads of the parent that wait for it are not in the child,
// and glibc waits for them at its end. So the child leaves it as it is: it has nothing to give back.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace st {

// Each `lock` is of one mutex, which is held when a wait begins and when it has ended.
class Waiters {
 public:
  Waiters() : news_() {}
  ~Waiters() {
    if (waiting_ == 0) news_.~condition_variable();
  }
  Waiters(const Waiters &) = delete;
  Waiters &operator=(const Waiters &) = delete;

  template <class Done>
  void wait(std::unique_lock<std::mutex> &lock, Done done) {
    const Waiting waiting(waiting_);
    news_.wait(lock, done);
  }
  // Whether it is done.
  template <class Done>
  bool wait_for(std::unique_lock<std::mutex> &lock, std::chrono::milliseconds most, Done done) {
    const Waiting waiting(waiting_);
    return news_.wait_for(lock, most, done);
  }
  void wait_for(std::unique_lock<std::mutex> &lock, std::chrono::milliseconds most) {
    const Waiting waiting(waiting_);
    news_.wait_for(lock, most);
  }
  void notify_one() { news_.notify_one(); }
  void notify_all() { news_.notify_all(); }

 private:
  struct Waiting {
    explicit Waiting(size_t &n) : all(n) { ++all; }
    ~Waiting() { --all; }
    Waiting(const Waiting &) = delete;
    Waiting &operator=(const Waiting &) = delete;
    size_t &all;
  };

  union {
    std::condition_variable news_;  // ends by hand
  };
  size_t waiting_ = 0;
};

}  // namespace st
