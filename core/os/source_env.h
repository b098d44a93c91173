// Bytes that somebody else fetches (an object in a store, a member of an archive), behind the calls that reading a file
// makes. So whatever reads files reads these. They cannot be changed, mapped or locked, and have no folder.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/error.h"
#include "base/permits.h"
#include "os/made_in.h"

namespace st::os {

// What a caller hands in.
class Source {
 public:
  struct Range {
    uint64_t offset, nbytes;  // inside the source
    void *to;
  };

  // most_reads: 0 as 1.
  Source(std::string name, uint64_t size, unsigned most_reads)
      : name_(std::move(name)), size_(size), most_reads_(std::max(most_reads, 1u)) {}
  virtual ~Source() = default;
  Source(const Source &) = delete;
  Source &operator=(const Source &) = delete;

  // Fills each range, whole. 0, or the errno of what went wrong. Called by any thread, most_reads() at once.
  virtual int read(std::span<const Range> ranges) = 0;
  // What is to say of the read that failed last, beside its errno: a sentence, or nothing.
  virtual std::string why() const { return {}; }

  // Bytes of one read that make the most of it.
  virtual uint64_t best_read() const { return uint64_t{8} << 20; }
  // The same of a reader that has one read at a time, and much to read.
  virtual uint64_t long_read() const { return best_read(); }
  // How it is asked, by what was measured: a part of a sentence, or nothing.
  virtual std::string how() const { return {}; }

  // Where others find it too; null: nowhere.
  virtual const std::string *url() const { return nullptr; }

  const std::string &name() const { return name_; }  // for messages
  uint64_t size() const { return size_; }            // bytes, for ever
  unsigned most_reads() const { return most_reads_; }

 private:
  const std::string name_;
  const uint64_t size_;
  const unsigned most_reads_;
};

// Each path, and each descriptor, is the source. A forked child may open none and read nothing: two processes would
// share one connection, or one place in a file, unawares.
class SourceEnv final : public Env {
 public:
  explicit SourceEnv(std::unique_ptr<Source> source);

  const Source &source() const { return *source_; }
  // Another process made it, whose child this one is.
  bool is_of_parent() const { return !made_in_.this_process(); }

  int openat(int dir, const char *path, int flags, mode_t mode) override;
  int openat_without_links(int dir, const char *path, int flags) override;
  int close(int fd) override;
  ssize_t pread(int fd, void *buffer, size_t n, uint64_t offset) override;
  ssize_t preadv(int fd, const struct iovec *parts, int count, uint64_t offset) override;
  int fstat(int fd, struct stat *out) override;
  int set_direct(int) override { return -ENOSYS; }
  int fstat_synced(int fd, struct stat *out) override { return fstat(fd, out); }

  uint64_t long_read() override { return source_->long_read(); }
  std::string why() override;

  // Hints, and what a source has none of.
  int fadvise(int, uint64_t, uint64_t, int) override { return 0; }
  int sync_range(int, uint64_t, uint64_t) override { return -ENOSYS; }
  int wait_range(int, uint64_t, uint64_t) override { return -ENOSYS; }
  int64_t seek_hole(int, uint64_t) override { return -ENOSYS; }
  int extents(int, struct fiemap *) override { return -ENOSYS; }
  int realtime_blocks(int, uint64_t *) override { return -ENOSYS; }
  int fstatfs(int, struct statfs *) override { return -ENOSYS; }
  ssize_t flistxattr(int, char *, size_t) override { return -ENOSYS; }
  ssize_t fgetxattr(int, const char *, void *, size_t) override { return -ENOSYS; }
  int lock(int, int, struct flock *) override { return -ENOSYS; }

  // No folder.
  int fstatat(int, const char *, struct stat *, int) override { return -ENOENT; }
  int realpath(const char *, std::string *) override { return -ENOENT; }
  int readlinkat(int, const char *, std::string *) override { return -ENOENT; }
  int list(int, std::vector<std::string> *) override { return -ENOENT; }
  int renew_name(int, const char *) override { return -ENOENT; }

  // No changes.
  ssize_t pwrite(int, const void *, size_t, uint64_t) override { return -EROFS; }
  int fsync(int) override { return -EROFS; }
  int fdatasync(int) override { return -EROFS; }
  int fallocate(int, int, uint64_t, uint64_t) override { return -EROFS; }
  int fchmod(int, mode_t) override { return -EROFS; }
  int fchown(int, uid_t, gid_t) override { return -EROFS; }
  int ftruncate(int, uint64_t) override { return -EROFS; }
  int clone_range(int, int, uint64_t, uint64_t, uint64_t) override { return -EROFS; }
  ssize_t copy_range(int, int, uint64_t, uint64_t, uint64_t) override { return -EROFS; }
  int fsetxattr(int, const char *, const void *, size_t) override { return -EROFS; }
  int mkdirat(int, const char *, mode_t) override { return -EROFS; }
  int unlinkat(int, const char *, int) override { return -EROFS; }
  int renameat(int, const char *, int, const char *) override { return -EROFS; }

  // Memory that no file lies behind, and what is the process's.
  int mmap(size_t n, int protection, int flags, int fd, void **out) override;
  int munmap(void *address, size_t n) override { return process_.munmap(address, n); }
  int madvise(void *address, size_t n, int advice) override { return process_.madvise(address, n, advice); }
  int mincore(void *address, size_t n, unsigned char *out) override { return process_.mincore(address, n, out); }
  ssize_t copy_memory(void *to, const void *from, size_t n) override { return process_.copy_memory(to, from, n); }
  int random(void *out, size_t n) override { return process_.random(out, n); }
  pid_t getpid() override { return process_.getpid(); }
  uint64_t fork_generation() override { return process_.fork_generation(); }
  unsigned cpus() override { return process_.cpus(); }
  uid_t geteuid() override { return process_.geteuid(); }
  uint64_t largest_file() override { return process_.largest_file(); }
  uint64_t most_files() override { return process_.most_files(); }
  uint64_t monotonic_ms() override { return process_.monotonic_ms(); }
  uint64_t thread_ns() override { return process_.thread_ns(); }
  uint64_t unix_time() override { return process_.unix_time(); }
  void sleep_us(uint32_t microseconds) override { process_.sleep_us(microseconds); }
  const char *getenv(const char *name) override { return process_.getenv(name); }

 private:
  int read(std::span<const Source::Range> ranges);

  Env &process_ = Env::posix();
  const MadeIn made_in_{process_};
  const std::unique_ptr<Source> source_;
  Permits reads_;  // that may still begin
};

// Opens what has this name where the others are.
using OpenByName = std::function<Result<std::shared_ptr<SourceEnv>>(const std::string &name)>;

}  // namespace st::os
