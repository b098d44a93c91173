#include "os/file.h"

#include <algorithm>

#include "base/check.h"
#include "base/interrupt.h"
#include "os/given_memory.h"
#include "os/missing_call.h"
#include "os/path.h"

namespace st::os {
namespace {

constexpr size_t most_at_once = size_t{1} << 30;  // the kernel moves at most 2 GiB a call

// A file may be there to be read, and not to be written.
std::string_view what_was_refused(int err, int flags) {
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  return writes && (err == EACCES || err == EPERM) ? "open for writing" : "open";
}

}  // namespace

Result<File> File::open(Env &env, int dir, const std::string &path, int flags, mode_t mode, std::string shown) {
  File file;
  file.env_ = &env;
  file.path_ = std::move(shown);
  const int fd = repeat_interrupted([&] { return env.openat(dir, path.c_str(), flags, mode); });
  if (fd < 0) {
    Error e = file.error(-fd, flags & O_CREAT ? "create" : what_was_refused(-fd, flags));
    if (std::string why = fd == -EROFS ? env.why_read_only() : std::string(); !why.empty()) {
      e.status = Status::unsupported;
      e.message = std::move(why);
    }
    return Failure(std::move(e));
  }
  file.fd_ = fd;
  return file;
}

Result<std::optional<File>> File::open_if_there(Env &env, int dir, const std::string &path, int flags,
                                                std::string shown) {
  File file = closed(env, std::move(shown));
  const int fd = repeat_interrupted([&] { return env.openat(dir, path.c_str(), flags, 0); });
  if (fd == -ENOENT || fd == -ESTALE) return std::nullopt;
  if (fd < 0) return Failure(file.error(-fd, what_was_refused(-fd, flags)));
  file.fd_ = fd;
  return file;
}

Result<File> File::open_without_links(Env &env, const std::string &path, int flags, std::string shown) {
  File file = closed(env, std::move(shown));
  const int fd = repeat_interrupted([&] { return env.openat_without_links(AT_FDCWD, path.c_str(), flags); });
  if (fd < 0) return Failure(file.error(-fd, what_was_refused(-fd, flags)));
  file.fd_ = fd;
  return file;
}

void File::close() {
  if (fd_ >= 0) env_->close(std::exchange(fd_, -1));
  if (const int direct = direct_.exchange(not_tried); direct >= 0) env_->close(direct);
}

Result<size_t> File::read_up_to(void *buffer, size_t n, uint64_t offset) const {
  return reads_past_cache() ? read_stored(buffer, n, offset) : read_remembered(buffer, n, offset);
}

Result<size_t> File::read_remembered(void *buffer, size_t n, uint64_t offset) const {
  size_t done = 0;
  while (done < n) {
    const ssize_t got = repeat_interrupted([&] {
      return env_->pread(fd_, static_cast<char *>(buffer) + done, std::min(n - done, most_at_once), offset + done);
    });
    if (got < 0) return cannot_read(static_cast<int>(-got), offset + done);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

Result<void> File::read(void *buffer, size_t n, uint64_t offset) const {
  ST_TRY(auto got, read_up_to(buffer, n, offset));
  if (got < n) return ends_at(offset + got);
  return {};
}

// A client that keeps what was read through a descriptor is asked anew, as it hears of changes late.
Result<void> File::read_own(void *buffer, size_t n, uint64_t offset) const {
  if (past_cache_ == PastCache::anew) return read(buffer, n, offset);
  ST_TRY(auto got, read_remembered(buffer, n, offset));
  if (got < n) return ends_at(offset + got);
  return {};
}

// A server says of a descriptor that is open here that there is no such file, or no such descriptor: another host has
// removed the file. So JuiceFS answers reads and writes; the first where this kernel asks for the size before it reads.
// A client of NFS 4 answers a lock so after its server has given away what it held.
int File::meant(int err) const {
  struct stat s;
  const bool gone = err == ENOENT ? reads_past_cache() : err == EBADF && env_->fstat(fd_, &s) != -EBADF;
  return gone ? ESTALE : err;
}

Failure File::cannot_read(int err, uint64_t offset) const {
  if (auto stopped = InterruptCheck::stopped()) return Failure(*std::move(stopped));
  Error e = error(meant(err), "read");
  if (std::string why = env_->why(); !why.empty()) e.message = std::move(why);
  return Failure(std::move(e).at_offset(offset));
}

Failure File::ends_at(uint64_t offset) const {
  const auto now = stat();
  const uint64_t end = now ? std::min(offset, static_cast<uint64_t>(now->st_size)) : offset;
  return Failure(st::error(Status::file_changed, in_quotes(path_), " ends at ", end,
                           ", inside what is to be read: it was truncated while open; open it anew")
                     .at_offset(offset));
}

Result<void> File::read_parts(std::span<struct iovec> parts, uint64_t offset) const {
  constexpr size_t most_parts = 1024;  // of one call: IOV_MAX
  for (; reads_past_cache() && !parts.empty(); parts = parts.subspan(1)) {
    ST_TRY(read(parts.front().iov_base, parts.front().iov_len, offset));
    offset += parts.front().iov_len;
  }
  while (!parts.empty()) {
    if (parts.front().iov_len == 0) {
      parts = parts.subspan(1);
      continue;
    }
    const ssize_t got = repeat_interrupted(
        [&] { return env_->preadv(fd_, parts.data(), static_cast<int>(std::min(parts.size(), most_parts)), offset); });
    if (got < 0) return cannot_read(static_cast<int>(-got), offset);
    if (got == 0) return ends_at(offset);
    offset += static_cast<uint64_t>(got);
    for (auto left = static_cast<size_t>(got); left > 0;) {
      struct iovec &first = parts.front();
      const size_t used = std::min(left, first.iov_len);
      first = {static_cast<char *>(first.iov_base) + used, first.iov_len - used};
      left -= used;
      if (first.iov_len == 0) parts = parts.subspan(1);
    }
  }
  return {};
}

Result<void> File::write(const void *buffer, size_t n, uint64_t offset) const {
  size_t done = 0;
  if (past_cache_ == PastCache::by_length) {
    writes_past_cache();  // from now on, if that can be had
    unsynced_ = true;
  }
  while (done < n) {
    const ssize_t put = repeat_interrupted([&] {
      return env_->pwrite(fd_, static_cast<const char *>(buffer) + done, std::min(n - done, most_at_once),
                          offset + done);
    });
    if (put == -EFAULT) return Failure(given_memory_is_gone(EFAULT).at_offset(offset + done));
    if (put == -EFBIG) ST_TRY(may_reach(offset + n));
    if (put < 0) return Failure(error(meant(static_cast<int>(-put)), "write").at_offset(offset + done));
    if (put == 0) return Failure(error(EIO, "write").at_offset(offset + done));
    done += static_cast<size_t>(put);
  }
  return {};
}

Result<void> File::write_new(std::string_view bytes) const {
  ST_TRY(may_reach(bytes.size()));
  return write(bytes.data(), bytes.size(), 0);
}

Result<void> File::may_reach(uint64_t end) const {
  const uint64_t most = env_->largest_file();
  if (end <= most) return {};
  Error e = error(EFBIG, "write");
  e.message = text("cannot write ", in_quotes(path_), " up to byte ", end, ": this process may write files up to byte ",
                   most, " alone (RLIMIT_FSIZE, ulimit -f); raise that limit, or lift it");
  return Failure(std::move(e).at_offset(most));
}

Result<void> File::clone(const File &source, uint64_t from, uint64_t n, uint64_t to) const {
  const int r = repeat_interrupted([&] { return env_->clone_range(fd_, source.fd_, from, n, to); });
  if (r < 0) return Failure(error(-r, text("share ", n, " bytes of ", in_quotes(source.path_), " with")));
  return {};
}

// A failed sync is never repeated: the kernel may have dropped the pages and
// would answer the second call with a lie.
Result<void> File::synced(int answer) const {
  if (answer < 0) return Failure(error(meant(-answer), "sync"));
  unsynced_ = false;
  return {};
}

Result<void> File::sync_data() const {
  return synced(env_->fdatasync(fd_));
}

Result<void> File::write_out(uint64_t offset, uint64_t n) const {
  const int r = env_->wait_range(fd_, offset, n);
  if (is_missing(r) || r == -ESPIPE) return sync_data();
  if (r < 0) return Failure(error(-r, "sync"));
  return {};
}

Result<void> File::sync() const {
  return synced(env_->fsync(fd_));
}

Result<struct stat> File::stat() const {
  struct stat s;
  int r = reads_past_cache() ? env_->fstat_synced(fd_, &s) : env_->fstat(fd_, &s);
  // Kernels before 4.11, and some sandboxes, cannot ask the storage: then what this one remembers.
  if (reads_past_cache() && (r == -ENOSYS || r == -EPERM)) r = env_->fstat(fd_, &s);
  // Only a server answers that of an open file: somebody has replaced or removed it there. GlusterFS opens a file when
  // it is first asked something of it; if the file is gone by then, its answer is EBADFD.
  if (r == -ENOENT || r == -EBADFD) return Failure(error(ESTALE, "stat"));
  if (r < 0) return Failure(error(-r, "stat"));
  return s;
}

std::pair<std::string, std::string> split_path(const std::string &path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {path.substr(0, std::max(slash, root_of(path).size())), path.substr(slash + 1)};
}

bool same_inode(const struct stat &a, const struct stat &b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

bool same_mtime(const struct stat &a, const struct stat &b) {
  return a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

bool same_times(const struct stat &a, const struct stat &b) {
  return same_mtime(a, b) && a.st_ctim.tv_sec == b.st_ctim.tv_sec && a.st_ctim.tv_nsec == b.st_ctim.tv_nsec;
}

Result<bool> was_replaced(const File &file, const std::string &path) {
  ST_TRY(auto opened, file.stat());
  struct stat named;
  const int r = file.env().fstatat(AT_FDCWD, path.c_str(), &named, 0);
  if (r < 0 && r != -ENOENT) return Failure(os_error(-r, "look at", path));
  return r < 0 || !same_inode(opened, named);
}

}  // namespace st::os
