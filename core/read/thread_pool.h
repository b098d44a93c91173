// Work that several threads share, the calling one among them. The first
// failure stops all; an exception ends a thread's work and goes on in the
// caller, never over a thread's border. Where there are no threads the
// caller does all of it.
//
// In the child of a fork, as of a caller's progress function, the threads are
// not there: run() then waits for none of them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "os/made_in.h"

namespace st::read {

class ThreadPool {
 public:
  explicit ThreadPool(os::Env &env) : made_in_(env) {}

  // `number` of the share of work; is this the thread that called run()?
  using Body = std::function<Result<void>(size_t number, bool calling)>;

  // body(0) to body(n - 1), n > 0: 0 by the caller, the others each by a thread
  // or, if there are too few, by the caller afterwards. Done with its own, the
  // caller calls `look` whenever another has told of something, and ten times a
  // second. A failure or an exception is the first one's.
  Result<void> run(size_t n, const Body &body, const std::function<Result<void>()> &look);
  // Somebody failed: bodies look at it now and then, and return.
  bool stopped() const { return stop_.load(std::memory_order_relaxed); }
  // There is something to look at.
  void tell();

 private:
  template <class Call>
  void attempt(Call call) noexcept;
  template <class Note>
  void note(Note note) noexcept;
  void wait_for_others(size_t lacking, const std::function<Result<void>()> &look);

  const os::MadeIn made_in_;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;  // of what follows
  std::condition_variable news_;
  uint64_t told_ = 0;
  size_t working_ = 0;  // threads
  std::optional<Error> failure_;
  std::exception_ptr thrown_;
};

}  // namespace st::read
