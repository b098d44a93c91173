// Syncs that do nothing: they cost much, and where no power is cut they are for other tests.
#pragma once

#include "fault_env.h"

namespace st::testing {

template <class Base>
class WithoutSyncs : public Base {
 public:
  using Base::Base;
  int fsync(int) override { return 0; }
  int fdatasync(int) override { return 0; }
  int sync_range(int, uint64_t, uint64_t) override { return 0; }
  int wait_range(int, uint64_t, uint64_t) override { return 0; }
  int syncfs(int) override { return 0; }
};

using Unsynced = WithoutSyncs<FaultEnv>;

}  // namespace st::testing
