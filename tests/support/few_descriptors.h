// An Env in which no more than so many files are open at once. (To list a folder takes one, too.)
#pragma once

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "fault_env.h"

namespace st::testing {

class FewDescriptors : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  int openat(int dir, const char *path, int flags, mode_t mode) override {
    return opened(open_ < most ? FaultEnv::openat(dir, path, flags, mode) : -error);
  }
  int openat_without_links(int dir, const char *path, int flags) override {
    return opened(open_ < most ? FaultEnv::openat_without_links(dir, path, flags) : -error);
  }
  int close(int fd) override {
    --open_;
    return FaultEnv::close(fd);
  }
  int list(int dir, std::vector<std::string> *out) override { return open_ < most ? FaultEnv::list(dir, out) : -error; }
  size_t open_now() const { return open_; }
  uint64_t most_files() override { return std::min<uint64_t>(most, FaultEnv::most_files()); }
  size_t most = SIZE_MAX;
  int error = EMFILE;

 private:
  int opened(int fd) {
    open_ += fd >= 0;
    return fd;
  }
  size_t open_ = 0;
};

}  // namespace st::testing
