// Every system call that libst makes, as one virtual method each. So tests can
// record, delay, fail or tear any of them, or cut the power there. A method makes
// exactly one call, retries nothing, and gives the kernel's answer: a result, or
// -errno. File, Location, Mapping and RangeLock decide what to do about it. They
// are built on Env, and thus tested with it.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "os/vocabulary.h"

namespace st::os {

class Env {
 public:
  virtual ~Env() = default;

  virtual int openat(int dir, const char *path, int flags, mode_t mode) = 0;
  // openat2: -ELOOP where any component of the path is a link. -ENOSYS before Linux 5.6.
  virtual int openat_without_links(int dir, const char *path, int flags) = 0;
  virtual int close(int fd) = 0;
  // F_SETFL: O_DIRECT from now on. A server of FUSE is not told when the file is opened, but with each read and write.
  virtual int set_direct(int fd) = 0;
  virtual ssize_t pread(int fd, void *buffer, size_t n, uint64_t offset) = 0;
  virtual ssize_t preadv(int fd, const struct iovec *parts, int count, uint64_t offset) = 0;
  virtual ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) = 0;
  virtual int fsync(int fd) = 0;
  virtual int fdatasync(int fd) = 0;
  virtual int fallocate(int fd, int mode, uint64_t offset, uint64_t n) = 0;
  virtual int sync_range(int fd, uint64_t offset, uint64_t n) = 0;  // start writing out; a hint
  // Write out, and wait for that. This makes nothing durable; but a failure that it tells the next sync tells no more.
  virtual int wait_range(int fd, uint64_t offset, uint64_t n) = 0;
  virtual int fadvise(int fd, uint64_t offset, uint64_t n, int advice) = 0;  // a hint
  virtual int64_t seek_hole(int fd, uint64_t offset) = 0;                    // where the next hole begins
  virtual int extents(int fd, struct fiemap *map) = 0;                       // FS_IOC_FIEMAP
  virtual int realtime_blocks(int fd, uint64_t *out) = 0;                    // of an xfs: XFS_IOC_FSGEOMETRY_V1
  virtual int fstat(int fd, struct stat *out) = 0;
  // statx with AT_STATX_FORCE_SYNC: as the server has it, whatever this kernel remembers.
  virtual int fstat_synced(int fd, struct stat *out) = 0;
  // statx with STATX_BTIME: when it was made, in ns since 1970. Negative: unknown. "" names the open file itself.
  virtual int64_t birth_time(int, const char *) { return -ENOSYS; }
  virtual int fstatat(int dir, const char *path, struct stat *out, int flags) = 0;
  // A link to it from another mount, which no kernel makes: -EXDEV, or -EEXIST. But before a name is made, FUSE asks
  // its server for it, however long it was to be remembered; the answer serves the next look at the name.
  virtual int renew_name(int dir, const char *name) = 0;
  virtual int fstatfs(int fd, struct statfs *out) = 0;
  virtual int syncfs(int) { return -ENOSYS; }  // all that waits in the filesystem of this file is written out
  virtual int fchmod(int fd, mode_t mode) = 0;
  virtual int fchown(int fd, uid_t uid, gid_t gid) = 0;
  virtual int ftruncate(int fd, uint64_t size) = 0;
  // FICLONERANGE: `to` shares the blocks of `from`. copy_file_range, which answers how many bytes it copied.
  virtual int clone_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) = 0;
  virtual ssize_t copy_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) = 0;
  // Extended attributes. Into `size` bytes, of which 0 only asks how many it takes.
  virtual ssize_t flistxattr(int fd, char *names, size_t size) = 0;
  virtual ssize_t fgetxattr(int fd, const char *name, void *value, size_t size) = 0;
  virtual int fsetxattr(int fd, const char *name, const void *value, size_t size) = 0;

  virtual int realpath(const char *path, std::string *out) = 0;
  virtual int readlinkat(int dir, const char *name, std::string *out) = 0;  // of a link; -EINVAL of anything else
  virtual int list(int dir, std::vector<std::string> *out) = 0;             // without . and ..
  virtual int mkdirat(int dir, const char *name, mode_t mode) = 0;
  virtual int unlinkat(int dir, const char *name, int flags) = 0;
  virtual int renameat(int from_dir, const char *from, int to_dir, const char *to) = 0;
  // A second name for it in that folder.
  virtual int linkat(int, const char *, const char *) { return -ENOSYS; }

  // F_OFD_SETLK, F_OFD_GETLK. A lock does not pass to a child over fork().
  virtual int lock(int fd, int command, struct flock *lock) = 0;

  virtual int mmap(size_t n, int protection, int flags, int fd, void **out) = 0;  // from offset 0
  virtual int munmap(void *address, size_t n) = 0;
  virtual int madvise(void *address, size_t n, int advice) = 0;
  virtual int mincore(void *address, size_t n, unsigned char *out) = 0;
  // RWF_NOWAIT: bytes that are in memory; -EAGAIN if the first is not, and the kernel may begin to read there.
  virtual ssize_t pread_cached(int, void *, size_t, uint64_t) { return -ENOSYS; }
  // process_vm_readv of this process: -EFAULT, and no signal, where there is no such memory any more.
  virtual ssize_t copy_memory(void *to, const void *from, size_t n) = 0;

  virtual int random(void *out, size_t n) = 0;
  virtual pid_t getpid() = 0;
  virtual uint64_t fork_generation() = 0;  // differs in a forked child; costs no system call
  virtual unsigned cpus() = 0;             // that this process might use when it first asked
  virtual uid_t geteuid() = 0;
  // RLIMIT_FSIZE: the kernel lets this process write no file beyond it, and may end the process that tries.
  virtual uint64_t largest_file() = 0;
  virtual uint64_t most_files() = 0;    // RLIMIT_NOFILE: so many descriptors may this process have
  virtual uint64_t monotonic_ms() = 0;  // where the system has such a clock, also while the machine sleeps
  virtual uint64_t thread_ns() = 0;     // of processor time, which the calling thread took
  virtual uint64_t unix_time() = 0;     // seconds since 1970, by the clock on the wall
  virtual void sleep_us(uint32_t microseconds) = 0;
  virtual const char *getenv(const char *name) = 0;

  // Bytes of a read of which several requests are made, side by side, where one after the other would wait for each.
  // 0: short reads are as good.
  virtual uint64_t long_read() { return 0; }

  // What is to say of the read that failed last, in place of its errno; mostly nothing.
  virtual std::string why() { return {}; }
  // Why this system answers -EROFS to whatever would change a file, as a sentence; nothing where it does not.
  virtual std::string why_read_only() { return {}; }

  static Env &posix();

  // What creates, renames or removes must name an entry of an open folder: a path may lead elsewhere by the time the
  // kernel follows it. Every Env answers -EINVAL where this is false.
  static bool is_entry(int dir, const char *name) {
    return dir != AT_FDCWD && std::string_view(name).find_first_of(never_in_names) == std::string_view::npos;
  }
};

}  // namespace st::os
