// An Env that stands in front of another, counts its calls, and makes the n-th
// one of a kind fail, once or for good. For "what if this call fails?" tests.
#pragma once

#include <functional>
#include <mutex>
#include <string_view>
#include <vector>

#include "os/env.h"

namespace st::testing {

enum class Call {
  openat,
  close,
  pread,
  pwrite,
  fsync,
  fdatasync,
  fallocate,
  sync_range,
  wait_range,
  fstat,
  fstatat,
  fstatfs,
  fchmod,
  fchown,
  realpath,
  readlinkat,
  list,
  mkdirat,
  unlinkat,
  renameat,
  linkat,
  lock,
  mmap,
  munmap,
  madvise,
  mincore,
  copy_memory,
  random,
  ftruncate,
  clone_range,
  copy_range,
  flistxattr,
  fgetxattr,
  fsetxattr,
  fstat_synced,
  renew_name,
  set_direct,
  birth_time,
};
std::string_view call_name(Call);

// Forwards every call to `base`, after asking before(call). Any thread, as far as `before` allows it.
class FaultEnv : public os::Env {
 public:
  explicit FaultEnv(os::Env &base) : base_(base) {}

  // Answers 0 to go on, a negative errno to fail with, or short_io: only half of the
  // bytes asked for move (reads and writes only; a write ends at a sector).
  static constexpr int short_io = 1;
  std::function<int(Call)> before;
  std::function<int(std::string_view name, int flags)> before_open;  // of an openat, also; 0 or a negative errno
  std::function<void(struct statfs &)> told_of_disk;                 // may change it
  uint64_t forks = 0;       // this process is a child, as far as the code knows
  std::vector<Call> calls;  // made so far; not while other threads make some

  int openat(int dir, const char *path, int flags, mode_t mode) override;
  int openat_without_links(int dir, const char *path, int flags) override;  // a kind of openat
  int close(int fd) override;
  int set_direct(int fd) override;
  ssize_t pread(int fd, void *buffer, size_t n, uint64_t offset) override;
  ssize_t preadv(int fd, const struct iovec *parts, int count, uint64_t offset) override;
  ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override;
  int fsync(int fd) override;
  int fdatasync(int fd) override;
  int fallocate(int fd, int mode, uint64_t offset, uint64_t n) override;
  int sync_range(int fd, uint64_t offset, uint64_t n) override;
  int wait_range(int fd, uint64_t offset, uint64_t n) override;
  int fadvise(int fd, uint64_t offset, uint64_t n, int advice) override { return base_.fadvise(fd, offset, n, advice); }
  int64_t seek_hole(int fd, uint64_t offset) override { return base_.seek_hole(fd, offset); }
  int extents(int fd, struct fiemap *map) override { return base_.extents(fd, map); }
  int realtime_blocks(int fd, uint64_t *out) override { return base_.realtime_blocks(fd, out); }
  int fstat(int fd, struct stat *out) override;
  int fstat_synced(int fd, struct stat *out) override;
  int64_t birth_time(int dir, const char *name) override;
  int fstatat(int dir, const char *path, struct stat *out, int flags) override;
  int renew_name(int dir, const char *name) override;
  int fstatfs(int fd, struct statfs *out) override;
  int syncfs(int fd) override { return base_.syncfs(fd); }
  int fchmod(int fd, mode_t mode) override;
  int fchown(int fd, uid_t uid, gid_t gid) override;
  int ftruncate(int fd, uint64_t size) override;
  int clone_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) override;
  ssize_t copy_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) override;
  ssize_t flistxattr(int fd, char *names, size_t size) override;
  ssize_t fgetxattr(int fd, const char *name, void *value, size_t size) override;
  int fsetxattr(int fd, const char *name, const void *value, size_t size) override;
  int realpath(const char *path, std::string *out) override;
  int readlinkat(int dir, const char *name, std::string *out) override;
  int list(int dir, std::vector<std::string> *out) override;
  int mkdirat(int dir, const char *name, mode_t mode) override;
  int unlinkat(int dir, const char *name, int flags) override;
  int renameat(int from_dir, const char *from, int to_dir, const char *to) override;
  int linkat(int dir, const char *from, const char *to) override;
  int lock(int fd, int command, struct flock *lock) override;
  int mmap(size_t n, int protection, int flags, int fd, void **out) override;
  int munmap(void *address, size_t n) override;
  int madvise(void *address, size_t n, int advice) override;
  int mincore(void *address, size_t n, unsigned char *out) override;
  ssize_t pread_cached(int fd, void *buffer, size_t n, uint64_t offset) override {
    return base_.pread_cached(fd, buffer, n, offset);
  }
  ssize_t copy_memory(void *to, const void *from, size_t n) override;
  int random(void *out, size_t n) override;
  pid_t getpid() override { return base_.getpid(); }
  uint64_t fork_generation() override { return base_.fork_generation() + forks; }
  unsigned cpus() override { return base_.cpus(); }
  uid_t geteuid() override { return base_.geteuid(); }
  uint64_t largest_file() override { return base_.largest_file(); }
  uint64_t most_files() override { return base_.most_files(); }
  uint64_t monotonic_ms() override { return base_.monotonic_ms(); }
  uint64_t thread_ns() override { return base_.thread_ns(); }
  uint64_t unix_time() override { return base_.unix_time(); }
  void sleep_us(uint32_t microseconds) override { base_.sleep_us(microseconds); }
  const char *getenv(const char *name) override { return base_.getenv(name); }

 private:
  int ask(Call call);
  template <class Forward>
  auto asked(Call call, Forward forward);
  os::Env &base_;
  std::mutex mutex_;  // of calls
};

// Fails the n-th call (from 0) among those that `counts` accepts, and with
// `sticky` every one after it.
std::function<int(Call)> nth_call_fails(size_t n, int error, bool sticky, std::function<bool(Call)> counts);

// Calls that can fail in the field with an error that must be handled: not
// close, munmap and such, whose answers are not looked at.
bool can_fail(Call);

}  // namespace st::testing
