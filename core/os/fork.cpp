#include "os/fork.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "os/process.h"

namespace st::os {

Forks *Forks::current = nullptr;

Forks::Forks() {
  current = this;
  at_fork([] { current->mutex_.lock(); }, [] { current->mutex_.unlock(); }, [] { current->in_child(); });
}

int Forks::set_lock(int fd, struct flock *range) {
  std::lock_guard lock(mutex_);
  if (range->l_type != F_UNLCK) locked_.reserve(locked_.size() + 1);  // unlocking must not fail
  if (::fcntl(fd, F_OFD_SETLK, range) < 0) return -errno;
  const bool whole = range->l_start == 0 && range->l_len == 0;
  if (range->l_type == F_UNLCK && whole)
    std::erase(locked_, fd);
  else if (range->l_type != F_UNLCK && std::find(locked_.begin(), locked_.end(), fd) == locked_.end())
    locked_.push_back(fd);
  return 0;
}

void Forks::forget(int fd) {
  std::lock_guard lock(mutex_);
  std::erase(locked_, fd);
}

void Forks::in_child() {
  const int null = locked_.empty() ? -1 : ::open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd : locked_)
    if (null >= 0) ::dup3(null, fd, O_CLOEXEC);
  if (null >= 0) ::close(null);
  locked_.clear();
  generation_.fetch_add(1, std::memory_order_relaxed);
  mutex_.unlock();
}

}  // namespace st::os
