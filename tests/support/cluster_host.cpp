#include "cluster_host.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/round.h"

namespace st::testing {
namespace {

constexpr uint64_t page = 4096;

bool is_model(const char *name) {
  return std::string_view(name).ends_with(".safetensors");
}

}  // namespace

ssize_t WholePages::pwrite(int fd, const void *buffer, size_t n, uint64_t offset) {
  if (direct_.contains(fd)) return server_.pwrite(fd, buffer, n, offset);
  const uint64_t from = round_down(offset, page), until = round_up(offset + n, page);
  std::string pages(until - from, '\0');
  const ssize_t there = server_.pread(fd, pages.data(), pages.size(), from);
  if (there < 0) return there;
  if (amid_write) amid_write();
  std::memcpy(pages.data() + (offset - from), buffer, n);
  const ssize_t put = server_.pwrite(fd, pages.data(), std::max<size_t>(there, offset - from + n), from);
  return put < 0 ? put : static_cast<ssize_t>(n);
}

ClusterHost::ClusterHost(SimEnv &server, LateRequests late, Client by)
    : HasWholePages(server), StaleEnv(pages), server_(server), late_(late) {
  client = by;
  before = [this](Call call) { return answer(call); };
}

int ClusterHost::answer(Call call) {
  const size_t number = made_++;
  if (!dead_ && at_call) at_call(call, number);
  const int fd = std::exchange(acts_on_, -1);
  if (dead_ && can_fail(call)) return -EIO;
  if (!revoked_.contains(fd)) return 0;
  if (late_ == LateRequests::refused) return -EIO;
  wrote_late_ |= call == Call::pwrite && data_.contains(fd) && is_late();
  return 0;
}

// Since it asked it has lost its locks, or somebody may have taken its journal away: by another name.
bool ClusterHost::is_late() const {
  return !asked_ || server_.moves() - own_moves_ != others_moves_;
}

void ClusterHost::lose_locks() {
  StaleEnv::lose_locks();
  revoked_.insert(locked_.begin(), locked_.end());
  asked_ = false;
}

int ClusterHost::openat(int dir, const char *path, int flags, mode_t mode) {
  const int fd = StaleEnv::openat(dir, path, flags, mode);
  if ((flags & O_CREAT) && told(fd) != fd) return under_.close(fd), -EIO;
  if (fd >= 0 && is_model(path)) data_.insert(fd);
  return fd;
}

int ClusterHost::close(int fd) {
  data_.erase(fd);
  revoked_.erase(fd);
  if (!locks_stay_) return StaleEnv::close(fd);
  held_.push_back(fd);
  return 0;
}

void ClusterHost::notice_death() {
  for (const int fd : held_) StaleEnv::close(fd);
  held_.clear();
}

int ClusterHost::set_direct(int fd) {
  const int r = StaleEnv::set_direct(fd);
  return r < 0 ? r : pages.set_direct(fd);
}

ssize_t ClusterHost::pwrite(int fd, const void *buffer, size_t n, uint64_t offset) {
  acts_on_ = fd;
  return told(StaleEnv::pwrite(fd, buffer, n, offset));
}

int ClusterHost::renameat(int from_dir, const char *from, int to_dir, const char *to) {
  const int r = StaleEnv::renameat(from_dir, from, to_dir, to);
  own_moves_ += r == 0;
  wrote_late_ |= r == 0 && is_model(to) && !revoked_.empty() && is_late();
  return told(r);
}

int ClusterHost::renew_name(int dir, const char *name) {
  asked_ = true;
  others_moves_ = server_.moves() - own_moves_;
  return StaleEnv::renew_name(dir, name);
}

int ClusterHost::lock(int fd, int command, struct flock *lock) {
  acts_on_ = fd;
  const int r = StaleEnv::lock(fd, command, lock);
  return command == F_OFD_SETLK && lock->l_type != F_UNLCK && std::exchange(answer_is_lost_, false) && r == 0 ? -EAGAIN
                                                                                                              : r;
}

}  // namespace st::testing
