#include "os/range_lock.h"

#include <algorithm>
#include <cerrno>

#include "check.h"

namespace st::os {
namespace {

struct flock flock_of(const LockRange &range, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(range.begin);
  lock.l_len = static_cast<off_t>(range.length);
  return lock;
}

short type_of(const LockRange &range) {
  return range.exclusive ? F_WRLCK : F_RDLCK;
}

bool means_unsupported(int err) {
  return err == EINVAL || err == ENOSYS || err == EOPNOTSUPP || err == ENOLCK;
}

Failure lock_failure(const File &file, int err) {
  if (means_unsupported(err))
    return fail(Status::lock_unsupported, "the filesystem of ", in_quotes(file.path()),
                " has no byte-range locks, so it cannot be changed safely; copy the file to one that has");
  return Failure(file.error(err, "lock"));
}

// One range: try, then look again at growing intervals until time is up.
Result<void> take(const File &file, const LockRange &range, const LockWait &wait, uint64_t deadline) {
  constexpr uint32_t shortest_us = 100, longest_us = 10000, between_checks_us = 100000;
  bool waited = false;
  uint32_t unchecked_us = 0;
  for (uint32_t pause_us = shortest_us;; pause_us = std::min(pause_us * 2, longest_us)) {
    struct flock lock = flock_of(range, type_of(range));
    const int r = repeat_interrupted([&] { return file.env().lock(file.fd(), F_OFD_SETLK, &lock); });
    if (r >= 0) return {};
    if (r != -EAGAIN && r != -EACCES) return lock_failure(file, -r);
    if (!waited) {
      waited = true;
      if (wait.waits) ++*wait.waits;
    }
    if (wait.control && wait.control->interrupted())
      return fail(Status::interrupted, "the wait for a lock on ", in_quotes(file.path()),
                  " was interrupted; nothing was changed");
    if (wait.timeout_ms >= 0 && file.env().monotonic_ms() >= deadline)
      return Failure(error(Status::busy, "another worker holds a lock on ", in_quotes(file.path()),
                           "; try again, or allow more time")
                         .at_offset(range.begin));
    if (unchecked_us >= between_checks_us && wait.control) {
      unchecked_us = 0;
      if (auto go = wait.control->check(0, 0); !go) return go;
    }
    file.env().sleep_us(pause_us);
    unchecked_us += pause_us;
  }
}

}  // namespace

Result<RangeLock> RangeLock::acquire(const File &file, std::vector<LockRange> ranges, const LockWait &wait) {
  std::sort(ranges.begin(), ranges.end(), [](const LockRange &a, const LockRange &b) { return a.begin < b.begin; });
  const uint64_t deadline = file.env().monotonic_ms() + static_cast<uint64_t>(std::max(wait.timeout_ms, 0));
  RangeLock held;
  held.file_ = &file;
  held.process_ = file.env().getpid();
  for (const LockRange &range : ranges)
    if (auto taken = take(file, range, wait, deadline); !taken) return Failure(std::move(taken.error()));
  return held;
}

void RangeLock::release() {
  const File *file = std::exchange(file_, nullptr);
  if (!file || file->env().getpid() != process_) return;
  struct flock lock = flock_of({0, 0, false}, F_UNLCK);
  file->env().lock(file->fd(), F_OFD_SETLK, &lock);
}

Result<bool> is_locked(const File &file, const LockRange &range) {
  struct flock lock = flock_of(range, type_of(range));
  if (const int r = file.env().lock(file.fd(), F_OFD_GETLK, &lock); r < 0) return lock_failure(file, -r);
  return lock.l_type != F_UNLCK;
}

Result<bool> locks_exclude(const File &locked, const File &second, const LockRange &range) {
  ST_ASSERT(locked.fd() != second.fd());
  struct flock lock = flock_of(range, F_WRLCK);
  const int r = second.env().lock(second.fd(), F_OFD_SETLK, &lock);
  if (r == -EAGAIN || r == -EACCES) return true;
  if (r < 0) return lock_failure(second, -r);
  lock = flock_of({0, 0, false}, F_UNLCK);
  second.env().lock(second.fd(), F_OFD_SETLK, &lock);
  return false;
}

}  // namespace st::os
