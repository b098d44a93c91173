// An Env that says which process this is as a test wants it.
#pragma once

#include "fault_env.h"

namespace st::testing {

class Forked : public FaultEnv {
 public:
  Forked() : FaultEnv(os::Env::posix()) {}
  uint64_t fork_generation() override { return generation; }
  uint64_t generation = 7;
};

}  // namespace st::testing
