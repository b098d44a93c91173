// Reads that ask the storage. O_DIRECT does so on every network filesystem that was tried, also where pages of the file
// are mapped: POSIX_FADV_DONTNEED leaves mapped pages as they are, and statx drops none (tests/storage/README.md).
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "base/round.h"
#include "os/location.h"
#include "os/whole_pages.h"

namespace st::os {
namespace {

constexpr uint64_t alignment = 4096;                 // of offset, length and memory
constexpr uint64_t most_of_own = uint64_t{4} << 20;  // through memory of our own; from amid a page, a page more
constexpr size_t long_read = size_t{1} << 20;        // what is worth an open, and a close

// To whole pages of its own.
struct Aligned {
  explicit Aligned(size_t n)
      : bytes(static_cast<char *>(::operator new (round_up(n, align), std::align_val_t{align}))) {}
  ~Aligned() { ::operator delete (bytes, std::align_val_t{align}); }
  Aligned(const Aligned &) = delete;
  Aligned &operator=(const Aligned &) = delete;
  const size_t align = std::max<size_t>(alignment, page_size());
  char *const bytes;
};

}  // namespace

int File::open_again(int flags) const {
  const std::string itself = text("/proc/self/fd/", fd_);
  return repeat_interrupted([&] { return env_->openat(AT_FDCWD, itself.c_str(), flags, 0); });
}

// A descriptor of its own, as this one is also written through. `refused` where there is no O_DIRECT, or no /proc to
// open it by. What else fails is an error: the cache must not answer for a storage that fails. Any thread.
Result<int> File::open_direct() const {
  const int opened = open_again(O_RDONLY | O_DIRECT);
  if (opened >= 0) return opened;
  constexpr int lacks[] = {EINVAL, EOPNOTSUPP, ENOSYS, ENOENT, ENOTDIR, EACCES, EPERM};
  if (std::find(std::begin(lacks), std::end(lacks), -opened) == std::end(lacks)) return Failure(error(-opened, "read"));
  return refused;
}

// The same, and the server hears of O_DIRECT with each read alone. Layers of GlusterFS's client that read ahead do so
// for one descriptor, and know nothing of this one yet; those that keep bytes for all go by the flag of the read.
// `refused` for whatever reason.
int File::open_becoming_direct() const {
  const int opened = open_again(O_RDONLY);
  if (opened >= 0 && env_->set_direct(opened) >= 0) return opened;
  if (opened >= 0) env_->close(opened);
  return refused;
}

Result<int> File::direct() const {
  int known = direct_.load(std::memory_order_acquire);
  if (known != not_tried) return known;
  ST_TRY(const int opened, open_direct());
  if (direct_.compare_exchange_strong(known, opened, std::memory_order_acq_rel)) return opened;
  if (opened >= 0) env_->close(opened);
  return known;
}

Result<size_t> File::read_stored(void *buffer, size_t n, uint64_t offset) const {
  if (n == 0) return size_t{0};
  // What of an unsynced write fails at the server, it may tell to whatever descriptor of the file is closed next.
  if (past_cache_ == PastCache::by_length && n >= long_read && !unsynced_) {
    const size_t got = read_long(buffer, n, offset);
    if (got == n) return got;
    ST_TRY(auto rest, read_in_pages(static_cast<char *>(buffer) + got, n - got, offset + got));
    return got + rest;
  }
  return read_in_pages(buffer, n, offset);
}

// Straight into the memory, but for pages that it shares: FUSE asks for no borders. As many bytes as come. Those that
// do not are asked for by the descriptor that is kept: a server may have removed the file, and know it by that one
// still.
size_t File::read_long(void *buffer, size_t n, uint64_t offset) const {
  const Aligned first(page_size()), last(page_size());
  const int fd = open_becoming_direct();
  if (fd < 0) return 0;
  size_t done = 0;
  for (ssize_t got = 1; got > 0 && done < n; done += static_cast<size_t>(std::max<ssize_t>(got, 0))) {
    char *const to = static_cast<char *>(buffer) + done;
    const WholePages at(to, n - done);
    const struct iovec parts[] = {{first.bytes, at.head}, {to + at.head, at.body}, {last.bytes, at.tail}};
    const int skipped = at.head == 0, count = 3 - skipped - (at.tail == 0);
    got = repeat_interrupted([&] { return env_->preadv(fd, parts + skipped, count, offset + done); });
    if (got <= 0) continue;
    const auto came = static_cast<size_t>(got), behind = at.head + at.body;
    std::memcpy(to, first.bytes, std::min(came, at.head));
    if (came > behind) std::memcpy(to + behind, last.bytes, came - behind);
  }
  env_->close(fd);
  return done;
}

Result<size_t> File::read_in_pages(void *buffer, size_t n, uint64_t offset) const {
  const bool anew = past_cache_ == PastCache::anew;
  ST_TRY(int fd, anew ? open_direct() : direct());
  struct CloseOwn {
    ~CloseOwn() {
      if (anew && fd >= 0) env.close(fd);
    }
    Env &env;
    const bool anew;
    const int &fd;
  } close_own{*env_, anew, fd};
  size_t done = 0;
  if (fd >= 0) {
    const uint64_t span = round_up(offset + n, alignment) - round_down(offset, alignment);
    const Aligned memory(std::min(span, most_of_own + alignment));
    bool looked = false;
    while (done < n) {
      const uint64_t at = offset + done, from = round_down(at, alignment);
      const uint64_t most = most_of_own + (at == from ? 0 : alignment);
      const uint64_t length = std::min(round_up(offset + n, alignment) - from, most);
      const ssize_t got = repeat_interrupted([&] { return env_->pread(fd, memory.bytes, length, from); });
      if (got == -EINVAL) break;  // a filesystem with larger borders
      if (got < 0) return cannot_read(static_cast<int>(-got), at);
      if (from + static_cast<uint64_t>(got) <= at) {
        // The end; but some kernels go by the size that they remember.
        ST_TRY(auto s, stat());
        if (std::exchange(looked, true) || static_cast<uint64_t>(s.st_size) <= at) return done;
        if (anew) {
          env_->close(std::exchange(fd, -1));
          ST_TRY(fd, open_direct());
          if (fd < 0) break;
        }
        continue;
      }
      looked = false;
      const size_t fresh = std::min(n - done, static_cast<size_t>(from + static_cast<uint64_t>(got) - at));
      std::memcpy(static_cast<char *>(buffer) + done, memory.bytes + (at - from), fresh);
      done += fresh;
    }
    if (done == n) return done;
  }
  const uint64_t from = round_down(offset + done, alignment);
  env_->fadvise(fd_, from, round_up(offset + n, alignment) - from, POSIX_FADV_DONTNEED);
  ST_TRY(auto rest, read_remembered(static_cast<char *>(buffer) + done, n - done, offset + done));
  return done + rest;
}

// Any thread.
bool File::writes_past_cache() const {
  if (past_cache_ != PastCache::by_length) return false;
  if (writes_ == Writes::as_opened) writes_ = env_->set_direct(fd_) < 0 ? Writes::through_cache : Writes::past_cache;
  return writes_ == Writes::past_cache;
}

Filesystem Location::filesystem(const File &file, const struct stat &s) const {
  if (const Directory::Known *known = folder_->known_.load(std::memory_order_acquire); known && known->dev == s.st_dev)
    return known->filesystem;
  Filesystem found = probe_filesystem(file);
  auto mine = std::make_unique<Directory::Known>(Directory::Known{s.st_dev, found});
  Directory::Known *none = nullptr;
  if (folder_->known_.compare_exchange_strong(none, mine.get(), std::memory_order_acq_rel))
    static_cast<void>(mine.release());
  return found;
}

Result<const Directory::Own *> Directory::storage() const {
  if (const Own *known = own_.load(std::memory_order_acquire)) return known;
  ST_TRY(auto found, ask_filesystem(file_));
  bool has_other_hosts = may_have_other_hosts(found);
  if (has_other_hosts) {
    ST_TRY(const auto s, identity());
    has_other_hosts = major(s.st_dev) == 0;
  }
  auto mine = std::make_unique<const Own>(Own{std::move(found), has_other_hosts});
  const Own *none = nullptr;
  return own_.compare_exchange_strong(none, mine.get(), std::memory_order_acq_rel) ? mine.release() : none;
}

Filesystem Location::filesystem_by_folder(const struct stat &s) const {
  const Directory::Known *known = folder_->known_.load(std::memory_order_acquire);
  if (known && known->dev == s.st_dev) return known->filesystem;
  const auto own = folder_->storage();
  return own ? (*own)->filesystem : Filesystem();
}

// A disk has a device number; what is mounted without one has 0 there.
PastCache Location::how_to_read(const struct stat &s) const {
  return major(s.st_dev) != 0 ? PastCache::no : how_to_read(filesystem_by_folder(s));
}

PastCache Location::how_to_read(const Filesystem &filesystem) {
  if (!may_have_other_hosts(filesystem)) return PastCache::no;
  if (filesystem.type == "fuse.glusterfs") return PastCache::by_length;
  return keeps_what_was_read(filesystem.type) ? PastCache::anew : PastCache::by_one;
}

bool Location::has_other_hosts() const {
  const auto own = folder_->storage();
  return !own || (*own)->has_other_hosts;
}

bool Location::is_of_this_machine() const {
  const auto own = folder_->storage();
  const Filesystem found = own ? (*own)->filesystem : Filesystem();
  return found.storage == Storage::local || found.storage == Storage::memory || found.type == "fuseblk";
}

void Location::renew() const {
  renew_name(env(), dir(), name_);
}

Result<void> Location::read_past_cache(File *file, struct stat *s) const {
  const PastCache how = major(s->st_dev) != 0 ? PastCache::no : how_to_read(filesystem(*file, *s));
  if (how == PastCache::no) return {};
  file->read_past_cache(how);
  ST_TRY(*s, file->stat());
  // It may have been opened by a name that led there once.
  renew();
  struct stat named;
  if (!nameless_ && (stat(&named) != 0 || !same_inode(*s, named))) return Failure(file->error(ESTALE, "open"));
  return {};
}

// FUSE asks for the name itself. NFS and its like ask for the folder: while it is as they remember it, so are its
// names.
void renew_name(Env &env, int folder, const std::string &name) {
  env.renew_name(folder, name.c_str());
  struct stat now;
  env.fstat_synced(folder, &now);
}

}  // namespace st::os
