#include "stale_env.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

namespace st::testing {
namespace {

bool is_name(int dir, const char *path) {
  return dir != AT_FDCWD && *path != 0 && std::strchr(path, '/') == nullptr && std::strcmp(path, ".") != 0;
}

// As of a mount without a disk of its own.
void move_away(struct stat *s) {
  s->st_dev = makedev(0, 99);
}

}  // namespace

StaleEnv::~StaleEnv() {
  forget_all();
}

uint64_t StaleEnv::monotonic_ms() {
  if (at_clock) at_clock();
  return (clock_stands ? 0 : FaultEnv::monotonic_ms()) + frozen_ms;
}

void StaleEnv::forget_all() {
  for (const auto &[name, entry] : names_) under_.close(entry.fd);
  names_.clear();
  kept_.clear();
  pages_.clear();
  stats_.clear();
}

ino_t StaleEnv::inode(int fd) {
  struct stat s;
  return under_.fstat(fd, &s) == 0 ? s.st_ino : 0;
}

void StaleEnv::forget_file(ino_t inode) {
  stats_.erase(inode);
  pages_.erase(inode);
  kept_.clear();
}

void StaleEnv::forget(int dir, const char *name) {
  const auto found = names_.find({inode(dir), name});
  if (found == names_.end()) return;
  under_.close(found->second.fd);
  names_.erase(found);
}

// What the name led to when this host first looked; null for nothing.
StaleEnv::Entry *StaleEnv::entry(int dir, const char *name, bool folders_only) {
  const Name key{inode(dir), name};
  auto found = names_.find(key);
  if (found == names_.end()) {
    const int fd = under_.openat(dir, name, O_PATH | O_NOFOLLOW, 0);
    if (fd < 0) return nullptr;
    Entry fresh{fd, {}};
    under_.fstat(fd, &fresh.stat);
    move_away(&fresh.stat);
    found = names_.emplace(key, fresh).first;
  }
  return folders_only && !S_ISDIR(found->second.stat.st_mode) ? nullptr : &found->second;
}

int StaleEnv::openat(int dir, const char *path, int flags, mode_t mode) {
  // The mount that a descriptor really lies on.
  if (client != Client::kernel && std::string_view(path).starts_with("/proc/self/fdinfo/")) return -ENOENT;
  if (!mounts().empty() && std::string_view(path) == "/proc/self/mountinfo") return mounts_fd;
  if (is_name(dir, path) && !(flags & O_CREAT))
    if (const Entry *known = entry(dir, path, true)) {
      const std::string by_inode = "/proc/self/fd/" + std::to_string(known->fd);
      return FaultEnv::openat(AT_FDCWD, by_inode.c_str(), flags & ~O_NOFOLLOW, mode);
    }
  const int fd = FaultEnv::openat(dir, path, flags & ~O_DIRECT, mode);
  if (fd < 0) return fd;
  direct_.erase(fd);
  if (flags & O_DIRECT) direct_.insert(fd);
  if (flags & O_CREAT) forget(dir, path);
  if (flags & O_EXCL) forget_file(inode(fd));  // the number may have been another's
  return fd;
}

int StaleEnv::openat_without_links(int dir, const char *path, int flags) {
  return FaultEnv::openat_without_links(dir, path, flags);
}

int StaleEnv::lock(int fd, int command, struct flock *lock) {
  const int r = FaultEnv::lock(fd, command, lock);
  if (command == F_OFD_SETLK && r == 0) locked_.insert(fd);
  return r;
}

void StaleEnv::lose_locks() {
  for (const int fd : locked_) {
    struct flock all = {};
    all.l_type = F_UNLCK;
    all.l_whence = SEEK_SET;
    under_.lock(fd, F_OFD_SETLK, &all);
  }
}

int StaleEnv::set_direct(int fd) {
  if (client != Client::glusterfs) return -EINVAL;
  direct_.insert(fd);  // and not of what lies below, which has borders
  return 0;
}

int StaleEnv::close(int fd) {
  if (fd == mounts_fd) return 0;
  direct_.erase(fd);
  kept_.erase(fd);
  locked_.erase(fd);
  return FaultEnv::close(fd);
}

std::string_view StaleEnv::mounts() const {
  if (client == Client::glusterfs) return "1 0 0:99 / / rw - fuse.glusterfs server rw\n";
  return client == Client::juicefs ? "1 0 0:99 / / rw - fuse.juicefs JuiceFS:models rw\n" : "";
}

ssize_t StaleEnv::pread(int fd, void *buffer, size_t n, uint64_t offset) {
  if (fd == mounts_fd) {
    const std::string_view all = mounts();
    return static_cast<ssize_t>(all.copy(static_cast<char *>(buffer), n, offset < all.size() ? offset : all.size()));
  }
  const ino_t file = inode(fd);
  const bool direct = direct_.contains(fd);
  if (file == 0 || (direct && !keeps_what_was_read())) return FaultEnv::pread(fd, buffer, n, offset);
  return read_by(direct ? kept_[fd] : pages_[file], fd, buffer, n, offset);
}

ssize_t StaleEnv::read_by(Pages &pages, int fd, void *buffer, size_t n, uint64_t offset) {
  size_t done = 0;
  while (done < n) {
    const uint64_t at = offset + done, number = at / sizeof(Page), skip = at % sizeof(Page);
    auto found = pages.find(number);
    if (found == pages.end()) {
      found = pages.try_emplace(number).first;
      auto &[page, length] = found->second;
      const ssize_t got = FaultEnv::pread(fd, page.data(), sizeof(Page), number * sizeof(Page));
      if (got < 0) return pages.erase(found), got;
      length = static_cast<size_t>(got);
    }
    const auto &[bytes, length] = found->second;
    if (skip >= length) break;
    const size_t take = std::min<size_t>(length - skip, n - done);
    std::memcpy(static_cast<char *>(buffer) + done, bytes.data() + skip, take);
    done += take;
    if (length < sizeof(Page)) break;
  }
  return static_cast<ssize_t>(done);
}

ssize_t StaleEnv::preadv(int fd, const struct iovec *parts, int count, uint64_t offset) {
  ssize_t done = 0;
  for (int i = 0; i < count; ++i) {
    const ssize_t got = pread(fd, parts[i].iov_base, parts[i].iov_len, offset + static_cast<uint64_t>(done));
    if (got < 0) return done ? done : got;
    done += got;
    if (static_cast<size_t>(got) < parts[i].iov_len) break;
  }
  return done;
}

// Written through; pages that are remembered get these bytes and no others, or are forgotten if the write goes past
// them.
ssize_t StaleEnv::pwrite(int fd, const void *buffer, size_t n, uint64_t offset) {
  const ssize_t put = FaultEnv::pwrite(fd, buffer, n, offset);
  const ino_t file = inode(fd);
  kept_.clear();  // of this file, as a client knows what it writes itself; of others at most too much
  Pages &pages = pages_[file];
  if (direct_.contains(fd)) pages.clear();
  for (uint64_t at = offset; put > 0 && at < offset + static_cast<uint64_t>(put);) {
    const uint64_t number = at / sizeof(Page), skip = at % sizeof(Page);
    const size_t take = std::min<uint64_t>(sizeof(Page) - skip, offset + static_cast<uint64_t>(put) - at);
    if (auto found = pages.find(number); found != pages.end()) {
      auto &[bytes, length] = found->second;
      std::memcpy(bytes.data() + skip, static_cast<const char *>(buffer) + (at - offset), take);
      length = std::max(length, static_cast<size_t>(skip) + take);
    }
    at += take;
  }
  stats_.erase(file);
  return put;
}

int StaleEnv::fstat(int fd, struct stat *out) {
  struct stat now;
  if (const int r = FaultEnv::fstat(fd, &now); r < 0) return r;
  move_away(&now);
  *out = stats_.emplace(now.st_ino, now).first->second;
  return 0;
}

int StaleEnv::fstat_synced(int fd, struct stat *out) {
  const int r = FaultEnv::fstat(fd, out);
  if (r < 0) return r;
  move_away(out);
  stats_[out->st_ino] = *out;
  return 0;
}

int StaleEnv::fstatat(int dir, const char *path, struct stat *out, int flags) {
  if (is_name(dir, path)) {
    const Entry *known = entry(dir, path, false);
    if (!known) return -ENOENT;
    *out = known->stat;
    return 0;
  }
  const int r = FaultEnv::fstatat(dir, path, out, flags);
  if (r == 0) move_away(out);
  return r;
}

int StaleEnv::renew_name(int dir, const char *name) {
  forget(dir, name);
  return FaultEnv::renew_name(dir, name);
}

int StaleEnv::fstatfs(int fd, struct statfs *out) {
  const int r = FaultEnv::fstatfs(fd, out);
  out->f_type = client == Client::kernel ? 0x6969 /* NFS */ : 0x65735546 /* FUSE */;
  return r;
}

int StaleEnv::ftruncate(int fd, uint64_t size) {
  forget_file(inode(fd));
  return FaultEnv::ftruncate(fd, size);
}

int StaleEnv::fallocate(int fd, int mode, uint64_t offset, uint64_t n) {
  stats_.erase(inode(fd));
  return FaultEnv::fallocate(fd, mode, offset, n);
}

// As kernels do where the server cannot: by way of what they remember.
ssize_t StaleEnv::copy_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) {
  std::vector<char> bytes(std::min<uint64_t>(n, uint64_t{1} << 20));
  const ssize_t got = pread(from_fd, bytes.data(), bytes.size(), from);
  return got <= 0 ? got : pwrite(to_fd, bytes.data(), static_cast<size_t>(got), to);
}

int StaleEnv::mkdirat(int dir, const char *name, mode_t mode) {
  forget(dir, name);
  return FaultEnv::mkdirat(dir, name, mode);
}

int StaleEnv::unlinkat(int dir, const char *name, int flags) {
  forget(dir, name);
  return FaultEnv::unlinkat(dir, name, flags);
}

int StaleEnv::renameat(int from_dir, const char *from, int to_dir, const char *to) {
  forget(from_dir, from);
  forget(to_dir, to);
  return FaultEnv::renameat(from_dir, from, to_dir, to);
}

}  // namespace st::testing
