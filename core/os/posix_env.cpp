// Env on Linux: each method is its system call. Beyond that it knows of forks: see fork.h.
// glibc 2.17 and musl lack wrappers of the newer calls: those go by their numbers.
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/forever.h"
#include "base/standard_streams.h"
#include "os/env.h"
#include "os/fork.h"
#include "os/posix_names.h"
#include "os/process.h"
#ifndef STATX_BASIC_STATS  // by <sys/stat.h>, if this libc knows statx
#include <linux/stat.h>
#endif

namespace st::os {
namespace {

// No header of the kernel has it. The call's number is made of its size.
struct XfsGeometry {
  uint32_t of_blocks[8];
  uint64_t data_blocks, realtime_blocks, realtime_extents, log_start;
  uint8_t uuid[16];
  uint32_t of_stripes_and_sectors[7];
};
static_assert(sizeof(XfsGeometry) == (alignof(XfsGeometry) == 8 ? 112 : 108));  // x86 of 32 bits aligns 64 bits by 4
constexpr unsigned long get_xfs_geometry = _IOR('X', 100, XfsGeometry);

template <class R>
R answer(R r) {
  return r < 0 ? static_cast<R>(-errno) : r;
}

struct timespec time_of(const struct statx_timestamp &t) {
  struct timespec out = {};
  out.tv_sec = static_cast<time_t>(t.tv_sec);
  out.tv_nsec = static_cast<long>(t.tv_nsec);
  return out;
}

// The kernel refuses a set that has no room for every processor that the machine may get. No Linux knows of more than
// 8192, and a cpu_set_t has room for 1024.
unsigned cpus_of_process() {
  constexpr size_t most = 16384;
  uint64_t set[most / 64] = {};
  if (::sched_getaffinity(0, sizeof set, reinterpret_cast<cpu_set_t *>(set)) == 0) {
    int n = 0;
    for (const uint64_t word : set) n += std::popcount(word);
    return static_cast<unsigned>(std::max(n, 1));
  }
  return static_cast<unsigned>(std::max(::sysconf(_SC_NPROCESSORS_ONLN), 1L));
}

class PosixEnv final : public Env {
 public:
  int openat(int dir, const char *path, int flags, mode_t mode) override {
    if ((flags & O_CREAT) && !is_entry(dir, path)) return -EINVAL;
    return above_standard_streams(answer(::openat(dir, path, flags | O_CLOEXEC, mode)));
  }
  int openat_without_links(int dir, const char *path, int flags) override {
    struct open_how how = {};
    how.flags = static_cast<uint64_t>(flags) | O_CLOEXEC;
    how.resolve = RESOLVE_NO_SYMLINKS;
    return above_standard_streams(static_cast<int>(answer(::syscall(SYS_openat2, dir, path, &how, sizeof how))));
  }
  int close(int fd) override {
    forks_.forget(fd);
    return answer(::close(fd));
  }
  int set_direct(int fd) override {
    const int flags = ::fcntl(fd, F_GETFL);
    return answer(flags < 0 ? flags : ::fcntl(fd, F_SETFL, flags | O_DIRECT));
  }
  ssize_t pread(int fd, void *buffer, size_t n, uint64_t offset) override {
    return answer(::pread(fd, buffer, n, static_cast<off_t>(offset)));
  }
  ssize_t preadv(int fd, const struct iovec *parts, int count, uint64_t offset) override {
    return answer(::preadv(fd, parts, count, static_cast<off_t>(offset)));
  }
  ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override {
    return answer(::pwrite(fd, buffer, n, static_cast<off_t>(offset)));
  }
  int fsync(int fd) override { return answer(::fsync(fd)); }
  int fdatasync(int fd) override { return answer(::fdatasync(fd)); }
  int fallocate(int fd, int mode, uint64_t offset, uint64_t n) override {
    return answer(::fallocate(fd, mode, static_cast<off_t>(offset), static_cast<off_t>(n)));
  }
  int sync_range(int fd, uint64_t offset, uint64_t n) override {
    return answer(::sync_file_range(fd, static_cast<off_t>(offset), static_cast<off_t>(n), SYNC_FILE_RANGE_WRITE));
  }
  int wait_range(int fd, uint64_t offset, uint64_t n) override {
    constexpr unsigned all = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    return answer(::sync_file_range(fd, static_cast<off_t>(offset), static_cast<off_t>(n), all));
  }
  int fadvise(int fd, uint64_t offset, uint64_t n, int advice) override {
    return -::posix_fadvise(fd, static_cast<off_t>(offset), static_cast<off_t>(n), advice);
  }
  int64_t seek_hole(int fd, uint64_t offset) override {
    return answer(::lseek(fd, static_cast<off_t>(offset), SEEK_HOLE));
  }
  int fstat(int fd, struct stat *out) override { return answer(::fstat(fd, out)); }
  int fstat_synced(int fd, struct stat *out) override {
    struct statx x = {};
    if (::syscall(SYS_statx, fd, "", AT_EMPTY_PATH | AT_STATX_FORCE_SYNC, STATX_BASIC_STATS, &x) < 0) return -errno;
    *out = {};
    out->st_dev = makedev(x.stx_dev_major, x.stx_dev_minor);
    out->st_rdev = makedev(x.stx_rdev_major, x.stx_rdev_minor);
    out->st_ino = x.stx_ino;
    out->st_mode = x.stx_mode;
    out->st_nlink = x.stx_nlink;
    out->st_uid = x.stx_uid;
    out->st_gid = x.stx_gid;
    out->st_size = static_cast<off_t>(x.stx_size);
    out->st_blksize = static_cast<blksize_t>(x.stx_blksize);
    out->st_blocks = static_cast<blkcnt_t>(x.stx_blocks);
    out->st_atim = time_of(x.stx_atime);
    out->st_mtim = time_of(x.stx_mtime);
    out->st_ctim = time_of(x.stx_ctime);
    return 0;
  }
  int64_t birth_time(int dir, const char *name) override {
    struct statx x = {};
    if (::syscall(SYS_statx, dir, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_BTIME, &x) < 0) return -errno;
    if (!(x.stx_mask & STATX_BTIME)) return -ENODATA;
    return x.stx_btime.tv_sec * 1'000'000'000 + x.stx_btime.tv_nsec;
  }
  int fstatat(int dir, const char *path, struct stat *out, int flags) override {
    return answer(::fstatat(dir, path, out, flags));
  }
  int renew_name(int dir, const char *name) override {
    return is_entry(dir, name) ? answer(::linkat(AT_FDCWD, "/proc/self", dir, name, 0)) : -EINVAL;
  }
  int fstatfs(int fd, struct statfs *out) override { return answer(::fstatfs(fd, out)); }
  int syncfs(int fd) override { return answer(::syncfs(fd)); }
  int fchmod(int fd, mode_t mode) override { return answer(::fchmod(fd, mode)); }
  int fchown(int fd, uid_t uid, gid_t gid) override { return answer(::fchown(fd, uid, gid)); }
  int ftruncate(int fd, uint64_t size) override { return answer(::ftruncate(fd, static_cast<off_t>(size))); }
  int extents(int fd, struct fiemap *map) override { return answer(::ioctl(fd, FS_IOC_FIEMAP, map)); }
  int realtime_blocks(int fd, uint64_t *out) override {
    XfsGeometry geometry = {};
    if (::ioctl(fd, get_xfs_geometry, &geometry) < 0) return -errno;
    *out = geometry.realtime_blocks;
    return 0;
  }
  int clone_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) override {
    const struct file_clone_range range = {from_fd, from, n, to};
    return answer(::ioctl(to_fd, FICLONERANGE, &range));
  }
  ssize_t copy_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) override {
    auto in = static_cast<int64_t>(from), out = static_cast<int64_t>(to);
    // A word of the machine: an argument of 64 bits takes two of 32, and on ARM another may be left out before them.
    const auto at_most = static_cast<size_t>(std::min<uint64_t>(n, SSIZE_MAX));
    return answer(static_cast<ssize_t>(::syscall(SYS_copy_file_range, from_fd, &in, to_fd, &out, at_most, 0u)));
  }
  ssize_t flistxattr(int fd, char *names, size_t size) override { return answer(::flistxattr(fd, names, size)); }
  ssize_t fgetxattr(int fd, const char *name, void *value, size_t size) override {
    return answer(::fgetxattr(fd, name, value, size));
  }
  int fsetxattr(int fd, const char *name, const void *value, size_t size) override {
    return answer(::fsetxattr(fd, name, value, size, 0));
  }

  int realpath(const char *path, std::string *out) override { return real_path(path, out); }
  int readlinkat(int dir, const char *name, std::string *out) override { return read_link(dir, name, out); }
  int list(int dir, std::vector<std::string> *out) override {
    // A descriptor of its own: readdir moves the position that dup would share.
    const int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY, 0);
    return fd < 0 ? fd : list_names(fd, out);
  }

  int mkdirat(int dir, const char *name, mode_t mode) override {
    return is_entry(dir, name) ? answer(::mkdirat(dir, name, mode)) : -EINVAL;
  }
  int unlinkat(int dir, const char *name, int flags) override {
    return is_entry(dir, name) ? answer(::unlinkat(dir, name, flags)) : -EINVAL;
  }
  int renameat(int from_dir, const char *from, int to_dir, const char *to) override {
    if (!is_entry(from_dir, from) || !is_entry(to_dir, to)) return -EINVAL;
    return answer(::renameat(from_dir, from, to_dir, to));
  }
  int linkat(int dir, const char *from, const char *to) override {
    return is_entry(dir, from) && is_entry(dir, to) ? answer(::linkat(dir, from, dir, to, 0)) : -EINVAL;
  }
  int lock(int fd, int command, struct flock *lock) override {
    return command == F_OFD_SETLK ? forks_.set_lock(fd, lock) : answer(::fcntl(fd, command, lock));
  }

  int mmap(size_t n, int protection, int flags, int fd, void **out) override {
    void *address = ::mmap(nullptr, n, protection, flags, fd, 0);
    if (address == MAP_FAILED) return -errno;
    *out = address;
    return 0;
  }
  int munmap(void *address, size_t n) override { return answer(::munmap(address, n)); }
  int madvise(void *address, size_t n, int advice) override { return answer(::madvise(address, n, advice)); }
  int mincore(void *address, size_t n, unsigned char *out) override { return answer(::mincore(address, n, out)); }
  ssize_t pread_cached(int fd, void *buffer, size_t n, uint64_t offset) override {
    constexpr int nowait = 8;
    const struct iovec part = {buffer, n};
    const auto low = static_cast<long>(offset), high = static_cast<long>(offset >> 32);
    return answer(::syscall(SYS_preadv2, fd, &part, 1, low, high, nowait));
  }
  ssize_t copy_memory(void *to, const void *from, size_t n) override {
    const struct iovec there = {to, n}, here = {const_cast<void *>(from), n};
    return answer(::process_vm_readv(::getpid(), &there, 1, &here, 1, 0));
  }

  int random(void *out, size_t n) override { return static_cast<int>(answer(::syscall(SYS_getrandom, out, n, 0u))); }
  pid_t getpid() override { return ::getpid(); }
  uint64_t fork_generation() override { return forks_.generation(); }
  unsigned cpus() override {
    const uint64_t process = forks_.generation() << 32;
    uint64_t known = cpus_.load(std::memory_order_relaxed);
    if (known <= process || known - process > UINT32_MAX) {
      known = process + cpus_of_process();
      cpus_.store(known, std::memory_order_relaxed);
    }
    return static_cast<unsigned>(known - process);
  }
  uid_t geteuid() override { return ::geteuid(); }
  uint64_t largest_file() override { return os::largest_file(); }
  uint64_t most_files() override { return os::most_files(); }
  uint64_t monotonic_ms() override {
    timespec t;
    ::clock_gettime(CLOCK_BOOTTIME, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000 + static_cast<uint64_t>(t.tv_nsec) / 1000000;
  }
  uint64_t thread_ns() override {
    timespec t;
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
  }
  uint64_t unix_time() override {
    timespec t;
    ::clock_gettime(CLOCK_REALTIME, &t);
    return static_cast<uint64_t>(t.tv_sec);
  }
  void sleep_us(uint32_t microseconds) override {
    const timespec t{static_cast<time_t>(microseconds / 1000000), static_cast<long>(microseconds % 1000000) * 1000};
    ::nanosleep(&t, nullptr);  // cut short by a signal is fine: callers look again
  }
  const char *getenv(const char *name) override { return ::secure_getenv(name); }

 private:
  Forks forks_;
  std::atomic<uint64_t> cpus_ = 0;  // once asked; above them the process that asked
};

}  // namespace

Env &Env::posix() {
  return forever<PosixEnv>();
}

}  // namespace st::os
