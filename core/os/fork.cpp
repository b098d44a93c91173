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
  if (std::erase(locked_, fd) == 0) return;
  struct flock all = {};
  all.l_type = F_UNLCK;
  all.l_whence = SEEK_SET;
  repeat_interrupted([&] { return ::fcntl(fd, F_OFD_SETLK, &all) < 0 ? -errno : 0; });
}

void Forks::in_child() {
  if (!locked_.empty()) {
    ::close(locked_.front());  // whose number another takes, so that there is always one
    int other = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (other < 0) other = ::epoll_create1(EPOLL_CLOEXEC);
    for (int fd : locked_)
      if (other < 0)
        ::close(fd);  // better than its lock
      else if (fd != other)
        ::dup3(other, fd, O_CLOEXEC);
    if (other >= 0 && std::find(locked_.begin(), locked_.end(), other) == locked_.end()) ::close(other);
  }
  locked_.clear();
  generation_.fetch_add(1, std::memory_order_relaxed);
  mutex_.unlock();
}

}  // namespace st::os
