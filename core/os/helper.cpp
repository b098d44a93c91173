#include "os/helper.h"

#include <new>
#include <system_error>

#include "os/process.h"

namespace st::os {

Helper::~Helper() {
  if (!made_in_.this_process()) return;
  if (thread_.joinable()) {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    news_.notify_all();
    thread_.join();
  }
  thread_.~thread();
}

bool Helper::has_thread() {
  if (!made_in_.this_process()) return false;
  if (!thread_.joinable() && !alone_) try {
      const SignalsHeldBack quiet;
      thread_ = std::thread([this] { serve(); });
    } catch (const std::system_error &) {  // no more threads,
      alone_ = true;
    } catch (const std::bad_alloc &) {  // or no memory for them
      alone_ = true;
    }
  return !alone_;
}

void Helper::begin(Work work) {
  if (!has_thread()) return work();
  std::lock_guard lock(mutex_);
  work_ = std::move(work);
  busy_ = true;
  news_.notify_all();
}

void Helper::wait() {
  if (!made_in_.this_process()) return;
  std::unique_lock lock(mutex_);
  news_.wait(lock, [this] { return !busy_; });
}

void Helper::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    news_.wait(lock, [this] { return busy_ || over_; });
    if (!busy_) return;  // what was begun is done first
    lock.unlock();
    work_();
    lock.lock();
    busy_ = false;
    news_.notify_all();
  }
}

}  // namespace st::os
