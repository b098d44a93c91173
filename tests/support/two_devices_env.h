// A disk as an xfs with a realtime section is: no commit relies on the syncs of other files, so each of its steps is
// durable before the next, whatever lies below. Or as an ext4, where a redo record shares its flush with its payload.
#pragma once

#include "fault_env.h"

namespace st::testing {

class TwoDevicesEnv : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  bool two_devices = true;
  int fstatfs(int fd, struct statfs *out) override {
    const int r = FaultEnv::fstatfs(fd, out);
    out->f_type = two_devices ? 0x58465342 : 0xEF53;
    return r;
  }
  int realtime_blocks(int, uint64_t *out) override { return *out = two_devices, 0; }
};

}  // namespace st::testing
