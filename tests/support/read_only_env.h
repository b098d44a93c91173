// Files open for reading only: a medium, or rights, of that kind.
#pragma once

#include <fcntl.h>

#include <cerrno>

#include "fault_env.h"

namespace st::testing {

class ReadOnlyEnv : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  int openat(int dir, const char *path, int flags, mode_t mode) override {
    if ((flags & O_ACCMODE) != O_RDONLY) return -error;
    return FaultEnv::openat(dir, path, flags, mode);
  }
  int error = EROFS;
};

}  // namespace st::testing
