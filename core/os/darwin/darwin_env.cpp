// Env on macOS. Nobody has run it: it is compiled and linked, and no more. So whatever would change a file is refused.
#include <mach/mach.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "base/forever.h"
#include "os/env.h"
#include "os/posix_names.h"
#include "os/process.h"

// <sys/xattr.h>, which zig's headers lack.
extern "C" {
ssize_t flistxattr(int fd, char *names, size_t size, int options);
ssize_t fgetxattr(int fd, const char *name, void *value, size_t size, uint32_t position, int options);
int fsetxattr(int fd, const char *name, const void *value, size_t size, uint32_t position, int options);
}

namespace st::os {
namespace {

// Until somebody has run the storm there. A lock of fcntl goes when any descriptor of its file is closed by the
// process, and libst opens a file more than once: Env::lock promises more than it can have there.
constexpr bool changes_are_tested = false;

template <class R>
R answer(R r) {
  return r < 0 ? static_cast<R>(-errno) : r;
}

// As Linux numbers filesystems.
struct Number {
  const char *name;
  uint32_t number;
};
constexpr Number numbers[] = {
    {"apfs", 0x4253584E}, {"hfs", 0x482B},       {"msdos", 0x4D44},       {"exfat", 0x2011BAB0},   {"ntfs", 0x5346544E},
    {"nfs", 0x6969},      {"smbfs", 0xFE534D42}, {"osxfuse", 0x65735546}, {"macfuse", 0x65735546},
};

std::atomic<uint64_t> forks = 0;

class DarwinEnv final : public Env {
 public:
  DarwinEnv() {
    at_fork([] {}, [] {}, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  }

  int openat(int dir, const char *path, int flags, mode_t mode) override {
    if ((flags & O_CREAT) && !is_entry(dir, path)) return -EINVAL;
    if (flags & O_DIRECT) return -EINVAL;
    if (const int r = refused((flags & (O_ACCMODE | O_CREAT | O_TRUNC)) != O_RDONLY); r < 0) return r;
    return answer(::openat(dir, path, flags | O_CLOEXEC, mode));
  }
  int openat_without_links(int dir, const char *path, int flags) override {
    return openat(dir, path, flags | O_NOFOLLOW_ANY, 0);
  }
  int close(int fd) override { return answer(::close(fd)); }
  ssize_t pread(int fd, void *buffer, size_t n, uint64_t offset) override {
    return answer(::pread(fd, buffer, n, static_cast<off_t>(offset)));
  }
  ssize_t preadv(int fd, const struct iovec *parts, int count, uint64_t offset) override {
    return answer(::preadv(fd, parts, count, static_cast<off_t>(offset)));
  }
  ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override {
    return answer(::pwrite(fd, buffer, n, static_cast<off_t>(offset)));
  }
  // Here fsync leaves bytes in the cache of the disk.
  int fsync(int fd) override { return answer(::fcntl(fd, F_FULLFSYNC)); }
  int fdatasync(int fd) override { return fsync(fd); }
  int fallocate(int, int, uint64_t, uint64_t) override { return -EOPNOTSUPP; }
  int sync_range(int, uint64_t, uint64_t) override { return -ENOSYS; }
  int wait_range(int, uint64_t, uint64_t) override { return -ENOSYS; }
  int fadvise(int fd, uint64_t, uint64_t, int advice) override {
    return advice == POSIX_FADV_SEQUENTIAL ? answer(::fcntl(fd, F_RDAHEAD, 1)) : -ENOSYS;
  }
  int64_t seek_hole(int fd, uint64_t offset) override {
    return answer(::lseek(fd, static_cast<off_t>(offset), SEEK_HOLE));
  }
  int extents(int, struct fiemap *) override { return -ENOSYS; }
  int realtime_blocks(int, uint64_t *) override { return -ENOSYS; }
  int fstat(int fd, struct stat *out) override { return answer(::fstat(fd, out)); }
  int set_direct(int) override { return -ENOSYS; }
  int fstat_synced(int, struct stat *) override { return -ENOSYS; }
  int fstatat(int dir, const char *path, struct stat *out, int flags) override {
    return answer(::fstatat(dir, path, out, flags));
  }
  int renew_name(int, const char *) override { return -ENOSYS; }
  int fstatfs(int fd, struct statfs *out) override {
    if (::fstatfs(fd, out) < 0) return -errno;
    out->f_type = 0;
    for (const Number &n : numbers)
      if (std::strcmp(n.name, out->f_fstypename) == 0) out->f_type = n.number;
    return 0;
  }
  int fchmod(int fd, mode_t mode) override { return answer(::fchmod(fd, mode)); }
  int fchown(int fd, uid_t uid, gid_t gid) override { return answer(::fchown(fd, uid, gid)); }
  int ftruncate(int fd, uint64_t size) override { return answer(::ftruncate(fd, static_cast<off_t>(size))); }
  // clonefile shares the blocks of whole files, and no ranges.
  int clone_range(int, int, uint64_t, uint64_t, uint64_t) override { return -EOPNOTSUPP; }
  ssize_t copy_range(int, int, uint64_t, uint64_t, uint64_t) override { return -ENOSYS; }
  ssize_t flistxattr(int fd, char *names, size_t size) override { return answer(::flistxattr(fd, names, size, 0)); }
  ssize_t fgetxattr(int fd, const char *name, void *value, size_t size) override {
    const ssize_t r = answer(::fgetxattr(fd, name, value, size, 0, 0));
    return r == -ENOATTR ? -ENODATA : r;  // as Linux calls it
  }
  int fsetxattr(int fd, const char *name, const void *value, size_t size) override {
    return answer(::fsetxattr(fd, name, value, size, 0, 0));
  }

  int realpath(const char *path, std::string *out) override { return real_path(path, out); }
  int readlinkat(int dir, const char *name, std::string *out) override { return read_link(dir, name, out); }
  int list(int dir, std::vector<std::string> *out) override {
    // A descriptor of its own: readdir moves the position that dup would share.
    const int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY, 0);
    return fd < 0 ? fd : list_names(fd, out);
  }

  int mkdirat(int dir, const char *name, mode_t mode) override {
    if (!is_entry(dir, name)) return -EINVAL;
    const int r = refused(true);
    return r < 0 ? r : answer(::mkdirat(dir, name, mode));
  }
  int unlinkat(int dir, const char *name, int flags) override {
    if (!is_entry(dir, name)) return -EINVAL;
    const int r = refused(true);
    return r < 0 ? r : answer(::unlinkat(dir, name, flags));
  }
  int renameat(int from_dir, const char *from, int to_dir, const char *to) override {
    if (!is_entry(from_dir, from) || !is_entry(to_dir, to)) return -EINVAL;
    const int r = refused(true);
    return r < 0 ? r : answer(::renameat(from_dir, from, to_dir, to));
  }
  int lock(int fd, int command, struct flock *lock) override {
    return answer(::fcntl(fd, command == F_OFD_SETLK ? F_SETLK : F_GETLK, lock));
  }

  int mmap(size_t n, int protection, int flags, int fd, void **out) override {
    if (flags & MAP_HUGETLB) return -EINVAL;
    void *address = ::mmap(nullptr, n, protection, flags, fd, 0);
    if (address == MAP_FAILED) return -errno;
    *out = address;
    return 0;
  }
  int munmap(void *address, size_t n) override { return answer(::munmap(address, n)); }
  int madvise(void *address, size_t n, int advice) override { return answer(::madvise(address, n, advice)); }
  int mincore(void *address, size_t n, unsigned char *out) override {
    return answer(::mincore(address, n, reinterpret_cast<char *>(out)));
  }
  ssize_t copy_memory(void *to, const void *from, size_t n) override {
    vm_size_t copied = 0;
    const auto at = [](const void *p) { return reinterpret_cast<vm_address_t>(p); };
    const kern_return_t r = ::vm_read_overwrite(mach_task_self(), at(from), n, at(to), &copied);
    return r == KERN_SUCCESS ? static_cast<ssize_t>(copied) : -EFAULT;
  }

  int random(void *out, size_t n) override {
    constexpr size_t most = 256;  // of getentropy
    if (n > most) n = most;
    return ::getentropy(out, n) < 0 ? -errno : static_cast<int>(n);
  }
  pid_t getpid() override { return ::getpid(); }
  uint64_t fork_generation() override { return forks.load(std::memory_order_relaxed); }
  unsigned cpus() override {
    const long n = ::sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? static_cast<unsigned>(n) : 1;
  }
  uid_t geteuid() override { return ::geteuid(); }
  uint64_t largest_file() override { return os::largest_file(); }
  uint64_t most_files() override { return os::most_files(); }
  uint64_t monotonic_ms() override { return nanoseconds(CLOCK_MONOTONIC) / 1'000'000; }
  uint64_t thread_ns() override { return nanoseconds(CLOCK_THREAD_CPUTIME_ID); }
  uint64_t unix_time() override { return nanoseconds(CLOCK_REALTIME) / 1'000'000'000; }
  void sleep_us(uint32_t microseconds) override {
    const timespec t{static_cast<time_t>(microseconds / 1000000), static_cast<long>(microseconds % 1000000) * 1000};
    ::nanosleep(&t, nullptr);  // cut short by a signal is fine: callers look again
  }
  const char *getenv(const char *name) override { return ::issetugid() ? nullptr : ::getenv(name); }

  std::string why_read_only() override {
    return changes_are_tested ? "" : "libst changes no files on macOS: nobody has tried that there yet";
  }

 private:
  static int refused(bool is_change) { return is_change && !changes_are_tested ? -EROFS : 0; }
  static uint64_t nanoseconds(clockid_t clock) {
    timespec t;
    ::clock_gettime(clock, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
  }
};

}  // namespace

Env &Env::posix() {
  return forever<DarwinEnv>();
}

}  // namespace st::os
