// A thread beside the caller's, which computes while the caller reads and writes. It makes no system call of an Env: so
// their order stays that of one thread.
#pragma once

#include <functional>
#include <mutex>
#include <thread>

#include "base/waiters.h"
#include "os/made_in.h"

namespace st::os {

// A child of a fork has no such thread: there all work is done at once, and what was under way is never done. So call a
// function that may fork, such as a caller's callback, while nothing is under way.
class Helper {
 public:
  explicit Helper(Env &env) : made_in_(env), thread_() {}
  ~Helper();
  Helper(const Helper &) = delete;
  Helper &operator=(const Helper &) = delete;

  // One piece of work at a time, which throws nothing. Where there is no thread to be had, it is done at once.
  using Work = std::function<void()>;
  void begin(Work work);
  // Until it is done.
  void wait();
  // Lives shorter than what the work refers to.
  struct WaitsAtEnd {
    Helper &helper;
    ~WaitsAtEnd() { helper.wait(); }
  };

 private:
  bool has_thread();
  void serve();

  const MadeIn made_in_;
  union {
    std::thread thread_;  // ends by hand: a child leaves its parent's
  };
  std::mutex mutex_;  // of what follows
  Waiters news_;
  Work work_;
  bool busy_ = false, over_ = false;
  bool alone_ = false;  // no thread could be had
};

}  // namespace st::os
