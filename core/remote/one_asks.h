// Threads that want the same of a service: one asks it, and the others wait for what it is told. A thread that asks
// does not wait for itself, where its caller comes back to it.
#pragma once

#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "base/waiters.h"
#include "remote/stopping.h"
#include "remote/this_process.h"

namespace st::remote {

class OneAsks {
 public:
  // `lock` is of the mutex of what is asked for. It is free while the caller is asked. False: the caller wants no more.
  // The caller may fork. Its child returns without the lock, which a thread of the parent may have for ever. So does a
  // child that comes without it.
  bool wait_for_others(std::unique_lock<std::mutex> &lock) {
    if (!lock.owns_lock()) return false;
    const int64_t process = this_process();
    while (another_asks()) {
      answered_.wait_for(lock, std::chrono::milliseconds(between_questions_ms));
      lock.unlock();
      const bool wants_no_more = Stopping::is_wanted();
      if (this_process() != process) return false;
      lock.lock();
      if (wants_no_more) return false;
    }
    return true;
  }

  // `lock` is held.
  bool another_asks() const { return asker_ != std::thread::id() && asker_ != std::this_thread::get_id(); }

  // Answers `question`, which is asked while the lock is free. In a child of a fork amid the question it stays free.
  template <class Question>
  auto ask(std::unique_lock<std::mutex> &lock, Question question) {
    const struct Asking {
      Asking(OneAsks &all, std::unique_lock<std::mutex> &held)
          : of(all), lock(held), outer(std::exchange(of.asker_, std::this_thread::get_id())) {
        lock.unlock();
      }
      ~Asking() {
        if (this_process() != process) return;
        lock.lock();
        of.asker_ = outer;
        of.answered_.notify_all();
      }
      OneAsks &of;
      std::unique_lock<std::mutex> &lock;
      const std::thread::id outer;
      const int64_t process = this_process();
    } asking(*this, lock);
    return question();
  }

 private:
  std::thread::id asker_;  // none
  Waiters answered_;
};

}  // namespace st::remote
