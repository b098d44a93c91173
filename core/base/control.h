// What the caller of a long operation may do to it meanwhile: watch its
// progress, cancel it from the progress callback, interrupt it from elsewhere.
#pragma once

#include <atomic>
#include <functional>

#include "base/error.h"

namespace st {

using Progress = std::function<bool(uint64_t done, uint64_t total)>;  // false: cancel
enum class LogLevel : uint32_t { info = 1, warning = 2, error = 3 };  // the last in reports alone
using Log = std::function<void(LogLevel, const std::string &)>;

// How long a call waits for locks that others hold, unless it is told.
inline constexpr int32_t default_lock_timeout_ms = 10000;

class Control {
 public:
  Control() = default;
  // Interrupted once *interrupts moves on from what it is now.
  Control(Progress progress, const std::atomic<uint64_t> *interrupts)
      : progress_(std::move(progress)),
        interrupts_(interrupts),
        seen_(interrupts ? interrupts->load(std::memory_order_relaxed) : 0) {}

  // For a part of the same call: interrupts count from when the call began.
  Control with(Progress progress) const {
    Control part = *this;
    part.progress_ = std::move(progress);
    return part;
  }

  const Progress &progress() const { return progress_; }
  bool interrupted() const { return interrupts_ && interrupts_->load(std::memory_order_relaxed) != seen_; }

  Result<void> check(uint64_t done, uint64_t total) const {
    if (interrupted()) return fail(Status::interrupted, "the call was interrupted; nothing was changed");
    if (progress_ && !progress_(done, total))
      return fail(Status::cancelled, "the progress callback cancelled the call; nothing was changed");
    return {};
  }

 private:
  Progress progress_;
  const std::atomic<uint64_t> *interrupts_ = nullptr;
  uint64_t seen_ = 0;
};

// The caller wanted no more of it.
inline bool was_stopped(const Error &e) {
  return e.status == Status::interrupted || e.status == Status::cancelled;
}

}  // namespace st
