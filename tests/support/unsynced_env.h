// Syncs that do nothing: for many commits where no power is cut.
#pragma once

#include "fault_env.h"

namespace st::testing {

class Unsynced : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  int fsync(int) override { return 0; }
  int fdatasync(int) override { return 0; }
  int sync_range(int, uint64_t, uint64_t) override { return 0; }
  int wait_range(int, uint64_t, uint64_t) override { return 0; }
};

}  // namespace st::testing
