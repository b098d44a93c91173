// What a process has once, and changes under a mutex. Each fork takes that mutex.
// So a child finds all of it whole and unlocked.
#pragma once

#include <mutex>

#include "base/forever.h"
#include "os/process.h"

namespace st::os {

template <class State>
class WholeOverFork {
 public:
  WholeOverFork() { at_fork(before, in_parent, in_child); }
  State state;

 private:
  static State &all() { return forever<WholeOverFork>().state; }
  static void before() { all().mutex.lock(); }
  static void in_parent() { all().mutex.unlock(); }
  static void in_child() {
    if constexpr (requires { all().in_child(); }) all().in_child();
    all().mutex.unlock();
  }
};

// `State` has a `mutex`. It is there for ever, as handles may be closed while the process ends. Any thread.
// `State::in_child`, where there is one, is called in a child, under the mutex.
template <class State>
State &whole_over_fork() {
  return forever<WholeOverFork<State>>().state;
}

}  // namespace st::os
