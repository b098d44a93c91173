// A filesystem that can share blocks, whatever the test runs on.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "fault_env.h"

namespace st::testing {

// A filesystem that shares blocks (here by copying them), and a list of what is
// done to which file: d the data file, j the journal, f the folder.
class SharingEnv : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  int clone_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) override {
    if (const int error = note(is_data(to_fd) ? "d:share" : "j:share"); error) return error;
    if (refusal) return -refusal;
    EXPECT_EQ(from % 4096 + n % 4096 + to % 4096, 0u);
    std::string bytes(n, 0);
    if (FaultEnv::pread(from_fd, bytes.data(), n, from) != static_cast<ssize_t>(n)) return -EINVAL;
    EXPECT_EQ(FaultEnv::pwrite(to_fd, bytes.data(), n, to), static_cast<ssize_t>(n));
    return 0;
  }
  ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override {
    const auto *bytes = static_cast<const char *>(buffer);
    const char *step = is_data(fd)                           ? "d:write"
                       : offset != 0                         ? "j:write"
                       : std::memcmp(bytes, "libst", 5) == 0 ? "j:commit"
                                                             : "j:empty";
    if (const int error = note(step); error) return error;
    return FaultEnv::pwrite(fd, buffer, n, offset);
  }
  int fdatasync(int fd) override {
    if (const int error = note(is_data(fd) ? "d:sync" : "j:sync"); error) return error;
    return FaultEnv::fdatasync(fd);
  }
  int fsync(int fd) override {
    struct stat s;
    if (const int error = note(os::Env::posix().fstat(fd, &s) == 0 && S_ISDIR(s.st_mode) ? "f:sync" : "j:sync"); error)
      return error;
    return FaultEnv::fsync(fd);
  }
  int fstatfs(int fd, struct statfs *out) override {
    const int r = FaultEnv::fstatfs(fd, out);
    out->f_type = 0x58465342;  // xfs
    out->f_bsize = 4096;
    return r;
  }
  const char *getenv(const char *name) override { return std::string_view(name) == "ST_JOURNAL" ? journal : nullptr; }

  static bool is_data(int fd) {
    char name[4096];
    const ssize_t n = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name, sizeof name);
    return std::string_view(name, static_cast<size_t>(std::max<ssize_t>(n, 0))).ends_with(".safetensors");
  }

  std::vector<std::string> steps;
  std::function<int(const std::string &)> fails;
  int refusal = 0;
  const char *journal = "undo";

 private:
  int note(const std::string &step) {
    if (steps.empty() || steps.back() != step) steps.push_back(step);
    return fails ? fails(step) : 0;
  }
};

}  // namespace st::testing
