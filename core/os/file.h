// An open file or folder: owns its descriptor, turns -errno into sentences, and
// finishes short reads and writes. Repeats EINTR where that is right (reads and
// writes), and never where it is wrong (syncs and closes).
#pragma once

#include <atomic>
#include <cerrno>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "os/env.h"

namespace st::os {

// Makes a call again while a signal interrupts it; not for ever, as a daemon
// that answers EINTR always would hang us.
template <class Call>
auto repeat_interrupted(Call call) {
  auto r = call();
  for (int left = 100; r == -EINTR && left > 0; --left) r = call();
  return r;
}

// Looks again while the answer is that what was opened is there no more: a server forgets a file that was replaced.
template <class Look>
auto while_stale(Look look) {
  auto r = look();
  for (int left = 10; !r && r.error().os_errno == ESTALE && left > 0; --left) r = look();
  return r;
}

// How a file is read past the cache of this kernel.
enum class PastCache {
  no,
  by_one,  // descriptor, which it keeps for that
  anew,    // each time by another one: what was read through a descriptor may be answered again
  // A short piece by one descriptor. A long one by a descriptor of its own that gets O_DIRECT once it is open: then the
  // server reads from its memory, and need not ask its disk. Before the first write this one gets O_DIRECT, too: then
  // the bytes alone are written, as no page of a cache is changed and written back.
  by_length,
};

class File {
 public:
  File() = default;
  // `path` is for the system call, `shown` for messages.
  static Result<File> open(Env &env, int dir, const std::string &path, int flags, mode_t mode, std::string shown);
  // The same, and nothing where there is none (ENOENT, ESTALE): of what is seldom there, without the words for that.
  static Result<std::optional<File>> open_if_there(Env &env, int dir, const std::string &path, int flags,
                                                   std::string shown);
  // The same, and no component of the path may be a link.
  static Result<File> open_without_links(Env &env, const std::string &path, int flags, std::string shown);
  // One that is not open, and only knows its path.
  static File closed(Env &env, std::string path) {
    File file;
    file.env_ = &env;
    file.path_ = std::move(path);
    return file;
  }
  // Not open, but else as this one.
  File closed_like() const {
    File file = closed(*env_, path_);
    file.read_like(*this);
    return file;
  }
  ~File() { close(); }
  File(File &&other) noexcept { swap(other); }
  File &operator=(File &&other) noexcept {
    File(std::move(other)).swap(*this);
    return *this;
  }

  explicit operator bool() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  Env &env() const { return *env_; }
  const std::string &path() const { return path_; }
  void close();

  // From now on reads and stat() ask the storage, and not what this kernel remembers of it: other hosts may have
  // changed it since. How: past_cache.cpp.
  void read_past_cache(PastCache how) { past_cache_ = how; }
  void read_like(const File &other) { past_cache_ = other.past_cache_; }
  // Again as usual.
  void read_through_cache() { past_cache_ = PastCache::no; }
  bool reads_past_cache() const { return past_cache_ != PastCache::no; }
  // Do its writes change no byte beside theirs, and leave nothing in the cache of this kernel?
  bool writes_past_cache() const;
  // Does a descriptor for long reads get O_DIRECT when it is open, and not by its open? See PastCache::by_length.
  bool becomes_direct() const { return past_cache_ == PastCache::by_length; }
  // Does its client hang for ever where signals interrupt two requests for locks at once? GlusterFS's does so
  // (gluster/glusterfs#4371): Ctrl-C would end the mount with the workers.
  bool locks_fear_signals() const { return past_cache_ == PastCache::by_length; }
  bool become_direct() const { return env_->set_direct(fd_) >= 0; }

  // As many bytes as there are, up to n.
  Result<size_t> read_up_to(void *buffer, size_t n, uint64_t offset) const;
  // All n bytes; a file that ends before is ST_E_FILE_CHANGED.
  Result<void> read(void *buffer, size_t n, uint64_t offset) const;
  // What that is, where a caller sees that the file ends there.
  Failure ends_at(uint64_t offset) const;
  // All n bytes, which were written by this descriptor, and by nobody else: the cache of this kernel has them right.
  Result<void> read_own(void *buffer, size_t n, uint64_t offset) const;
  // The same as read() into several pieces of memory; `parts` is used up.
  Result<void> read_parts(std::span<struct iovec> parts, uint64_t offset) const;
  Result<void> write(const void *buffer, size_t n, uint64_t offset) const;
  // All of a file that is new, if this process may write so long a one. Else no signal ends the process.
  Result<void> write_new(std::string_view bytes) const;
  // Before writes that must not stop half-way: status of EFBIG if this process may not write up to `end`.
  Result<void> may_reach(uint64_t end) const;
  // n bytes become those of `source`, without a copy: whole blocks, on one filesystem.
  Result<void> clone(const File &source, uint64_t from, uint64_t n, uint64_t to) const;
  Result<void> sync_data() const;
  // The device has these bytes, though perhaps in its cache alone. Where the kernel cannot do that: durable.
  Result<void> write_out(uint64_t offset, uint64_t n) const;
  Result<void> sync() const;
  Result<struct stat> stat() const;

  // An error about this file: "cannot WHAT 'PATH': …".
  Error error(int err, std::string_view what) const { return os_error(err, what, path_); }
  // ESTALE, if it is what a server answers of an open file that it knows no more.
  int meant(int err) const;

 private:
  Failure cannot_read(int err, uint64_t offset) const;
  int open_again(int flags) const;
  Result<int> open_direct() const;
  int open_becoming_direct() const;
  Result<int> direct() const;
  Result<void> synced(int answer) const;
  Result<size_t> read_stored(void *buffer, size_t n, uint64_t offset) const;
  size_t read_long(void *buffer, size_t n, uint64_t offset) const;
  Result<size_t> read_in_pages(void *buffer, size_t n, uint64_t offset) const;
  Result<size_t> read_remembered(void *buffer, size_t n, uint64_t offset) const;
  void swap(File &other) noexcept {
    std::swap(env_, other.env_);
    std::swap(fd_, other.fd_);
    std::swap(past_cache_, other.past_cache_);
    other.direct_ = direct_.exchange(other.direct_);
    other.writes_ = writes_.exchange(other.writes_);
    other.unsynced_ = unsynced_.exchange(other.unsynced_);
    path_.swap(other.path_);
  }

  static constexpr int not_tried = -1, refused = -2;
  enum class Writes : char { as_opened, past_cache, through_cache };

  Env *env_ = nullptr;
  int fd_ = -1;
  PastCache past_cache_ = PastCache::no;
  mutable std::atomic<int> direct_ = not_tried;  // a descriptor of the same file, for O_DIRECT
  mutable std::atomic<Writes> writes_ = Writes::as_opened;
  mutable std::atomic<bool> unsynced_ = false;  // where closing another descriptor may be told what a sync should be
  std::string path_;
};

// Path of the folder that a path lies in, and the last component.
std::pair<std::string, std::string> split_path(const std::string &path);

bool same_inode(const struct stat &a, const struct stat &b);

// Were the bytes last changed at the same time?
bool same_mtime(const struct stat &a, const struct stat &b);
// And the file itself? Anybody may put back the time of the bytes, and that is a change of the file.
bool same_times(const struct stat &a, const struct stat &b);

// Does `path` by now name another file than the open one?
Result<bool> was_replaced(const File &file, const std::string &path);

}  // namespace st::os
