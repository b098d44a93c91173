// A filesystem in memory that knows what a power cut leaves behind. Every write
// and every change of a folder is pending until its file or folder is synced; a
// cut keeps any subset of what is pending, and tears writes at 512 bytes. A write
// that was written out to the device is durable as soon as anything is synced. It
// promises no more than POSIX does: syncing a file does not sync its name. Only a
// rename within a folder happens or does not.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "bound.h"
#include "base/error_number.h"
#include "os/env.h"

namespace st::testing {

inline constexpr uint64_t sim_sector = 512, sim_block = 4096;

// A file's bytes; what lies beyond `bytes` up to `size` is zero.
struct SimBytes {
  std::string bytes;
  uint64_t size = 0;
  void write(uint64_t offset, const char *from, size_t n);
  size_t read(uint64_t offset, char *to, size_t n) const;
  void resize(uint64_t new_size);
  std::string all() const;
  bool operator==(const SimBytes &) const = default;
};

// One pending change of a file: bytes, or (empty) a new size.
struct SimWrite {
  uint64_t offset = 0;
  std::string bytes;
  uint64_t new_size = 0;
  bool in_device = false;  // in its cache: any flush of the device makes it durable
};

struct SimEntryChange {
  std::string name;
  uint64_t inode = 0;  // 0: removed
  // The name before a rename within a folder: one change, as the journal of every filesystem has it.
  std::string before = {};
};

struct SimInode {
  bool is_dir = false;
  mode_t mode = 0;
  uid_t uid = 0;
  SimBytes now, durable;
  std::vector<SimWrite> pending;
  std::map<std::string, uint64_t> entries, durable_entries;  // of a folder
  std::vector<SimEntryChange> pending_entries;
};

// The whole disk: what is visible, what is durable, and what is pending.
struct SimDisk {
  std::map<uint64_t, std::shared_ptr<const SimInode>> inodes;  // shared by snapshots, and then replaced when changed
  uint64_t next_inode = 2;                                     // 1 is the root folder
  bool reflinks = false;  // it can share blocks between files, and libst is asked to save old bytes so
  bool realtime = false;  // some of its files lie on another device: libst relies on no other file's sync
};

// By which records libst patches a file on a disk, and with how many flushes.
enum class Patches { two_flushes, four_flushes, undo };
inline constexpr Patches every_patches[] = {Patches::two_flushes, Patches::four_flushes, Patches::undo};
inline const char *name_of(Patches patches) {
  constexpr const char *names[] = {"RedoTwoFlushes", "RedoFourFlushes", "Undo"};
  return names[static_cast<size_t>(patches)];
}

// The pending changes of a disk, numbered, so that a cut is a choice of them.
struct SimChange {
  uint64_t inode;
  size_t index;  // in pending or pending_entries
  bool is_entry;
  uint64_t sectors;  // that a torn write may be cut into; 1 if it cannot be torn
};
std::vector<SimChange> pending_changes(const SimDisk &disk);

// The disk after a cut: the durable state, and of change i what keep[i] says:
// 0 nothing, 1 all, else a seed that picks some of its sectors.
SimDisk after_cut(const SimDisk &disk, const std::vector<SimChange> &changes, const std::vector<uint32_t> &keep);
// The same for all changes: nothing of them, or all.
SimDisk after_cut(const SimDisk &disk, bool keep_all);
uint64_t fingerprint(const SimDisk &disk);

class SimEnv : public os::Env {
 public:
  SimEnv();
  explicit SimEnv(SimDisk disk, uint64_t seed = 1);

  const SimDisk &disk() const { return disk_; }
  void allow_reflinks(bool allow) { disk_.reflinks = allow; }
  void set_patches(Patches patches) {
    disk_.reflinks = patches == Patches::undo;
    disk_.realtime = patches == Patches::four_flushes;
  }
  uint64_t moves() const { return moves_; }                                       // renames so far
  uint64_t clones() const { return clones_; }                                     // made so far
  void add_file(const std::string &path, std::string bytes, mode_t mode = 0644);  // durable
  std::string contents(const std::string &path) const;
  // By path, as somebody else does it.
  int make_folder(const std::string &path, mode_t mode = 0755) { return make_folder(AT_FDCWD, path.c_str(), mode); }
  int remove(const std::string &path) { return remove(AT_FDCWD, path.c_str(), 0); }
  int move(const std::string &from, const std::string &to) {
    return move(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str());
  }
  std::vector<std::string> names(const std::string &folder) const;
  bool exists(const std::string &path) const { return resolve(path) != 0; }
  // Does it lead to the same file after each cut?
  bool is_name_durable(const std::string &path) const;

  // As the server of several hosts: it was killed, and runs again. No lock is left. Names are as they were, since a
  // server makes them durable before it answers. Bytes that were not synced may be gone; then each descriptor of that
  // file fails its next sync. Open files stay open but for those without a name.
  void restart(bool loses_writes);

  // Called before every call that changes the disk.
  std::function<void()> before_change;
  // A failed sync of a file loses what was pending, as on Linux: it stays visible,
  // and may or may not be on the disk, whatever is synced later. Names are in the
  // filesystem's journal: it goes on with them, or stops altogether.
  std::function<int()> sync_fault;
  bool reflink = false;              // clone_range works, on whole blocks of 4096
  bool copies_ranges = true;         // copy_range works
  uint64_t wall_clock = 1000000000;  // seconds; goes by itself nowhere
  uint64_t free_bytes = UINT64_MAX;  // what fallocate and growing writes may still take

  int openat(int dir, const char *path, int flags, mode_t mode) override;
  int openat_without_links(int, const char *, int) override { return -ENOSYS; }
  int close(int fd) override;
  ssize_t pread(int fd, void *buffer, size_t n, uint64_t offset) override;
  ssize_t preadv(int fd, const struct iovec *parts, int, uint64_t offset) override {
    return pread(fd, parts[0].iov_base, parts[0].iov_len, offset);
  }
  int fadvise(int, uint64_t, uint64_t, int) override { return 0; }
  ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override;
  int fsync(int fd) override;
  int fdatasync(int fd) override { return fsync(fd); }
  int fallocate(int fd, int mode, uint64_t offset, uint64_t n) override;
  int sync_range(int, uint64_t, uint64_t) override { return 0; }
  int wait_range(int fd, uint64_t offset, uint64_t n) override;
  int64_t seek_hole(int, uint64_t) override { return -EINVAL; }
  int extents(int, struct fiemap *) override { return -EOPNOTSUPP; }
  int realtime_blocks(int, uint64_t *out) override { return *out = disk_.realtime, 0; }
  int fstat(int fd, struct stat *out) override;
  int set_direct(int) override { return -ENOSYS; }
  int fstat_synced(int fd, struct stat *out) override { return fstat(fd, out); }  // a disk has one host
  int fstatat(int dir, const char *path, struct stat *out, int flags) override;
  int renew_name(int, const char *) override { return 0; }
  int fstatfs(int fd, struct statfs *out) override;
  int fchmod(int, mode_t) override { return 0; }
  int fchown(int, uid_t, gid_t) override { return 0; }
  int ftruncate(int fd, uint64_t size) override;
  // Pending as a write of the same bytes is, and torn as one: a filesystem maps
  // extent by extent, and no more than what a sync of the target promises.
  int clone_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) override;
  ssize_t copy_range(int to_fd, int from_fd, uint64_t from, uint64_t n, uint64_t to) override;
  ssize_t flistxattr(int, char *, size_t) override { return 0; }
  ssize_t fgetxattr(int, const char *, void *, size_t) override { return -ENODATA; }
  int fsetxattr(int, const char *, const void *, size_t) override { return 0; }
  int realpath(const char *path, std::string *out) override;
  int readlinkat(int dir, const char *name, std::string *out) override;
  int list(int dir, std::vector<std::string> *out) override;
  int mkdirat(int dir, const char *name, mode_t mode) override;
  int unlinkat(int dir, const char *name, int flags) override;
  int renameat(int from_dir, const char *from, int to_dir, const char *to) override;
  int lock(int fd, int command, struct flock *lock) override;
  int mmap(size_t n, int protection, int flags, int fd, void **out) override;
  int munmap(void *address, size_t n) override;
  int madvise(void *, size_t, int) override { return 0; }
  int mincore(void *, size_t, unsigned char *) override { return -ENOSYS; }
  ssize_t copy_memory(void *to, const void *from, size_t n) override {
    std::memcpy(to, from, n);
    return static_cast<ssize_t>(n);
  }
  int random(void *out, size_t n) override;
  pid_t getpid() override { return 4242; }
  uint64_t fork_generation() override { return 0; }
  unsigned cpus() override { return 1; }
  uid_t geteuid() override { return 0; }
  uint64_t largest_file() override { return UINT64_MAX; }
  uint64_t most_files() override { return UINT64_MAX; }
  uint64_t monotonic_ms() override { return clock_us_ / 1000; }
  uint64_t thread_ns() override { return 0; }
  uint64_t unix_time() override { return wall_clock; }
  void sleep_us(uint32_t microseconds) override { clock_us_ += microseconds; }
  const char *getenv(const char *name) override;
  size_t open_files() const { return files_.size(); }

 private:
  struct Lock {
    int fd;
    uint64_t begin, end;
    bool exclusive;
  };

  int make_folder(int dir, const char *path, mode_t mode);
  int remove(int dir, const char *path, int flags);
  int move(int from_dir, const char *from, int to_dir, const char *to);
  uint64_t resolve(const std::string &path) const;  // 0: none
  uint64_t resolve_at(int dir, const std::string &path, uint64_t *parent, std::string *name) const;
  SimInode &change(uint64_t inode);
  void look_through();
  void flush_device();
  void fill(uint64_t inode, struct stat *out) const;
  uint64_t links(uint64_t inode) const;
  int no_file(int fd) const { return stale_.contains(fd) ? -ESTALE : -EBADF; }
  void changing() {
    if (before_change) before_change();
  }

  SimDisk disk_;
  mutable std::unordered_map<uint64_t, uint64_t> links_;  // of each inode that has some; empty: to be counted
  std::set<uint64_t> folders_, in_device_;                // inodes; the latter may have writes there
  std::map<int, uint64_t> files_;                         // descriptor to inode
  std::set<int> lost_writes_, stale_;                     // descriptors, since a restart
  std::map<uint64_t, std::vector<Lock>> locks_;
  int next_fd_ = 1000;
  uint64_t clock_us_ = 0, clones_ = 0, moves_ = 0;
  std::mt19937_64 random_{1 + chosen_seed()};
};

}  // namespace st::testing
