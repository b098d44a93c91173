// What a forked child must not have in common with its parent: a thread that is not in the child may have been amid a
// change of it, and have locked its mutex for ever. Each process makes its own when it first asks. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "os/env.h"

namespace st::os {

// `State` has a `mutex` that is locked while it is changed. `Process` says by fork_generation() which process this is.
template <class State, class Process = Env>
class PerProcess {
 public:
  explicit PerProcess(Process &env) : env_(env), last_(new Own(env.fork_generation(), nullptr)) {}
  // A child leaves what a thread of its parent's may have been amid a change of: such a thread has locked its mutex.
  ~PerProcess() {
    const uint64_t now = env_.fork_generation();
    for (Own *own = last_.load(); own;) {
      Own *const one = std::exchange(own, own->before);
      if (one->generation == now || is_whole(*one))
        delete one;
      else
        leave(one);
    }
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
  // What its parents have left to this process, unless a thread of theirs was amid a change of it. Not by two threads
  // at once, which would take each other for such.
  template <class Visit>
  void each_parents(Visit visit) {
    const uint64_t now = env_.fork_generation();
    for (Own *own = last_.load(std::memory_order_acquire); own; own = own->before) {
      if (own->generation == now) continue;
      const std::unique_lock lock(own->state.mutex, std::try_to_lock);
      if (lock) visit(own->state);
    }
  }

 private:
  struct Own {
    Own(uint64_t g, Own *b) : generation(g), before(b) {}
    const uint64_t generation;
    Own *before;  // of its parent
    State state;
  };

  static bool is_whole(Own &own) {
    const std::unique_lock lock(own.state.mutex, std::try_to_lock);
    return lock.owns_lock();
  }
  // Where leak checkers find it.
  static void leave(Own *own) {
    own->before = left_.load();
    while (!left_.compare_exchange_weak(own->before, own)) {
    }
  }

  Process &env_;
  std::atomic<Own *> last_;
  inline static std::atomic<Own *> left_ = nullptr;
};

}  // namespace st::os
