// A client of NFS, or of FUSE: a file that is unlinked while it is open keeps another name in its folder, and the
// folder cannot be removed until it is closed.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <map>
#include <utility>

#include "fault_env.h"

namespace st::testing {

class KeepsOpenFilesEnv : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  int openat(int at, const char *path, int flags, mode_t mode) override {
    const int fd = FaultEnv::openat(at, path, flags, mode);
    struct stat s;
    if (fd >= 0 && FaultEnv::fstat(fd, &s) == 0 && S_ISREG(s.st_mode)) open_[fd] = s.st_ino;
    return fd;
  }
  int close(int fd) override {
    open_.erase(fd);
    kept_.erase(fd);
    return FaultEnv::close(fd);
  }
  int unlinkat(int at, const char *name, int flags) override {
    struct stat s;
    if ((flags & AT_REMOVEDIR) != 0) {
      if (FaultEnv::fstatat(at, name, &s, 0) == 0)
        for (const auto &kept : kept_)
          if (kept.second == s.st_ino) return -ENOTEMPTY;
      return FaultEnv::unlinkat(at, name, flags);
    }
    struct stat folder;
    if (FaultEnv::fstatat(at, name, &s, AT_SYMLINK_NOFOLLOW) == 0 && FaultEnv::fstat(at, &folder) == 0)
      for (const auto &file : open_)
        if (file.second == s.st_ino) kept_[file.first] = folder.st_ino;
    return FaultEnv::unlinkat(at, name, flags);
  }

 private:
  std::map<int, ino_t> open_, kept_;  // by descriptor: the file; and the folder in which it has another name
};

}  // namespace st::testing
