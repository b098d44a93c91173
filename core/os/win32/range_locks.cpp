// LockFileEx is no fcntl: a handle's own locks exclude it, none changes its kind, and what is unlocked must be what was
// locked. So a change of what is held is several calls. They are one to others: everybody makes them under a byte of
// their own, the mutex. It lives as long as its process, or less, like all locks.
#include "os/win32/range_locks.h"

#include <algorithm>
#include <cerrno>

namespace st::os {
namespace {

// Where ranges begin, and what their 2^62 bytes and more are folded into, to stay below 2^63: the first half stands for
// a file's bytes, which are fewer by far; the turnstile's come after.
constexpr uint64_t first = uint64_t{1} << 62, of_files = uint64_t{1} << 61, whole = uint64_t{1} << 62;
constexpr uint64_t end_of_all = first + of_files + 1024, mutex_byte = end_of_all;

uint64_t place_of(uint64_t offset) {
  return first +
         (offset < whole ? std::min(offset, of_files - 1) : of_files + std::min<uint64_t>(offset - whole, 1024));
}

int lock(HANDLE handle, uint64_t begin, uint64_t n, bool exclusive) {
  OVERLAPPED place = overlapped_at(begin);
  const DWORD how = LOCKFILE_FAIL_IMMEDIATELY | (exclusive ? LOCKFILE_EXCLUSIVE_LOCK : 0);
  if (::LockFileEx(handle, how, 0, static_cast<DWORD>(n), static_cast<DWORD>(n >> 32), &place)) return 0;
  const DWORD error = ::GetLastError();
  if (error == ERROR_IO_PENDING) return -EAGAIN;
  return error == ERROR_INVALID_FUNCTION || error == ERROR_NOT_SUPPORTED ? -ENOLCK : of_error(error);
}

void unlock(HANDLE handle, uint64_t begin, uint64_t n) {
  OVERLAPPED place = overlapped_at(begin);
  ::UnlockFileEx(handle, 0, static_cast<DWORD>(n), static_cast<DWORD>(n >> 32), &place);
}

// A process that was stopped inside keeps others out: they are told that the range is taken, and come again.
class Mutex {
 public:
  explicit Mutex(HANDLE handle) : handle_(handle) {
    constexpr int attempts = 200;
    for (int i = 0; i < attempts; ++i) {
      answer_ = lock(handle_, mutex_byte, 1, true);
      if (answer_ != -EAGAIN) return;
      ::Sleep(i < attempts / 2 ? 0 : 1);
    }
  }
  ~Mutex() {
    if (answer_ == 0) unlock(handle_, mutex_byte, 1);
  }
  Mutex(const Mutex &) = delete;
  Mutex &operator=(const Mutex &) = delete;
  int answer() const { return answer_; }

 private:
  const HANDLE handle_;
  int answer_ = -EAGAIN;
};

}  // namespace

int RangeLocks::take(HANDLE handle, const Range &range) {
  return lock(handle, range.begin, range.end - range.begin, range.exclusive);
}

void RangeLocks::drop(HANDLE handle, const Range &range) {
  unlock(handle, range.begin, range.end - range.begin);
}

RangeLocks::Range RangeLocks::range_of(const struct flock &lock) {
  const auto begin = static_cast<uint64_t>(lock.l_start), length = static_cast<uint64_t>(lock.l_len);
  return {place_of(begin), length == 0 ? end_of_all : place_of(begin + length - 1) + 1, lock.l_type == F_WRLCK};
}

// Under the mutex. What of it is held already goes first, and comes back in its new shape, or in the old one.
int RangeLocks::change(HANDLE handle, Ranges *held, const Range &wanted, bool unlock) {
  Ranges old, rest;
  for (const Range &r : *held) (r.begin < wanted.end && wanted.begin < r.end ? old : rest).push_back(r);
  Ranges fresh;
  for (const Range &r : old) {
    if (r.begin < wanted.begin) fresh.push_back({r.begin, wanted.begin, r.exclusive});
    if (wanted.end < r.end) fresh.push_back({wanted.end, r.end, r.exclusive});
  }
  if (!unlock) fresh.push_back(wanted);
  rest.reserve(rest.size() + std::max(old.size(), fresh.size()));
  for (const Range &r : old) drop(handle, r);
  int answer = 0;
  size_t taken = 0;
  for (; taken < fresh.size() && answer == 0; ++taken) answer = take(handle, fresh[taken]);
  if (answer != 0) {
    for (size_t i = 0; i + 1 < taken; ++i) drop(handle, fresh[i]);
    for (const Range &r : old) take(handle, r);
    fresh = std::move(old);
  }
  rest.insert(rest.end(), fresh.begin(), fresh.end());
  held->swap(rest);
  return answer;
}

int RangeLocks::set(int fd, const struct flock &wanted) {
  const HANDLE handle = handle_of(fd);
  const Range range = range_of(wanted);
  const bool frees = wanted.l_type == F_UNLCK;
  const std::lock_guard lock(mutex_);
  Ranges &held = held_[fd];
  // Each of its locks goes whole: others see them go one by one.
  const bool splits = std::any_of(held.begin(), held.end(), [&](const Range &r) {
    return r.begin < range.end && range.begin < r.end && (r.begin < range.begin || range.end < r.end);
  });
  if (frees && !splits) return change(handle, &held, range, true);
  const Mutex alone(handle);
  return alone.answer() != 0 ? alone.answer() : change(handle, &held, range, frees);
}

int RangeLocks::ask(int fd, struct flock *asked) {
  const HANDLE handle = handle_of(fd);
  const Range range = range_of(*asked);
  const std::lock_guard lock(mutex_);
  Ranges &held = held_[fd];
  const Mutex alone(handle);
  if (alone.answer() == -EAGAIN) return 0;  // somebody is about to take or to ask; as good as taken
  if (alone.answer() != 0) return alone.answer();
  Ranges own;
  for (const Range &r : held)
    if (r.begin < range.end && range.begin < r.end) own.push_back(r);
  for (const Range &r : own) drop(handle, r);
  const auto try_it = [&](bool exclusive) {
    const Range wanted{range.begin, range.end, exclusive};
    const int r = take(handle, wanted);
    if (r == 0) drop(handle, wanted);
    return r;
  };
  int taken = try_it(range.exclusive);
  // An exclusive lock, or shared ones? Nobody takes any meanwhile, but some may go.
  if (taken == -EAGAIN && range.exclusive && try_it(false) == 0) {
    taken = try_it(true);
    if (taken == -EAGAIN) asked->l_type = F_RDLCK;
  }
  for (const Range &r : own) take(handle, r);
  if (taken == -EAGAIN) return 0;
  asked->l_type = F_UNLCK;
  return taken;
}

void RangeLocks::forget(int fd) {
  const std::lock_guard lock(mutex_);
  const auto found = held_.find(fd);
  if (found == held_.end()) return;
  for (const Range &r : found->second) drop(handle_of(fd), r);
  held_.erase(found);
}

}  // namespace st::os
