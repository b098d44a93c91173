// An Env that counts what libst reads, writes, shares and has copied.
#pragma once

#include <cerrno>
#include <optional>
#include <string>

#include "fault_env.h"

namespace st::testing {

class CountingEnv : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  ssize_t pread(int fd, void *buffer, size_t n, uint64_t offset) override {
    return count(&read, FaultEnv::pread(fd, buffer, n, offset));
  }
  ssize_t preadv(int fd, const struct iovec *parts, int n, uint64_t offset) override {
    return count(&read, FaultEnv::preadv(fd, parts, n, offset));
  }
  ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override {
    return count(&written, FaultEnv::pwrite(fd, buffer, n, offset));
  }
  int clone_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) override {
    const int r = FaultEnv::clone_range(to_fd, from_fd, from, n, to);
    if (r == 0) shared += n;
    return r;
  }
  ssize_t copy_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) override {
    return count(&copied, FaultEnv::copy_range(to_fd, from_fd, from, n, to));
  }
  void forget() { read = written = shared = copied = 0; }

  uint64_t read = 0, written = 0, shared = 0, copied = 0;  // bytes

 private:
  static ssize_t count(uint64_t *sum, ssize_t r) {
    if (r > 0) *sum += static_cast<uint64_t>(r);
    return r;
  }
};

// The same on a filesystem that says it is xfs, and shares blocks (by copying them).
class CountingXfs : public CountingEnv {
 public:
  using CountingEnv::CountingEnv;
  int clone_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) override {
    constexpr uint64_t block = 4096, end_of_any = uint64_t{1} << 60;
    if (from + n > end_of_any || from % block + n % block + to % block != 0) return -EINVAL;
    std::string bytes(n, '\0');
    if (FaultEnv::pread(from_fd, bytes.data(), n, from) != static_cast<ssize_t>(n)) return -EINVAL;
    if (FaultEnv::pwrite(to_fd, bytes.data(), n, to) != static_cast<ssize_t>(n)) return -EIO;
    shared += n;
    return 0;
  }
  int fstatfs(int fd, struct statfs *out) override {
    const int r = FaultEnv::fstatfs(fd, out);
    out->f_type = 0x58465342;
    if (free_bytes) out->f_bavail = *free_bytes / static_cast<uint64_t>(out->f_bsize);
    return r;
  }
  std::optional<uint64_t> free_bytes;
};

}  // namespace st::testing
