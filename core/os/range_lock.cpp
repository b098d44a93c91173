#include "os/range_lock.h"

#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/check.h"
#include "base/round.h"
#include "os/filesystem.h"
#include "os/process.h"
#include "os/waited.h"

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
  return err == EINVAL || err == ENOSYS || err == EOPNOTSUPP || err == ENOLCK || err == EPERM;
}

// Also what gives back or looks is repeated: a server of FUSE may be interrupted at it. No request waits for a lock, so
// signals that are held back come soon. Nobody has asked where a temporary file lies, and it may be on GlusterFS.
int ask(const File &file, int command, struct flock *lock) {
  std::optional<SignalsHeldBack> quiet;
  if (file.locks_fear_signals() || !file.reads_past_cache()) quiet.emplace();
  return repeat_interrupted([&] { return file.env().lock(file.fd(), command, lock); });
}

Failure lock_failure(const File &file, int err) {
  // By a filter of system calls, as a sandbox has one; or by AppArmor or SELinux.
  if (err == EPERM || err == EACCES)
    return fail(Status::lock_unsupported, "byte-range locks are forbidden to this process, so ", in_quotes(file.path()),
                " cannot be changed safely; allow F_OFD_SETLK and F_OFD_GETLK of fcntl (to AppArmor that is k, to "
                "SELinux lock)");
  if (means_unsupported(err))
    return fail(Status::lock_unsupported, "the filesystem of ", in_quotes(file.path()),
                " has no byte-range locks, so it cannot be changed safely; copy the file to one that has");
  // Only a server answers that of an open file: see File::stat.
  return Failure(file.error(err == ENOENT ? ESTALE : file.meant(err), "lock"));
}

// What the waits of the call before this one have left for it.
uint64_t allowed_ms(const LockWait &wait) {
  const auto whole = static_cast<uint64_t>(std::max(wait.timeout_ms, 0));
  return whole - std::min(whole, WaitedByCall::ms());
}

}  // namespace

Patience::Patience(const File &file, const LockWait &wait)
    : file_(file), wait_(wait), begun_(file.env().monotonic_ms()), deadline_(begun_ + allowed_ms(wait)) {}

Patience::~Patience() {
  if (slept_) WaitedByCall::add(file_.env().monotonic_ms() - begun_);
}

void Patience::next_lock() {
  counted_ = false;
  look_often();
}

Result<void> Patience::check(uint64_t blocked_at) {
  constexpr uint64_t between_checks_us = 50000;
  if (!std::exchange(counted_, true) && wait_.waits) ++*wait_.waits;
  if (wait_.control && wait_.control->interrupted())
    return fail(Status::interrupted, "the wait for a lock on ", in_quotes(file_.path()),
                " was interrupted; nothing was changed");
  if (wait_.timeout_ms >= 0 && file_.env().monotonic_ms() >= deadline_)
    return Failure(error(Status::busy, "another worker holds a lock on ", in_quotes(file_.path()),
                         "; try again, or allow more time")
                       .at_offset(blocked_at));
  if (unchecked_us_ < between_checks_us || !wait_.control) return {};
  unchecked_us_ = 0;
  return wait_.control->check(0, 0);
}

void Patience::sleep() {
  constexpr uint64_t shortest_us = 100, longest_us = 10000;
  const uint64_t pause_us = std::clamp(slept_us_ / 16, shortest_us, longest_us);
  file_.env().sleep_us(static_cast<uint32_t>(pause_us));
  slept_ = true;
  slept_us_ += pause_us;
  unchecked_us_ += pause_us;
}

// EACCES: AppArmor and SELinux say so of any lock, and a client of SMB of one that another worker holds. To ask for the
// holder would not tell: it may have let go in between.
Result<bool> RangeLock::try_take(const LockRange &range) {
  // SIGKILL is not held back. So a wait looks before each further request: a look may be interrupted.
  if (std::exchange(was_refused_, false) && file_->locks_fear_signals()) {
    ST_TRY(was_refused_, is_locked(*file_, range));
    if (was_refused_) return false;
  }
  struct flock lock = flock_of(range, type_of(range));
  const int r = ask(*file_, F_OFD_SETLK, &lock);
  if (r >= 0) return true;
  was_refused_ = true;
  if (r == -EAGAIN) return false;
  if (r == -EACCES && may_have_other_hosts(ask_filesystem(*file_).value_or(Filesystem()))) return false;
  return lock_failure(*file_, -r);
}

void RangeLock::drop(const LockRange &range) {
  struct flock lock = flock_of(range, F_UNLCK);
  ask(*file_, F_OFD_SETLK, &lock);
}

Result<RangeLock> RangeLock::acquire(const File &file, std::vector<LockRange> ranges, const LockWait &wait) {
  std::sort(ranges.begin(), ranges.end(), [](const LockRange &a, const LockRange &b) { return a.begin < b.begin; });
  Patience patience(file, wait);
  RangeLock held(file);
  for (const LockRange &range : ranges) {
    patience.next_lock();
    for (;;) {
      ST_TRY(auto taken, held.try_take(range));
      if (taken) break;
      ST_TRY(patience.check(range.begin));
      patience.sleep();
    }
  }
  return held;
}

void RangeLock::release() {
  const File *file = std::exchange(file_, nullptr);
  if (!file || !made_in_.this_process()) return;
  struct flock lock = flock_of({0, 0, false}, F_UNLCK);
  ask(*file, F_OFD_SETLK, &lock);
}

Result<std::vector<LockRange>> to_pages(const File &file, std::vector<LockRange> ranges) {
  constexpr uint64_t most = uint64_t{16} << 10;  // beyond it st_blksize says how large a request is to be
  const auto least = uint64_t{page_size()};
  const bool exclusive = std::any_of(ranges.begin(), ranges.end(), [](const LockRange &r) { return r.exclusive; });
  if (!exclusive || !file.reads_past_cache() || file.writes_past_cache()) return ranges;
  ST_TRY(auto s, file.stat());
  const auto block = static_cast<uint64_t>(s.st_blksize);
  const uint64_t page = std::has_single_bit(block) && block <= most ? std::max(block, least) : least;
  std::vector<LockRange> pages;
  for (const LockRange &range : ranges) {
    if (!range.exclusive || range.length == 0) {
      pages.push_back(range);
      continue;
    }
    const uint64_t from = round_down(range.begin, page);
    const uint64_t until = round_up(range.begin + range.length, page);
    const uint64_t locked = pages.empty() ? 0 : pages.back().begin + pages.back().length;
    if (from <= locked && !pages.empty() && pages.back().exclusive)
      pages.back().length = std::max(until, locked) - pages.back().begin;
    else
      pages.push_back({std::max(from, locked), until - std::max(from, locked), true});
  }
  return pages;
}

Result<bool> is_locked(const File &file, const LockRange &range) {
  struct flock lock = flock_of(range, type_of(range));
  if (const int r = ask(file, F_OFD_GETLK, &lock); r < 0) return lock_failure(file, -r);
  return lock.l_type != F_UNLCK;
}

Result<std::optional<LockRange>> locked_part(const File &file, const LockRange &range) {
  struct flock lock = flock_of(range, type_of(range));
  if (const int r = file.env().lock(file.fd(), F_OFD_GETLK, &lock); r < 0) return lock_failure(file, -r);
  if (lock.l_type == F_UNLCK) return std::nullopt;
  const auto end_of = [](uint64_t begin, uint64_t length) { return length == 0 ? UINT64_MAX : begin + length; };
  const auto at = static_cast<uint64_t>(lock.l_start);
  const uint64_t end = std::min(end_of(range.begin, range.length), end_of(at, static_cast<uint64_t>(lock.l_len)));
  const uint64_t begin = std::max(range.begin, at);
  return LockRange{begin, end > begin ? end - begin : range.length, lock.l_type == F_WRLCK};
}

Result<Locked> how_locked(const File &file) {
  struct flock lock = flock_of(whole_file(true), F_WRLCK);
  if (const int r = ask(file, F_OFD_GETLK, &lock); r < 0) return lock_failure(file, -r);
  return lock.l_type == F_UNLCK ? Locked::no : lock.l_type == F_RDLCK ? Locked::shared : Locked::exclusive;
}

Result<bool> locks_exclude(const File &locked, const File &second, const LockRange &range) {
  ST_ASSERT(locked.fd() != second.fd());
  struct flock lock = flock_of(range, F_WRLCK);
  const int r = ask(second, F_OFD_SETLK, &lock);
  if (r == -EAGAIN || r == -EACCES) return true;
  if (r < 0) return lock_failure(second, -r);
  lock = flock_of({0, 0, false}, F_UNLCK);
  ask(second, F_OFD_SETLK, &lock);
  return false;
}

}  // namespace st::os
