// Files open for reading only: a medium, or rights, of that kind.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <string_view>

#include "clock_env.h"

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

// A file that may be written, and journals of another user's that may not be.
class OthersJournals : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  int openat(int dir, const char *path, int flags, mode_t mode) override {
    const std::string_view name = path;
    const bool is_journal = name.size() == 16 && name.find('.') == name.npos && (flags & O_DIRECTORY) == 0;
    if (is_journal && ((flags & O_ACCMODE) != O_RDONLY || !may_be_read)) return -EACCES;
    return FaultEnv::openat(dir, path, flags, mode);
  }
  uid_t geteuid() override { return FaultEnv::geteuid() + 1; }
  bool may_be_read = true;
};

// Another user than the files', with the rights of others.
class OtherUser : public ClockEnv {
 public:
  using ClockEnv::ClockEnv;
  int openat(int dir, const char *path, int flags, mode_t mode) override {
    const mode_t wanted = (flags & O_ACCMODE) == O_RDONLY ? S_IROTH : S_IROTH | S_IWOTH;
    struct stat s;
    if ((flags & O_PATH) == 0 && ClockEnv::fstatat(dir, path, &s, 0) == 0 && (s.st_mode & wanted) != wanted)
      return -EACCES;
    return ClockEnv::openat(dir, path, flags, mode);
  }
  uid_t geteuid() override { return ClockEnv::geteuid() + 1; }
};

}  // namespace st::testing
