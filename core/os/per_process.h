// What a forked child must not have in common with its parent: a thread that is not in the child may have been amid a
// change of it, and have locked its mutex for ever. Each process makes its own when it first asks. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "os/env.h"

namespace st::os {

template <class State>
class PerProcess {
 public:
  explicit PerProcess(Env &env) : env_(env), last_(new Own(env.fork_generation(), nullptr)) {}
  // A child leaves its parent's, which may be torn.
  ~PerProcess() {
    Own *own = last_.load();
    if (own->generation == env_.fork_generation()) delete std::exchange(own, own->before);
    if (own) leave(own);
  }
  PerProcess(const PerProcess &) = delete;
  PerProcess &operator=(const PerProcess &) = delete;

  // Null: this process has none yet. Takes no memory.
  State *find() {
    Own *last = last_.load(std::memory_order_acquire);
    return last->generation == env_.fork_generation() ? &last->state : nullptr;
  }
  State &mine() {
    const uint64_t now = env_.fork_generation();
    Own *last = last_.load(std::memory_order_acquire);
    while (last->generation != now) {
      auto own = std::make_unique<Own>(now, last);
      if (last_.compare_exchange_strong(last, own.get(), std::memory_order_acq_rel)) return own.release()->state;
    }
    return last->state;
  }

 private:
  struct Own {
    Own(uint64_t g, Own *b) : generation(g), before(b) {}
    const uint64_t generation;
    Own *before;  // of its parent
    State state;
  };

  // Where leak checkers find it.
  static void leave(Own *own) {
    Own *oldest = own;
    while (oldest->before) oldest = oldest->before;
    oldest->before = left_.load();
    while (!left_.compare_exchange_weak(oldest->before, own)) {
    }
  }

  Env &env_;
  std::atomic<Own *> last_;
  inline static std::atomic<Own *> left_ = nullptr;
};

}  // namespace st::os
