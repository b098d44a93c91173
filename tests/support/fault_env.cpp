#include "fault_env.h"

#include <algorithm>
#include <cerrno>

namespace st::testing {

std::string_view call_name(Call call) {
  constexpr std::string_view names[] = {
      "openat",     "close",     "pread",        "pwrite",     "fsync",      "fdatasync",   "fallocate",  "sync_range",
      "wait_range", "fstat",     "fstatat",      "fstatfs",    "fchmod",     "fchown",      "realpath",   "readlinkat",
      "list",       "mkdirat",   "unlinkat",     "renameat",   "linkat",     "lock",        "mmap",       "munmap",
      "madvise",    "mincore",   "copy_memory",  "random",     "ftruncate",  "clone_range", "copy_range", "flistxattr",
      "fgetxattr",  "fsetxattr", "fstat_synced", "renew_name", "set_direct", "birth_time"};
  return names[static_cast<size_t>(call)];
}

bool can_fail(Call call) {
  switch (call) {
    case Call::close:
    case Call::sync_range:
    case Call::munmap:
    case Call::madvise:
    case Call::mincore:
    case Call::random:
    case Call::renew_name:
    case Call::birth_time: return false;
    default: return true;
  }
}

std::function<int(Call)> nth_call_fails(size_t n, int error, bool sticky, std::function<bool(Call)> counts) {
  return [=, seen = size_t{0}](Call call) mutable {
    if (!counts(call)) return 0;
    const size_t k = seen++;
    return k == n || (sticky && k > n) ? error : 0;
  };
}

int FaultEnv::ask(Call call) {
  {
    std::lock_guard lock(mutex_);
    calls.push_back(call);
  }
  return before ? before(call) : 0;
}

// A short count makes sense for reads and writes only; elsewhere the call goes on.
template <class Forward>
auto FaultEnv::asked(Call call, Forward forward) {
  const int answer = ask(call);
  return answer < 0 ? answer : forward();
}

// The same kind of call as pread; a short one ends inside the first part.
ssize_t FaultEnv::preadv(int fd, const struct iovec *parts, int count, uint64_t offset) {
  const int answer = ask(Call::pread);
  if (answer < 0) return answer;
  if (answer != short_io) return base_.preadv(fd, parts, count, offset);
  const struct iovec half = {parts[0].iov_base, (parts[0].iov_len + 1) / 2};
  return base_.preadv(fd, &half, 1, offset);
}

ssize_t FaultEnv::pread(int fd, void *buffer, size_t n, uint64_t offset) {
  const int answer = ask(Call::pread);
  if (answer < 0) return answer;
  return base_.pread(fd, buffer, answer == short_io && n > 1 ? n / 2 : n, offset);
}

// Linux ends a short write at a page or a block, so never inside a sector: one that lies within a sector is whole.
ssize_t FaultEnv::pwrite(int fd, const void *buffer, size_t n, uint64_t offset) {
  constexpr uint64_t sector = 512;
  const int answer = ask(Call::pwrite);
  if (answer < 0) return answer;
  if (answer != short_io) return base_.pwrite(fd, buffer, n, offset);
  const uint64_t first = offset - offset % sector + sector, middle = offset + n / 2;
  const uint64_t end = std::min(std::max(middle - middle % sector, first), offset + n);
  return base_.pwrite(fd, buffer, end - offset, offset);
}

int FaultEnv::openat(int dir, const char *path, int flags, mode_t mode) {
  if (const int answer = before_open ? before_open(path, flags) : 0; answer < 0) return answer;
  return asked(Call::openat, [&] { return base_.openat(dir, path, flags, mode); });
}

int FaultEnv::openat_without_links(int dir, const char *path, int flags) {
  return asked(Call::openat, [&] { return base_.openat_without_links(dir, path, flags); });
}

int FaultEnv::close(int fd) {
  return asked(Call::close, [&] { return base_.close(fd); });
}

int FaultEnv::fsync(int fd) {
  return asked(Call::fsync, [&] { return base_.fsync(fd); });
}

int FaultEnv::fdatasync(int fd) {
  return asked(Call::fdatasync, [&] { return base_.fdatasync(fd); });
}

int FaultEnv::fallocate(int fd, int mode, uint64_t offset, uint64_t n) {
  return asked(Call::fallocate, [&] { return base_.fallocate(fd, mode, offset, n); });
}

int FaultEnv::sync_range(int fd, uint64_t offset, uint64_t n) {
  return asked(Call::sync_range, [&] { return base_.sync_range(fd, offset, n); });
}

int FaultEnv::wait_range(int fd, uint64_t offset, uint64_t n) {
  return asked(Call::wait_range, [&] { return base_.wait_range(fd, offset, n); });
}

int FaultEnv::fstat(int fd, struct stat *out) {
  return asked(Call::fstat, [&] { return base_.fstat(fd, out); });
}

int FaultEnv::set_direct(int fd) {
  return asked(Call::set_direct, [&] { return base_.set_direct(fd); });
}

int FaultEnv::fstat_synced(int fd, struct stat *out) {
  return asked(Call::fstat_synced, [&] { return base_.fstat_synced(fd, out); });
}

int64_t FaultEnv::birth_time(int dir, const char *name) {
  const int answer = ask(Call::birth_time);
  return answer < 0 ? answer : base_.birth_time(dir, name);
}

int FaultEnv::fstatat(int dir, const char *path, struct stat *out, int flags) {
  return asked(Call::fstatat, [&] { return base_.fstatat(dir, path, out, flags); });
}

int FaultEnv::renew_name(int dir, const char *name) {
  return asked(Call::renew_name, [&] { return base_.renew_name(dir, name); });
}

int FaultEnv::fstatfs(int fd, struct statfs *out) {
  const int r = asked(Call::fstatfs, [&] { return base_.fstatfs(fd, out); });
  if (r == 0 && told_of_disk) told_of_disk(*out);
  return r;
}

int FaultEnv::fchmod(int fd, mode_t mode) {
  return asked(Call::fchmod, [&] { return base_.fchmod(fd, mode); });
}

int FaultEnv::fchown(int fd, uid_t uid, gid_t gid) {
  return asked(Call::fchown, [&] { return base_.fchown(fd, uid, gid); });
}

int FaultEnv::ftruncate(int fd, uint64_t size) {
  return asked(Call::ftruncate, [&] { return base_.ftruncate(fd, size); });
}

int FaultEnv::clone_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) {
  return asked(Call::clone_range, [&] { return base_.clone_range(to_fd, from_fd, from, n, to); });
}

ssize_t FaultEnv::copy_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) {
  const int answer = ask(Call::copy_range);
  if (answer < 0) return answer;
  return base_.copy_range(to_fd, from_fd, from, answer == short_io && n > 1 ? n / 2 : n, to);
}

ssize_t FaultEnv::flistxattr(int fd, char *names, size_t size) {
  return asked(Call::flistxattr, [&] { return base_.flistxattr(fd, names, size); });
}

ssize_t FaultEnv::fgetxattr(int fd, const char *name, void *value, size_t size) {
  return asked(Call::fgetxattr, [&] { return base_.fgetxattr(fd, name, value, size); });
}

int FaultEnv::fsetxattr(int fd, const char *name, const void *value, size_t size) {
  return asked(Call::fsetxattr, [&] { return base_.fsetxattr(fd, name, value, size); });
}

int FaultEnv::realpath(const char *path, std::string *out) {
  return asked(Call::realpath, [&] { return base_.realpath(path, out); });
}

int FaultEnv::readlinkat(int dir, const char *name, std::string *out) {
  return asked(Call::readlinkat, [&] { return base_.readlinkat(dir, name, out); });
}

int FaultEnv::list(int dir, std::vector<std::string> *out) {
  return asked(Call::list, [&] { return base_.list(dir, out); });
}

int FaultEnv::mkdirat(int dir, const char *name, mode_t mode) {
  return asked(Call::mkdirat, [&] { return base_.mkdirat(dir, name, mode); });
}

int FaultEnv::unlinkat(int dir, const char *name, int flags) {
  return asked(Call::unlinkat, [&] { return base_.unlinkat(dir, name, flags); });
}

int FaultEnv::renameat(int from_dir, const char *from, int to_dir, const char *to) {
  return asked(Call::renameat, [&] { return base_.renameat(from_dir, from, to_dir, to); });
}

int FaultEnv::linkat(int dir, const char *from, const char *to) {
  return asked(Call::linkat, [&] { return base_.linkat(dir, from, to); });
}

int FaultEnv::lock(int fd, int command, struct flock *lock) {
  return asked(Call::lock, [&] { return base_.lock(fd, command, lock); });
}

int FaultEnv::mmap(size_t n, int protection, int flags, int fd, void **out) {
  return asked(Call::mmap, [&] { return base_.mmap(n, protection, flags, fd, out); });
}

int FaultEnv::munmap(void *address, size_t n) {
  return asked(Call::munmap, [&] { return base_.munmap(address, n); });
}

int FaultEnv::madvise(void *address, size_t n, int advice) {
  return asked(Call::madvise, [&] { return base_.madvise(address, n, advice); });
}

int FaultEnv::mincore(void *address, size_t n, unsigned char *out) {
  return asked(Call::mincore, [&] { return base_.mincore(address, n, out); });
}

ssize_t FaultEnv::copy_memory(void *to, const void *from, size_t n) {
  const int answer = ask(Call::copy_memory);
  if (answer < 0) return answer;
  return base_.copy_memory(to, from, answer == short_io ? (n + 1) / 2 : n);
}

int FaultEnv::random(void *out, size_t n) {
  return asked(Call::random, [&] { return base_.random(out, n); });
}

}  // namespace st::testing
