#include "os/fork.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "os/file.h"
#include "os/process.h"

namespace st::os {

Forks *Forks::current = nullptr;

Forks::Forks() {
  current = this;
  at_fork([] { current->mutex_.lock(); }, [] { current->mutex_.unlock(); }, [] { current->in_child(); });
}

int Forks::set_lock(int fd, struct flock *range) {
  std::lock_guard lock(mutex_);
  const auto number = static_cast<size_t>(fd);
  if (fd >= 0 && range->l_type != F_UNLCK && number >= locked_.size())  // unlocking must not fail
    locked_.resize(std::max(number + 1, 2 * locked_.size()));
  if (::fcntl(fd, F_OFD_SETLK, range) < 0) return -errno;
  const bool whole = range->l_start == 0 && range->l_len == 0;
  if (range->l_type != F_UNLCK)
    locked_[number] = true;
  else if (whole && is_locked(fd))
    locked_[number] = false;
  return 0;
}

void Forks::forget(int fd) {
  std::lock_guard lock(mutex_);
  if (!is_locked(fd)) return;
  locked_[static_cast<size_t>(fd)] = false;
  struct flock all = {};
  all.l_type = F_UNLCK;
  all.l_whence = SEEK_SET;
  repeat_interrupted([&] { return ::fcntl(fd, F_OFD_SETLK, &all) < 0 ? -errno : 0; });
}

void Forks::in_child() {
  const auto end = static_cast<int>(locked_.size());
  int first = 0;
  while (first < end && !is_locked(first)) ++first;
  if (first < end) {
    ::close(first);  // whose number another takes, so that there is always one
    int other = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (other < 0) other = ::epoll_create1(EPOLL_CLOEXEC);
    for (int fd = first; fd < end; ++fd) {
      if (!is_locked(fd)) continue;
      if (other < 0)
        ::close(fd);  // better than its lock
      else if (fd != other)
        ::dup3(other, fd, O_CLOEXEC);
    }
    if (other >= 0 && !is_locked(other)) ::close(other);
  }
  locked_.clear();
  generation_.fetch_add(1, std::memory_order_relaxed);
  mutex_.unlock();
}

}  // namespace st::os
