// The caller's functions, which libst asks whether to go on. One may fork, and then return in the child, too. There the
// call ends: the threads, the locks and the journal of the call are the parent's.
#pragma once

#include "os/made_in.h"

namespace st::capi {

class Callback {
 public:
  // `call` answers 0 to go on.
  template <class Call>
  static bool goes_on(Call call) {
    const os::MadeIn made_in(os::Env::posix());
    const bool goes_on = call() == 0;
    has_forked_ = !made_in.this_process();
    return goes_on && !has_forked_;
  }
  // Is this thread in the child of the one that it called last?
  static bool has_forked() { return has_forked_; }

 private:
  static constinit inline thread_local bool has_forked_ = false;
};

}  // namespace st::capi
