// One of several hosts: an Env over a real filesystem that remembers what it has seen, and is told nothing of what
// others change. Bytes are remembered by pages, sizes and links by file, names by folder; open folders stay what they
// were. What asks the server does so: O_DIRECT, fstat_synced, renew_name, locks, and the listing of a folder. Dropping
// pages does nothing, as for pages that somebody has mapped. A host may lose its locks, and is not told. One Env is one
// host; one thread at a time.
#pragma once

#include <array>
#include <climits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "fault_env.h"

namespace st::testing {

class StaleEnv : public FaultEnv {
 public:
  explicit StaleEnv(os::Env &base) : FaultEnv(base), under_(base) {}
  enum class Client {
    kernel,     // O_DIRECT asks the server
    remembers,  // a process (FUSE): it keeps what was read through a descriptor, with O_DIRECT, too
    juicefs,    // the same, over an object store
    glusterfs,  // a process: O_DIRECT asks the server, also if a descriptor gets it once it is open
  };
  Client client = Client::kernel;
  ~StaleEnv() override;

  // As of a host that the server has not heard of for too long.
  virtual void lose_locks();
  // Its memory was needed for something else.
  void forget_all();
  // What its clock shows of the time for which it was frozen; and what happens before it looks at its clock. A clock
  // that stands shows nothing else: then no two runs differ.
  uint64_t frozen_ms = 0;
  bool clock_stands = false;
  std::function<void()> at_clock;
  uint64_t monotonic_ms() override;

  int lock(int fd, int command, struct flock *lock) override;
  int openat(int dir, const char *path, int flags, mode_t mode) override;
  int openat_without_links(int dir, const char *path, int flags) override;
  int close(int fd) override;
  ssize_t pread(int fd, void *buffer, size_t n, uint64_t offset) override;
  ssize_t preadv(int fd, const struct iovec *parts, int count, uint64_t offset) override;
  int set_direct(int fd) override;
  ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override;
  int fadvise(int, uint64_t, uint64_t, int) override { return 0; }
  int fstat(int fd, struct stat *out) override;
  int fstat_synced(int fd, struct stat *out) override;
  int fstatat(int dir, const char *path, struct stat *out, int flags) override;
  int renew_name(int dir, const char *name) override;
  int fstatfs(int fd, struct statfs *out) override;
  int ftruncate(int fd, uint64_t size) override;
  int fallocate(int fd, int mode, uint64_t offset, uint64_t n) override;
  ssize_t copy_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) override;
  int mkdirat(int dir, const char *name, mode_t mode) override;
  int unlinkat(int dir, const char *name, int flags) override;
  int renameat(int from_dir, const char *from, int to_dir, const char *to) override;
  int mmap(size_t, int, int, int, void **) override { return -ENODEV; }

 protected:
  os::Env &under_;
  std::set<int> locked_;  // descriptors

 private:
  using Page = std::array<char, 4096>;
  using Name = std::pair<ino_t, std::string>;
  struct Entry {
    int fd;  // O_PATH
    struct stat stat;
  };

  static constexpr int mounts_fd = INT_MAX;  // of /proc/self/mountinfo
  std::string_view mounts() const;           // what it says; empty: of this machine
  bool keeps_what_was_read() const { return client == Client::remembers || client == Client::juicefs; }
  ino_t inode(int fd);
  Entry *entry(int dir, const char *name, bool folders_only);
  void forget(int dir, const char *name);
  void forget_file(ino_t inode);

  using Pages = std::map<uint64_t, std::pair<Page, size_t>>;  // and how many bytes of it there were

  ssize_t read_by(Pages &pages, int fd, void *buffer, size_t n, uint64_t offset);

  std::set<int> direct_;
  std::map<ino_t, Pages> pages_;
  std::map<int, Pages> kept_;  // by the client, for a descriptor with O_DIRECT
  std::map<ino_t, struct stat> stats_;
  std::map<Name, Entry> names_;
};

}  // namespace st::testing
