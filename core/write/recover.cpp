#include "write/recover.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "hash.h"
#include "write/exclusive.h"
#include "write/identity.h"
#include "write/journal_layout.h"
#include "write/replacement.h"
#include "write/undo.h"

namespace st::write {
namespace {

constexpr uint64_t chunk = write_chunk_bytes;

// A journal found in the folder, and what its first sector says. Reading takes
// no lock: whoever looks must not be taken for the journal's writer by another
// who looks at the same time.
struct Found {
  os::File file;
  uint64_t size = 0;
  JournalState state = JournalState::empty;
  CommitRecord record;
  std::string damage;  // why it must not be applied

  bool waits() const { return state != JournalState::empty || !damage.empty(); }
};

Result<void> read_state(Found &found) {
  auto s = found.file.stat();
  if (!s) return Failure(std::move(s.error()));
  found.size = static_cast<uint64_t>(s->st_size);
  std::byte block[header_bytes] = {};
  auto got = found.file.read_up_to(block, sizeof block, 0);
  if (!got) return Failure(std::move(got.error()));
  found.damage.clear();
  found.state = decode({block, std::max<size_t>(*got, sector_bytes)}, &found.record);
  if (found.state == JournalState::damaged) found.damage = "its commit record is damaged, or of a newer version";
  return {};
}

// Null if it has gone meanwhile. Opened for writing if `write`.
Result<std::unique_ptr<Found>> look_at(const Folder &folder, const std::string &name, const struct stat &data,
                                       bool write) {
  os::Env &env = folder.dir().env();
  const std::string shown = folder.dir().path() + "/" + name;
  auto found = std::make_unique<Found>();
  struct stat s;
  if (const int r = env.fstatat(folder.dir().fd(), name.c_str(), &s, AT_SYMLINK_NOFOLLOW); r < 0) {
    if (r == -ENOENT) return nullptr;
    return Failure(os_error(-r, "look at", shown));
  }
  if (!S_ISREG(s.st_mode))
    found->damage = "it is no plain file";
  else if (s.st_nlink > 1)
    found->damage = "it has a second link";
  else
    found->damage = distrust(s, data, env.geteuid());
  if (!found->damage.empty()) return found;

  auto file =
      os::File::open(env, folder.dir().fd(), name, (write ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK, 0, shown);
  if (!file) {
    if (file.error().os_errno == ENOENT) return nullptr;
    return Failure(std::move(file.error()));
  }
  found->file = std::move(*file);
  if (auto read = read_state(*found); !read) return Failure(std::move(read.error()));
  return found;
}

bool manifest_is_inside(const Found &found) {
  const CommitRecord &r = found.record;
  return r.ranges <= found.size / range_record_bytes && r.manifest <= found.size &&
         r.ranges * range_record_bytes <= found.size - r.manifest;
}

// Is this the record of a transaction on bytes that are locked by us? Then its
// writer has lost its locks: the kernel takes them from a dying process one file
// after the other, and the journal's may be the last. What cannot be read
// belongs to somebody who goes on writing, or to recovery.
bool is_on(const Found &found, std::span<const Piece> locked) {
  if (found.state != JournalState::committed || !manifest_is_inside(found)) return false;
  std::vector<std::byte> manifest(found.record.ranges * range_record_bytes);
  if (!found.file.read(manifest.data(), manifest.size(), found.record.manifest)) return false;
  if (hash64(manifest.data(), manifest.size()) != found.record.manifest_hash) return false;
  auto piece = locked.begin();  // both ascend
  for (const RangeRecord &range : decode_ranges(manifest)) {
    while (piece != locked.end() && piece->offset + piece->payload.length <= range.offset) ++piece;
    if (piece != locked.end() && piece->offset < range.offset + range.length) return true;
  }
  return false;
}

void drop(const Folder &folder, const std::string &name) {
  folder.dir().env().unlinkat(folder.dir().fd(), name.c_str(), 0);
}

// Removes an empty journal if nobody is filling it: true if it did. Only under
// the lock of the whole file: a journal's lock in other hands than its writer's
// would be taken for a sign of life.
Result<bool> drop_if_idle(const Folder &folder, const std::string &name, const Found &found) {
  auto lock = os::RangeLock::acquire(found.file, {{0, 0, true}}, {});
  if (!lock && lock.error().status == Status::busy) return false;
  if (!lock) return Failure(std::move(lock.error()));
  drop(folder, name);
  return true;
}

// Everything that must hold before a byte is written. Empty: it does.
class Replay {
 public:
  Replay(const os::File &data, const Found &orphan) : data_(data), orphan_(orphan) {}

  Result<std::string> why_not();
  Result<void> apply();
  size_t ranges() const { return ranges_.size(); }
  uint64_t bytes() const;

 private:
  Result<std::string> why_not_range(const RangeRecord &range);

  const os::File &data_;
  const Found &orphan_;
  std::vector<RangeRecord> ranges_;
  bool touched_ = false;                        // the file holds new bytes that are not the old ones
  std::unique_ptr<std::byte[]> now_, payload_;  // a chunk, or the largest range
};

uint64_t Replay::bytes() const {
  uint64_t sum = 0;
  for (const RangeRecord &r : ranges_) sum += r.length;
  return sum;
}

Result<std::string> Replay::why_not() {
  const CommitRecord &record = orphan_.record;
  auto identity = identify(data_);
  if (!identity) return Failure(std::move(identity.error()));
  const bool same_inode = identity->inode == record.identity.inode;
  identity->inode = record.identity.inode;
  if (*identity != record.identity)
    return std::string("it is the journal of another file, or of another state of this one");

  const uint64_t n = record.ranges * range_record_bytes;
  if (!manifest_is_inside(orphan_)) return std::string("its manifest lies outside of it");
  std::vector<std::byte> manifest(n);
  if (auto got = orphan_.file.read(manifest.data(), n, record.manifest); !got) return Failure(std::move(got.error()));
  if (hash64(manifest.data(), n) != record.manifest_hash) return std::string("its manifest is damaged");
  ranges_ = decode_ranges(manifest);
  if (std::string why = check_ranges(ranges_, record.identity, orphan_.size); !why.empty()) return why;
  uint64_t largest = 0;
  for (const RangeRecord &range : ranges_) largest = std::max(largest, range.length);
  now_ = std::make_unique_for_overwrite<std::byte[]>(std::min(chunk, largest));
  payload_ = std::make_unique_for_overwrite<std::byte[]>(std::min(chunk, largest));
  for (const RangeRecord &range : ranges_) {
    auto why = why_not_range(range);
    if (!why || !why->empty()) return why;
  }
  // Some filesystems number their inodes anew at each mount (FUSE), and a copy
  // has another, too. Then the bytes must tell: some of them are new already.
  if (!same_inode && !touched_) return std::string("it is the journal of another file, which it has not touched");
  return std::string();
}

// The payload is whole; and each sector of the file holds its old bytes or its
// new ones, so that nobody else has changed them since. One kind is the payload,
// the other is known by its hashes.
Result<std::string> Replay::why_not_range(const RangeRecord &range) {
  const bool is_undo = orphan_.record.is_undo();
  Hasher payload_hash, table_hash;
  std::vector<uint32_t> table;
  uint64_t table_at = range.sectors;
  std::string foreign;
  for (uint64_t at = range.offset, end = range.offset + range.length; at < end;) {
    const uint64_t n = up_to_sector(at, chunk, end - at);
    if (auto got = orphan_.file.read(payload_.get(), n, range.payload + (at - range.offset)); !got)
      return Failure(std::move(got.error()));
    if (auto got = data_.read(now_.get(), n, at); !got) return Failure(std::move(got.error()));
    table.resize(sectors_of(at, n));
    if (auto got = orphan_.file.read(table.data(), table.size() * sizeof(uint32_t), table_at); !got)
      return Failure(std::move(got.error()));
    table_at += table.size() * sizeof(uint32_t);
    payload_hash.add(payload_.get(), n);
    table_hash.add(table.data(), table.size() * sizeof(uint32_t));
    uint64_t from = 0;
    for (uint32_t hash : table) {
      const uint64_t piece = std::min(n - from, sector_bytes - (at + from) % sector_bytes);
      const bool is_hashed = hash_sector({now_.get() + from, piece}) == hash;
      const bool is_payload = std::memcmp(now_.get() + from, payload_.get() + from, piece) == 0;
      const bool is_old = is_undo ? is_payload : is_hashed, is_new = is_undo ? is_hashed : is_payload;
      touched_ |= is_new && !is_old;
      if (!is_new && !is_old && foreign.empty())
        foreign = text("the file's bytes at ", at + from,
                       " are neither the old nor the new ones: something else has changed them since");
      from += piece;
    }
    at += n;
  }
  if (payload_hash.digest() != range.payload_hash) return std::string("a payload is damaged");
  if (table_hash.digest() != range.sectors_hash) return std::string("a table of hashes is damaged");
  return foreign;
}

Result<void> Replay::apply() {
  for (const RangeRecord &range : ranges_) {
    auto done = orphan_.record.is_undo() ? put_back(data_, orphan_.file, range, payload_.get())
                                         : copy_payload(data_, orphan_.file, range, range.offset,
                                                        range.offset + range.length, payload_.get());
    if (!done) return done;
  }
  return data_.sync_data();
}

Result<void> empty_and_drop(const Folder &folder, const std::string &name, const Found &orphan) {
  constexpr std::byte zeros[header_bytes] = {};
  if (auto put = orphan.file.write(zeros, sizeof zeros, 0); !put) return put;
  if (auto synced = orphan.file.sync_data(); !synced) return synced;
  drop(folder, name);
  return {};
}

Error needs_recovery(const std::string &path, const Error &cause) {
  Error e = error(Status::needs_recovery, "a committed journal waits beside ", quoted(path),
                  " but cannot be applied here (", cause.message, "); open the file once where it can be written");
  e.os_errno = cause.os_errno;
  return e;
}

bool means_read_only(const Error &e) {
  return e.os_errno == EACCES || e.os_errno == EPERM || e.os_errno == EROFS || e.os_errno == ETXTBSY;
}

}  // namespace

Result<Orphans> find_orphans(const Folder &folder, const struct stat &data, const Asking &asking) {
  Orphans orphans;
  auto names = folder.journals();
  if (!names) return Failure(std::move(names.error()));
  for (const std::string &name : *names) {
    if (name == asking.own) continue;
    auto looked = look_at(folder, name, data, false);
    if (!looked) return Failure(std::move(looked.error()));
    if (!*looked) continue;
    Found &found = **looked;
    if (found.file) {
      auto locked = os::is_locked(found.file, {0, 0, true});
      if (!locked) return Failure(std::move(locked.error()));
      if (*locked && !is_on(found, asking.locked)) continue;
      // Its writer may have finished since we read: look again, now that nobody
      // writes to it.
      if (found.waits())
        if (auto read = read_state(found); !read) return Failure(std::move(read.error()));
    }
    (found.waits() ? orphans.committed : orphans.idle) = true;
  }
  return orphans;
}

Result<Recovered> recover(os::Env &env, const std::string &path, const os::LockWait &wait, const Findings &findings) {
  Recovered result;
  bool stopped = false;
  auto tell = [&](LogLevel level, Status status, std::string message) {
    if (findings && !findings({level, status, std::move(message)})) stopped = true;
  };
  struct stat by_path;
  if (const int r = env.fstatat(AT_FDCWD, path.c_str(), &by_path, 0); r < 0)
    return Failure(os_error(-r, "look at", path));
  Replacement::remove_stale(env, path);
  auto folder =
      Folder::open(env, path, by_path, [&](LogLevel level, const std::string &m) { tell(level, Status::journal, m); });
  if (!folder) return Failure(std::move(folder.error()));
  if (!*folder) return result;

  auto exclusive = lock_whole_file(env, path, wait);
  if (!exclusive)
    return Failure(means_read_only(exclusive.error()) ? needs_recovery(path, exclusive.error())
                                                      : std::move(exclusive.error()));
  const os::File &data = (*exclusive)->file;
  auto identity = data.stat();
  if (!identity) return Failure(std::move(identity.error()));

  auto names = (*folder)->journals();
  if (!names) return Failure(std::move(names.error()));
  for (const std::string &name : *names) {
    if (stopped)
      return fail(Status::cancelled, "the report callback stopped the recovery; what it had reported is done");
    auto looked = look_at(**folder, name, *identity, true);
    if (!looked)
      return Failure(means_read_only(looked.error()) ? needs_recovery(path, looked.error())
                                                     : std::move(looked.error()));
    if (!*looked) continue;
    Found &orphan = **looked;
    if (!orphan.waits()) {
      auto dropped = drop_if_idle(**folder, name, orphan);
      if (!dropped) return Failure(std::move(dropped.error()));
      if (!*dropped) continue;
      ++result.dropped;
      tell(LogLevel::info, Status::ok, text("journal ", name, ": its transaction had not committed; it was dropped"));
      continue;
    }
    Replay replay(data, orphan);
    if (orphan.damage.empty()) {
      auto why = replay.why_not();
      if (!why) return Failure(std::move(why.error()));
      orphan.damage = std::move(*why);
    }
    if (!orphan.damage.empty()) {
      const std::string aside = name + std::string(aside_suffix);
      const int moved = env.renameat((*folder)->dir().fd(), name.c_str(), (*folder)->dir().fd(), aside.c_str());
      if (moved < 0) return Failure(os_error(-moved, "move aside", (*folder)->dir().path() + "/" + name));
      ++result.aside;
      result.why_aside = text("journal ", name, " was not applied: ", orphan.damage, "; it was moved aside to ",
                              quoted((*folder)->dir().path() + "/" + aside));
      tell(LogLevel::warning, Status::journal, result.why_aside);
      continue;
    }
    if (auto applied = replay.apply(); !applied) return Failure(std::move(applied.error()));
    if (auto emptied = empty_and_drop(**folder, name, orphan); !emptied) return Failure(std::move(emptied.error()));
    const bool undone = orphan.record.is_undo();
    ++(undone ? result.undone : result.applied);
    tell(LogLevel::info, Status::ok,
         text("journal ", name,
              undone ? ": its transaction had not committed; it was rolled back, "
                     : ": its committed transaction was finished, ",
              replay.bytes(), " bytes in ", replay.ranges(), " pieces"));
  }
  (*exclusive)->lock.release();
  Folder::remove_if_empty(env, path);
  return result;
}

}  // namespace st::write
