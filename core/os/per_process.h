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
  explicit PerProcess(Env &env) : env_(env), first_(env.fork_generation(), nullptr) {}
  ~PerProcess() {
    for (Own *o = of_children_.load(); o;) delete std::exchange(o, o->before);
  }
  PerProcess(const PerProcess &) = delete;
  PerProcess &operator=(const PerProcess &) = delete;

  // Null: this process has none yet. Takes no memory.
  State *find() {
    const uint64_t now = env_.fork_generation();
    if (first_.generation == now) return &first_.state;
    Own *last = of_children_.load(std::memory_order_acquire);
    return last && last->generation == now ? &last->state : nullptr;
  }
  State &mine() {
    for (;;) {
      if (State *own = find()) return *own;
      Own *last = of_children_.load(std::memory_order_acquire);
      auto own = std::make_unique<Own>(env_.fork_generation(), last);
      if (of_children_.compare_exchange_strong(last, own.get(), std::memory_order_acq_rel)) return own.release()->state;
    }
  }

 private:
  struct Own {
    Own(uint64_t g, Own *b) : generation(g), before(b) {}
    const uint64_t generation;
    Own *const before;  // of its parent
    State state;
  };

  Env &env_;
  Own first_;
  std::atomic<Own *> of_children_ = nullptr;
};

}  // namespace st::os
