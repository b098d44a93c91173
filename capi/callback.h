// The caller's functions, which libst asks whether to go on. One may fork, and then return in the child, too. There the
// call ends: the threads, the locks and the journal of the call are the parent's.
#pragma once

#include "os/env.h"

namespace st::capi {

class Callback {
 public:
  // `call` answers 0 to go on.
  template <class Call>
  static bool goes_on(Call call) {
    const uint64_t process = os::Env::posix().fork_generation();
    const bool goes_on = call() == 0;
    has_forked_ = os::Env::posix().fork_generation() != process;
    return goes_on && !has_forked_;
  }
  // Is this thread in the child of the one that it called last?
  static bool has_forked() { return has_forked_; }

 private:
  static constinit inline thread_local bool has_forked_ = false;
};

}  // namespace st::capi
