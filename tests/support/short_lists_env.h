// Lists no plain files, as btrfs may leave out a name while another file takes it.
#pragma once

#include <string>
#include <vector>

#include "fault_env.h"

namespace st::testing {

class ShortListsEnv : public FaultEnv {
 public:
  ShortListsEnv() : FaultEnv(os::Env::posix()) {}
  int list(int dir, std::vector<std::string> *out) override {
    const int r = FaultEnv::list(dir, out);
    std::erase_if(*out, [&](const std::string &name) {
      struct stat s;
      return fstatat(dir, name.c_str(), &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(s.st_mode);
    });
    return r;
  }
};

}  // namespace st::testing
