// The process that made an object. A forked child has a copy of the object, and leaves alone what its parent goes on
// with: threads, locks, names of files.
#pragma once

#include "os/env.h"

namespace st::os {

class MadeIn {
 public:
  MadeIn() = default;  // in none
  explicit MadeIn(Env &env) : env_(&env), generation_(env.fork_generation()) {}
  bool this_process() const { return env_ && env_->fork_generation() == generation_; }

 private:
  Env *env_ = nullptr;
  uint64_t generation_ = 0;
};

}  // namespace st::os
