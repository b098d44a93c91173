// What ends the waits of this thread: the call that it is in (entry.cpp). Keys are asked for far below a call, and by
// what outlives it, so nobody hands this down.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

namespace st::remote {

// Asked while a call waits, on its thread: true ends it. Empty: nobody is asked.
using Stops = std::function<bool()>;
constexpr uint64_t between_questions_ms = 100;

class Stopping {
 public:
  explicit Stopping(const Stops &stops) : before_(std::exchange(now_, &stops)) {}
  ~Stopping() { now_ = before_; }
  Stopping(const Stopping &) = delete;
  Stopping &operator=(const Stopping &) = delete;

  // The caller wants no more. Asks it; one that said so says it again.
  static bool is_wanted() { return now_ && *now_ && (*now_)(); }

 private:
  static constinit inline thread_local const Stops *now_ = nullptr;
  const Stops *const before_;
};

}  // namespace st::remote
