// A host with a client of NFS, over a real filesystem. It knows names, and that there are none, until it hears that
// their folder was changed: it asks for the folder, and for no name. A file that is open keeps another name when a new
// one takes its own; that goes as soon as the file is closed. Between the two the process may die.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "fault_env.h"

namespace st::testing {

class NfsEnv : public FaultEnv {
 public:
  explicit NfsEnv(os::Env &base) : FaultEnv(base), under_(base) {}
  ~NfsEnv() override { end(); }

  bool dies_amid_rename = false;
  bool is_smb = false;  // it removes the old file, as soon as that is closed, and refuses the new one
  bool is_dead() const { return dead_; }

  int openat(int dir, const char *path, int flags, mode_t mode) override {
    if (const int r = look_up(dir, path, flags); r < 0) return r;
    const Known *known = is_name(dir, path) && (flags & O_CREAT) == 0 ? find(dir, path) : nullptr;
    const std::string by_inode = known ? "/proc/self/fd/" + std::to_string(known->fd) : std::string();
    const int fd = known ? FaultEnv::openat(AT_FDCWD, by_inode.c_str(), flags & ~(O_NOFOLLOW | O_DIRECT), mode)
                         : FaultEnv::openat(dir, path, flags & ~O_DIRECT, mode);
    if (fd >= 0) open_[fd] = inode(fd);
    return fd;
  }
  int openat_without_links(int dir, const char *path, int flags) override {
    const int fd = FaultEnv::openat_without_links(dir, path, flags);
    if (fd >= 0) open_[fd] = inode(fd);
    return fd;
  }
  int close(int fd) override {
    const auto was = open_.find(fd);
    const ino_t file = was == open_.end() ? 0 : was->second;
    open_.erase(fd);
    write_protected_.erase(fd);
    const int r = dead_ ? under_.close(fd) : FaultEnv::close(fd);
    if (!is_open(file)) remove_hidden(file);
    return r;
  }
  int fstat(int fd, struct stat *out) override { return away(FaultEnv::fstat(fd, out), out); }
  int fstat_synced(int fd, struct stat *out) override {
    const int r = away(FaultEnv::fstat(fd, out), out);
    if (r == 0 && S_ISDIR(out->st_mode)) forget(out->st_ino);
    return r;
  }
  int fstatat(int dir, const char *path, struct stat *out, int flags) override {
    if (const int r = look_up(dir, path, 0); r < 0) return r;
    const Known *known = is_name(dir, path) ? find(dir, path) : nullptr;
    return away(known ? FaultEnv::fstat(known->fd, out) : FaultEnv::fstatat(dir, path, out, flags), out);
  }
  int fstatfs(int fd, struct statfs *out) override {
    const int r = FaultEnv::fstatfs(fd, out);
    out->f_type = is_smb ? 0xFE534D42 : 0x6969;
    return r;
  }
  int mkdirat(int dir, const char *name, mode_t mode) override {
    forget(inode(dir));
    return FaultEnv::mkdirat(dir, name, mode);
  }
  int unlinkat(int dir, const char *name, int flags) override {
    forget(inode(dir));
    return FaultEnv::unlinkat(dir, name, flags);
  }
  int linkat(int dir, const char *from, const char *to) override {
    forget(inode(dir));
    return FaultEnv::linkat(dir, from, to);
  }
  // Locks of SMB hold for reads and writes. A shared one on all of a file lets nobody write.
  int lock(int fd, int command, struct flock *lock) override {
    const bool sets = command == F_OFD_SETLK, all = lock->l_start == 0;
    const short type = lock->l_type;
    const int r = FaultEnv::lock(fd, command, lock);
    if (r < 0 || !sets || !all) return r;
    write_protected_.erase(fd);
    if (is_smb && type == F_RDLCK && lock->l_len >= off_t{1} << 40) write_protected_[fd] = inode(fd);
    return r;
  }
  ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override {
    const ino_t file = inode(fd);
    const bool refused = std::any_of(write_protected_.begin(), write_protected_.end(),
                                     [file](const auto &locked) { return locked.second == file; });
    return refused ? -EACCES : FaultEnv::pwrite(fd, buffer, n, offset);
  }
  int renameat(int from_dir, const char *from, int to_dir, const char *to) override {
    if (is_hidden(from)) return -EBUSY;
    forget(inode(from_dir));
    forget(inode(to_dir));
    struct stat old;
    if (under_.fstatat(to_dir, to, &old, AT_SYMLINK_NOFOLLOW) == 0 && is_open(old.st_ino)) {
      if (is_smb) {
        hidden_[old.st_ino] = {under_.openat(to_dir, ".", O_RDONLY | O_DIRECTORY, 0), to};
        return -EACCES;
      }
      const std::string hidden = ".nfs" + std::to_string(1000000 + hidden_.size());
      if (const int r = FaultEnv::renameat(to_dir, to, to_dir, hidden.c_str()); r < 0) return r;
      hidden_[old.st_ino] = {under_.openat(to_dir, ".", O_RDONLY | O_DIRECTORY, 0), hidden};
      if (dies_amid_rename) {
        before = [](Call) { return -EIO; };
        dead_ = true;
      }
    }
    return FaultEnv::renameat(from_dir, from, to_dir, to);
  }
  // The kernel closes what a process had open.
  void end() {
    for (auto at = open_.begin(); at != open_.end(); at = open_.erase(at)) under_.close(at->first);
    while (!hidden_.empty()) remove_hidden(hidden_.begin()->first);
    forget(0);
  }

 private:
  struct Known {
    ino_t folder;
    std::string name;
    int fd;  // O_PATH; negative: there was none
  };

  static bool is_name(int dir, const char *path) {
    return dir != AT_FDCWD && *path != 0 && std::strchr(path, '/') == nullptr && std::strcmp(path, ".") != 0;
  }
  static bool is_hidden(const char *name) { return std::string(name).starts_with(".nfs"); }
  static int away(int r, struct stat *s) {
    if (r == 0) s->st_dev = makedev(0, 99);
    return r;
  }
  ino_t inode(int fd) {
    struct stat s;
    return under_.fstat(fd, &s) == 0 ? s.st_ino : 0;
  }
  bool is_open(ino_t file) const {
    for (const auto &one : open_)
      if (one.second == file) return true;
    return false;
  }
  void remove_hidden(ino_t file) {
    const auto found = hidden_.find(file);
    if (found == hidden_.end()) return;
    under_.unlinkat(found->second.first, found->second.second.c_str(), 0);
    under_.close(found->second.first);
    hidden_.erase(found);
  }
  Known *find(int dir, const char *name) {
    for (auto at = known_.begin(); at != known_.end(); ++at)
      if (at->folder == inode(dir) && at->name == name) return &*at;
    return nullptr;
  }
  void forget(ino_t folder) {
    std::erase_if(known_, [&](const Known &known) {
      if (folder != 0 && known.folder != folder) return false;
      if (known.fd >= 0) under_.close(known.fd);
      return true;
    });
  }
  // What the client knows of the name from now on. A file that is gone from the server is looked up anew.
  int look_up(int dir, const char *path, int flags) {
    if (dead_) return -EIO;
    if (!is_name(dir, path) || (flags & O_CREAT)) return 0;
    struct stat s;
    Known *known = find(dir, path);
    if (known && known->fd >= 0 && under_.fstat(known->fd, &s) == 0 && s.st_nlink == 0) {
      forget(known->folder);
      known = nullptr;
    }
    if (!known) {
      const int fd = under_.openat(dir, path, O_PATH | O_NOFOLLOW, 0);
      if (fd < 0 && fd != -ENOENT) return fd;
      known_.push_back({inode(dir), path, fd});
      known = &known_.back();
    }
    return known->fd < 0 ? -ENOENT : 0;
  }

  os::Env &under_;
  bool dead_ = false;
  std::map<int, ino_t> open_;
  std::map<ino_t, std::pair<int, std::string>> hidden_;  // by file: the folder, and the name
  std::vector<Known> known_;
  std::map<int, ino_t> write_protected_;  // by the descriptor that has the lock
};

}  // namespace st::testing
