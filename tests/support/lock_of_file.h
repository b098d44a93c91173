// A file that nobody else may change, nor replace, while this lives.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "os/env.h"

namespace st::testing {

class LockOfFile {
 public:
  explicit LockOfFile(const std::string &path) : fd_(env_.openat(AT_FDCWD, path.c_str(), O_RDWR | O_CLOEXEC, 0)) {
    struct flock all = {};
    all.l_type = F_WRLCK;
    EXPECT_EQ(env_.lock(fd_, F_OFD_SETLK, &all), 0);
  }
  ~LockOfFile() { close(); }
  LockOfFile(const LockOfFile &) = delete;
  LockOfFile &operator=(const LockOfFile &) = delete;
  void close() {
    if (fd_ >= 0) env_.close(std::exchange(fd_, -1));
  }

 private:
  os::Env &env_ = os::Env::posix();
  int fd_;
};

}  // namespace st::testing
