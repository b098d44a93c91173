// What a process has once, and changes under a mutex. Each fork takes that mutex.
// So a child finds all of it whole and unlocked.
#pragma once

#include <mutex>

#include "os/process.h"

namespace st::os {

// `State` has a `mutex`. It is there for ever, as handles may be closed while the process ends. Any thread.
// `State::in_child`, where there is one, is called in a child, under the mutex.
template <class State>
State &whole_over_fork() {
  static State *const all = [] {
    static State *const made = new State;
    const auto in_child = [] {
      if constexpr (requires { made->in_child(); }) made->in_child();
      made->mutex.unlock();
    };
    at_fork([] { made->mutex.lock(); }, [] { made->mutex.unlock(); }, in_child);
    return made;
  }();
  return *all;
}

}  // namespace st::os
