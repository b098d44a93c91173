#include "os/source_env.h"

#include <algorithm>
#include <cerrno>

#include "base/interrupt.h"

namespace st::os {
namespace {

// Larger than any that the kernel gives: a slip that hands it to the kernel is EBADF, and no other file.
constexpr int descriptor = 1 << 30;
constexpr mode_t plain_file = S_IFREG | 0444;

}  // namespace

SourceEnv::SourceEnv(std::unique_ptr<Source> source) : source_(std::move(source)), reads_(source_->most_reads()) {}

int SourceEnv::openat(int /*dir*/, const char * /*path*/, int flags, mode_t /*mode*/) {
  if (flags & O_DIRECTORY) return -ENOTDIR;
  if ((flags & O_ACCMODE) != O_RDONLY) return -EROFS;
  if (flags & O_DIRECT) return -EINVAL;  // as of a filesystem that has no such reads
  return is_of_parent() ? -EACCES : descriptor;
}

int SourceEnv::openat_without_links(int dir, const char *path, int flags) {
  return openat(dir, path, flags, 0);
}

int SourceEnv::close(int fd) {
  return fd == descriptor ? 0 : -EBADF;
}

int SourceEnv::fstat(int fd, struct stat *out) {
  if (fd != descriptor) return -EBADF;
  *out = {};
  out->st_mode = plain_file;
  out->st_nlink = 1;
  out->st_size = static_cast<off_t>(source_->size());
  return 0;
}

std::string SourceEnv::why() {
  if (!is_of_parent()) return source_->why();
  return text("cannot read ", in_quotes(source_->name()),
              ": the parent process opened it, before a fork; open it anew");
}

int SourceEnv::read(std::span<const Source::Range> ranges) {
  if (is_of_parent()) return -EOPNOTSUPP;
  if (!reads_.acquire_unless([] { return InterruptCheck::stops(); })) return -ECANCELED;
  // The read may ask a caller that forks. In the child a thread that is not there may have locked the permits.
  struct Return {
    Permits &to;
    const MadeIn &made_in;
    ~Return() {
      if (made_in.this_process()) to.release();
    }
  } const give_back{reads_, made_in_};
  const int answer = -source_->read(ranges);
  return is_of_parent() ? -EOPNOTSUPP : answer;  // the child that it forked has no thread, and no place, of its own
}

ssize_t SourceEnv::pread(int fd, void *buffer, size_t n, uint64_t offset) {
  struct iovec whole = {buffer, n};
  return preadv(fd, &whole, 1, offset);
}

ssize_t SourceEnv::preadv(int fd, const struct iovec *parts, int count, uint64_t offset) {
  if (fd != descriptor) return -EBADF;
  uint64_t left = offset < source_->size() ? source_->size() - offset : 0;
  std::vector<Source::Range> ranges;
  ranges.reserve(static_cast<size_t>(count));
  uint64_t at = offset;
  for (int i = 0; i < count && left > 0; ++i) {
    const uint64_t n = std::min<uint64_t>(parts[i].iov_len, left);
    if (n > 0) ranges.push_back({at, n, parts[i].iov_base});
    at += n;
    left -= n;
  }
  if (ranges.empty()) return 0;
  if (const int r = read(ranges); r < 0) return r;
  return static_cast<ssize_t>(at - offset);
}

int SourceEnv::mmap(size_t n, int protection, int flags, int fd, void **out) {
  return flags & MAP_ANONYMOUS ? process_.mmap(n, protection, flags, fd, out) : -ENODEV;
}

}  // namespace st::os
