// A disk that sees to it that nobody looks, or goes, beyond one folder: not by a
// path, not by a name in it. What lies there may be in an enemy's hands.
#pragma once

#include <string>

#include "require.h"
#include "sim_env.h"

namespace st::fuzz {

class FolderWatch : public testing::SimEnv {
 public:
  // `folder`: absolute, in the root folder.
  FolderWatch(testing::SimDisk disk, std::string folder) : SimEnv(std::move(disk)), folder_(std::move(folder)) {}

  int openat(int dir, const char *path, int flags, mode_t mode) override {
    const std::string_view whole = dir == AT_FDCWD ? path : "";
    const bool is_root = whole == "/" && (flags & O_PATH);            // where a way begins
    const bool is_kernels = whole.starts_with("/proc/self/fdinfo/");  // which mount an open file is on
    if (!is_root && !is_kernels) check(dir, path);
    return SimEnv::openat(dir, path, flags, mode);
  }
  int fstatat(int dir, const char *path, struct stat *out, int flags) override {
    check(dir, path);
    return SimEnv::fstatat(dir, path, out, flags);
  }
  int realpath(const char *path, std::string *out) override {
    check(AT_FDCWD, path);
    return SimEnv::realpath(path, out);
  }
  int mkdirat(int dir, const char *name, mode_t mode) override {
    check(dir, name);
    return SimEnv::mkdirat(dir, name, mode);
  }
  int unlinkat(int dir, const char *name, int flags) override {
    check(dir, name);
    return SimEnv::unlinkat(dir, name, flags);
  }
  int renameat(int from_dir, const char *from, int to_dir, const char *to) override {
    check(from_dir, from);
    check(to_dir, to);
    return SimEnv::renameat(from_dir, from, to_dir, to);
  }

 private:
  void check(int dir, const std::string &path) {
    REQUIRE(("/" + path + "/").find("/../") == std::string::npos, "the way leads up: ", in_quotes(path));
    if (dir != AT_FDCWD) {
      REQUIRE(path.find('/') == std::string::npos, in_quotes(path), " is no name in a folder");
      return;
    }
    const bool inside = path == folder_ || path.starts_with(folder_ + "/");
    REQUIRE(inside, in_quotes(path), " lies outside of ", in_quotes(folder_));
  }

  std::string folder_;
};

}  // namespace st::fuzz
