#include "journal/hot_journal.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/hash.h"
#include "journal/changes.h"
#include "journal/claim.h"
#include "journal/identity.h"
#include "journal/journal_plan.h"
#include "journal/undo.h"
#include "newfile/units.h"
#include "os/lock_holder.h"
#include "os/range_lock.h"

namespace st::write {

bool drop(const Folder &folder, const std::string &name) {
  const int r = folder.dir().env().unlinkat(folder.dir().fd(), name.c_str(), 0);
  return r == 0 || r == -ENOENT;
}

// Its writer may have lost its locks, and write a record when it wakes up. By then the record must be under no name
// that is looked at, also after a power cut. An unlinked name may come back; this one tells what it is.
Result<bool> drop_for_good(const Folder &folder, const std::string &name) {
  if (!folder.dir().reads_past_cache()) {
    drop(folder, name);
    return true;
  }
  const std::string gone = name + std::string(gone_suffix);
  ST_TRY(auto there, rename_in(folder.dir(), name, gone));
  if (!there) return false;
  ST_TRY(folder.dir().sync());
  drop(folder, gone);
  return true;
}

Result<void> drop_gone(const Folder &folder, std::vector<std::string> *names) {
  const auto gone =
      std::partition(names->begin(), names->end(), [](const std::string &name) { return !is_dropped(name); });
  if (gone == names->end()) return {};
  ST_TRY(folder.dir().sync());  // the one that gave the name may have died before
  for (auto name = gone; name != names->end(); ++name) drop(folder, *name);
  names->erase(gone, names->end());
  return {};
}

namespace {

Result<void> read_state(Found &found, const struct stat &s) {
  found.size = static_cast<uint64_t>(s.st_size);
  std::byte block[header_bytes] = {};
  ST_TRY(auto got, found.file.read_up_to(block, sizeof block, 0));
  found.state = decode({block, std::max<size_t>(got, sector_bytes)}, &found.record);
  found.has_last = found.state == JournalState::empty && decode_last({block, got}, &found.record);
  found.verdict = found.state == JournalState::damaged
                      ? Verdict::bad("its commit record is damaged, or of a newer version")
                      : Verdict::good();
  return {};
}

// It may be any file of the owner's, or of root's, to which somebody has given a name here: nothing is written to it,
// and nothing is believed of it.
void distrust_link(Found *found) {
  found->file = {};
  found->is_linked = false;
  found->verdict = Verdict::bad("it has a second link");
}

// For a journal with a second link. A wait for its holder may be long: it may settle the journal when it closes the
// file.
Error not_settled(const Found &linked) {
  Error busy = error(Status::busy);
  busy.holder_pid = os::find_lock_holder(linked.file, os::whole_file(true));
  busy.message = text(os::name_of_holder(busy.holder_pid), " has not finished what it wrote into the journal ",
                      in_quotes(linked.file.path()),
                      ", which has a second link (a backup?); try again when it has, or remove that link");
  return busy;
}

// Nothing is written to a journal before its readers may read it: see Journal::create(). Where other hosts write, its
// size may be that of a while ago.
bool has_no_bytes(const Folder &folder, const struct stat &looked) {
  return looked.st_size == 0 && !folder.dir().reads_past_cache();
}

// What a name leads to when it is opened, after a look at it.
enum class LedTo { same, exchanged, gone };

// Is it trusted, beside the file of `data`?
bool may_trust(const struct stat &s, const struct stat &data, const os::File &dir, Found *found) {
  found->verdict = trust(s, data, dir.env().geteuid());
  found->is_trusted = found->verdict.is_good();
  return found->is_trusted;
}

// Opens and reads what `s` is of, unless another file has taken the name since. Trust is in what is open: others may
// have rights to it by now. A backup may link what it copies, also the journal of a living writer, which the writer
// goes on to use.
Result<LedTo> read_looked_at(const Folder &folder, const std::string &name, const struct stat &s,
                             const struct stat &data, bool write, Found *found) {
  const os::File &dir = folder.dir();
  const int flags = (write && !found->is_linked ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  auto file = os::File::open(dir.env(), dir.fd(), name, flags, 0, dir.path() + "/" + name);
  if (!file && found->is_linked && means_read_only(file.error())) {
    distrust_link(found);
    return LedTo::same;
  }
  if (!file && file.error().os_errno == EACCES) {
    if (!write && has_no_bytes(folder, s)) return LedTo::gone;
    if (s.st_uid != dir.env().geteuid()) file.error().message += "; " + who_finishes(s.st_uid);
  }
  if (!file) return Failure(std::move(file.error()));
  folder.opened(&*file);
  ST_TRY(const auto opened, file->stat());
  if (!os::same_inode(opened, s)) return LedTo::exchanged;
  if (!may_trust(opened, data, dir, found)) {
    found->is_linked = false;
    return LedTo::same;
  }
  found->file = std::move(*file);
  if (found->is_linked) {
    const auto held = os::how_locked(found->file);
    if (!held && held.error().status != Status::lock_unsupported) return Failure(held.error());
    if (!held || *held == os::Locked::no) {
      distrust_link(found);
      return LedTo::same;
    }
  }
  ST_TRY(read_state(*found, opened));
  return LedTo::same;
}

}  // namespace

Result<void> read_state(Found &found) {
  ST_TRY(const auto s, found.file.stat());
  return read_state(found, s);
}

// What is opened must be what was looked at. The owner of the file may put a link to another one there in between.
Result<std::unique_ptr<Found>> look_at(const Folder &folder, const std::string &name, const struct stat &data,
                                       bool write) {
  constexpr int attempts = 10;
  os::Env &env = folder.dir().env();
  const std::string shown = folder.dir().path() + "/" + name;
  auto found = std::make_unique<Found>();
  struct stat s;
  for (int left = attempts;; --left) {
    if (const int r = env.fstatat(folder.dir().fd(), name.c_str(), &s, AT_SYMLINK_NOFOLLOW); r < 0) {
      if (r == -ENOENT || r == -ESTALE) return nullptr;
      return Failure(os_error(-r, "look at", shown));
    }
    const char *const why = !S_ISREG(s.st_mode)     ? "it is no plain file"
                            : !may_be_journal(name) ? "it has no journal's name"
                            : left == 0             ? "other files take its name while it is looked at"
                                                    : nullptr;
    if (why) {
      found->verdict = Verdict::bad(why);
      found->is_trusted = false;
      return found;
    }
    if (!may_trust(s, data, folder.dir(), found.get())) return found;
    found->is_linked = s.st_nlink > 1;
    const auto look = read_looked_at(folder, name, s, data, write, found.get());
    if (!look && !is_gone(look.error())) return Failure(look.error());
    if (!look || *look == LedTo::gone) return nullptr;
    if (*look == LedTo::same) return found;
  }
}

Result<std::unique_ptr<Found>> look_to_settle(const Folder &folder, const std::string &name, const struct stat &data,
                                              const std::string &path, std::string *left) {
  auto looked = look_at(folder, name, data, true);
  if (looked && *looked && (*looked)->is_linked)
    return (*looked)->waits() ? Result<std::unique_ptr<Found>>(Failure(not_settled(**looked))) : nullptr;
  if (looked || !means_read_only(looked.error())) return looked;
  const Error refused = std::move(looked.error());
  looked = look_at(folder, name, data, false);
  if (looked && *looked && (*looked)->waits()) return Failure(needs_recovery(path, refused));
  *left = refused.message;
  return looked;
}

Result<bool> drop_if_idle(const Folder &folder, std::string *name, Found &found) {
  auto lock = os::RangeLock::acquire(found.file, {os::whole_file(true)}, {});
  if (!lock && lock.error().status != Status::busy) return Failure(std::move(lock.error()));
  if (!lock && !found.file.reads_past_cache()) return false;
  if (!lock) {  // for a record: under locks that are ours by now
    ST_TRY(const auto held, who_holds(found));
    if (held != Holder::writer) return false;
  }
  ST_TRY(auto ours, claim(folder, name, found));
  if (!ours || found.waits()) return false;
  // Elsewhere the name that it gets next is enough, and its writer may be about to decide by it.
  if (found.size > 0 && !folder.dir().reads_past_cache()) ST_TRY(empty(found));
  return drop_for_good(folder, *name);
}

// A parked journal still says what its last transaction changed. Its owner may have locked it for another one since it
// was read, and had it say so before. Or it has committed or finished since, and died.
Result<Holder> who_holds(Found &found) {
  ST_TRY(auto locked, os::how_locked(found.file));
  if (locked == os::Locked::exclusive && found.file.reads_past_cache()) ST_TRY(read_state(found));
  if (locked == os::Locked::no) ST_TRY(read_state(found));
  return locked == os::Locked::no ? Holder::nobody : locked == os::Locked::shared ? Holder::parked : Holder::writer;
}

// Makes durable what a dying writer has left of the first sector. It may be that its own sync has failed: then the
// kernel has told the writer, takes these pages for written, and tells nobody else. So the sector is made dirty once
// more, by its last byte, which is zero in each record and in none. Not where other hosts may write the same page.
Result<void> sync_for(const Found &found) {
  constexpr std::byte zero{};
  if (!found.file.reads_past_cache()) ST_TRY(found.file.write(&zero, 1, sector_bytes - 1));
  return found.file.sync_data();
}

// A journal without bytes, whose maker may be about to lock it. If it is locked here first, its maker makes another.
// False: its maker was first. Or another asker was, and may die now; then the journal counts as one that waits.
Result<bool> lock_empty(Found &found, Holder *held, os::RangeLock *lock) {
  auto locked = os::RangeLock::acquire(found.file, {os::whole_file(true)}, {});
  if (!locked && locked.error().status != Status::busy) return Failure(std::move(locked.error()));
  if (!locked) {
    ST_TRY(*held, who_holds(found));
    return false;
  }
  *lock = std::move(*locked);
  return true;
}

// A locked one belongs to a dying writer, or to a living one that works elsewhere: it stays as it is. An unlocked one
// with any bytes is nobody's any more, because the maker of a journal locks it before its first byte. Another host
// may have lost its locks, so there not even one without bytes stays: its maker could go on with it. Nor does one stay
// there that says it is for the asker's bytes: its writer has lost these, and locked the journal once more.
// One with a second link is synced, and not written to.
Result<bool> settle_idle(const Folder &folder, std::string name, Found &found, Holder held, bool on_ours) {
  if (held == Holder::parked || (found.size == 0 && !found.file.reads_past_cache())) return true;
  if (found.is_linked) {
    if (held == Holder::nobody) return false;
    if (on_ours) return Failure(not_settled(found));
    ST_TRY(found.file.sync_data());
    return true;
  }
  os::RangeLock lock;
  if (found.size == 0) {
    ST_TRY(auto locked, lock_empty(found, &held, &lock));
    if (!locked) return held == Holder::parked;
  }
  if (held == Holder::writer && !on_ours && found.size > 0) {
    ST_TRY(sync_for(found));
  } else if (found.is_done()) {
    ST_TRY(mark_done(found));
  } else {
    ST_TRY(auto ours, claim(folder, &name, found));
    if (found.waits()) return false;
    if (ours) ST_TRY(empty_and_drop(folder, name, found));
  }
  return true;
}

// A chunk each; and what changes of a sparse range. For the longest ranges that the rules allow, and not that the list
// has: it is read more than once, and the owner of the file may make it another one in between.
struct Replay::Buffers {
  explicit Buffers(const CommitRecord &record)
      : chunk(std::min(write_chunk_bytes, record.identity.size)),
        packed(std::make_unique_for_overwrite<std::byte[]>(record.is_sparse() ? longest_changes(chunk) : 0)),
        now(std::make_unique_for_overwrite<std::byte[]>(chunk)),
        payload(std::make_unique_for_overwrite<std::byte[]>(chunk)) {}
  static_assert(longest_sparse <= write_chunk_bytes);
  const uint64_t chunk;
  std::unique_ptr<std::byte[]> packed, now, payload;
  std::vector<uint32_t> table;
};

Result<Verdict> Replay::judge(const Identity &identity) {
  auto verdict = judge_part(identity);
  if (!verdict || !verdict->is_good() || is_torn()) return verdict;
  // Some filesystems number their inodes anew at each mount (FUSE), and a copy
  // has another, too. Then the bytes must tell: some of them are new already.
  if (is_strange()) return Verdict::bad(why_strange);
  return verdict;
}

Result<Verdict> Replay::judge_part(Identity identity) {
  const CommitRecord &record = hot_.record;
  same_inode_ = identity.inode == record.identity.inode;
  identity.inode = record.identity.inode;
  if (identity != record.identity)
    return Verdict::bad("it is the journal of another file, or of another state of this one");

  auto verdict = manifest_.each([&](const RangeRecord &range) -> Result<Verdict> {
    ++ranges_;
    bytes_ += range.length;
    end_ = std::max(end_, range.offset + range.length);
    confirmed_ = std::max({confirmed_, range.payload + range.payload_bytes(), range.sectors + range.tables_bytes()});
    return Verdict::good();
  });
  if (verdict && !verdict->is_good()) verdict = damaged(verdict->why());
  if (verdict && verdict->is_good()) {
    Buffers buffers(record);
    verdict = manifest_.each([&](const RangeRecord &range) {
      return range.is_sparse() ? judge_sparse(range, buffers) : judge_range(range, buffers);
    });
  }
  if (verdict && is_torn()) return judge_torn();
  return verdict;
}

// The payload is whole; and each sector of the file holds its old bytes or its
// new ones, so that nobody else has changed them since. One kind is the payload,
// the other is known by its hashes.
Result<Verdict> Replay::judge_range(const RangeRecord &range, Buffers &buffers) {
  const bool is_undo = hot_.record.is_undo();
  Hasher payload_hash, table_hash;
  auto &[chunk, packed, now, payload, table] = buffers;
  uint64_t table_at = range.sectors;
  Verdict sectors = Verdict::good();
  for (uint64_t at = range.offset, end = range.offset + range.length; at < end;) {
    const uint64_t n = up_to_sector(at, write_chunk_bytes, end - at);
    ST_TRY(hot_.file.read(payload.get(), n, range.payload + (at - range.offset)));
    ST_TRY(data_.read(now.get(), n, at));
    table.resize(sectors_of(at, n));
    ST_TRY(hot_.file.read(table.data(), table.size() * sizeof(uint32_t), table_at));
    table_at += table.size() * sizeof(uint32_t);
    payload_hash.add(payload.get(), n);
    table_hash.add(table.data(), table.size() * sizeof(uint32_t));
    uint64_t from = 0;
    for (uint32_t hash : table) {
      const uint64_t piece = std::min(n - from, sector_bytes - (at + from) % sector_bytes);
      const bool is_hashed = hash_sector({now.get() + from, static_cast<size_t>(piece)}) == hash;
      const bool is_payload = std::memcmp(now.get() + from, payload.get() + from, piece) == 0;
      const bool is_old = is_undo ? is_payload : is_hashed, is_new = is_undo ? is_hashed : is_payload;
      found_sector(is_new, is_old, at + from, &sectors);
      from += piece;
    }
    at += n;
  }
  if (payload_hash.digest() != range.payload_hash) return damaged("a payload is damaged");
  if (table_hash.digest() != range.sectors_hash) return damaged("a table of hashes is damaged");
  return sectors;
}

// The same where the journal holds what changes. An old sector is known by its hash. A new one has the hash of the new
// one, and what changes is in it. So what stays is compared, too.
Result<Verdict> Replay::judge_sparse(const RangeRecord &range, Buffers &buffers) {
  auto &[chunk, packed, now, laid, table] = buffers;
  const size_t n = range.length, sectors = sectors_of(range.offset, range.length);
  ST_TRY(hot_.file.read(packed.get(), range.packed, range.payload));
  if (hash64(packed.get(), range.packed) != range.payload_hash) return damaged("a payload is damaged");
  table.resize(2 * sectors);
  ST_TRY(hot_.file.read(table.data(), range.tables_bytes(), range.sectors));
  const uint32_t *const old = table.data(), *const fresh = old + sectors;
  if (hash64(old, sectors * sizeof *old) != range.sectors_hash ||
      hash64(fresh, sectors * sizeof *fresh) != range.fresh_hash)
    return damaged("a table of hashes is damaged");
  ST_TRY(data_.read(now.get(), n, range.offset));
  std::memcpy(laid.get(), now.get(), n);
  if (!lay_changes({packed.get(), static_cast<size_t>(range.packed)}, {laid.get(), n}))
    return damaged("what changes of a range leads out of it");
  Verdict verdict = Verdict::good();
  uint64_t from = 0;
  for (size_t i = 0; i < sectors; ++i) {
    const uint64_t piece = up_to_sector(range.offset + from, sector_bytes, n - from);
    const uint32_t hash = hash_sector({now.get() + from, static_cast<size_t>(piece)});
    const bool is_new = hash == fresh[i] && std::memcmp(now.get() + from, laid.get() + from, piece) == 0;
    found_sector(is_new, hash == old[i], range.offset + from, &verdict);
    from += piece;
  }
  return verdict;
}

void Replay::found_sector(bool is_new, bool is_old, uint64_t at, Verdict *sectors) {
  touched_ |= is_new && !is_old;
  lacks_ |= !is_new;
  if (!is_new && !is_old && sectors->is_good())
    *sectors = Verdict::bad(text("the file's bytes at ", at,
                                 " are neither the old nor the new ones: something else has changed them since"));
}

Verdict Replay::damaged(std::string why) {
  is_torn_ = true;
  return Verdict::bad(std::move(why));
}

// The record came to the disk without the rest, and then nothing was written to the file. Or the transaction was
// finished, and the zeros over the record were lost, when the journal was in use for the next one. If not even the list
// of ranges is whole, there is nothing to compare.
Result<Verdict> Replay::judge_torn() {
  const Manifest list = Manifest::of_torn(hot_.file, hot_.size, hot_.record);
  ST_TRY(auto is_whole, list.each([](const RangeRecord &) -> Result<Verdict> { return Verdict::good(); }));
  if (!is_whole.is_good()) return Verdict::good();
  Buffers buffers(hot_.record);
  bool is_old = true, is_new = true;
  ST_TRY(auto verdict, list.each([&](const RangeRecord &range) -> Result<Verdict> {
    Hasher bytes, table;
    for (uint64_t at = range.offset, end = range.offset + range.length; at < end;) {
      const uint64_t n = up_to_sector(at, write_chunk_bytes, end - at);
      ST_TRY(data_.read(buffers.now.get(), n, at));
      bytes.add(buffers.now.get(), n);
      buffers.table.clear();
      hash_sectors(at, {buffers.now.get(), static_cast<size_t>(n)}, &buffers.table);
      table.add(buffers.table.data(), buffers.table.size() * sizeof(uint32_t));
      at += n;
    }
    is_old &= table.digest() == range.sectors_hash;
    is_new &= range.is_sparse() ? table.digest() == range.fresh_hash : bytes.digest() == range.payload_hash;
    return Verdict::good();
  }));
  if (!verdict.is_good() || is_old || is_new) return verdict;
  return Verdict::bad("a part of it is damaged, and the file's bytes are neither all old nor all new");
}

// What apply() needs is looked up here: from its last look at the locks to its writes it is to make few calls.
Result<void> Replay::may_apply() {
  ST_TRY(changing_.begin());
  ST_TRY(data_.may_reach(end_));
  if (!hot_.record.has_one_flush()) return {};
  return hot_.file.may_reach(std::max(confirmed_, hot_.record.manifest + ranges_ * hot_.record.range_bytes()));
}

// A writer's sync may have left any of it out, if the writer died or was told of a failure. A second sync would not say
// so. Reading and writing makes the pages dirty once more.
Result<void> Replay::confirm() {
  if (hot_.record.has_one_flush()) {
    const uint64_t list = ranges_ * hot_.record.range_bytes();
    const uint64_t most = std::min(write_chunk_bytes, hot_.size);
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(most);
    const auto write_again = [&](uint64_t at, uint64_t length) -> Result<void> {
      for (uint64_t done = 0; done < length; done += most) {
        const uint64_t n = std::min(most, length - done);
        ST_TRY(hot_.file.read(buffer.get(), n, at + done));
        ST_TRY(hot_.file.write(buffer.get(), n, at + done));
      }
      return {};
    };
    ST_TRY(auto written, manifest_.each([&](const RangeRecord &range) -> Result<Verdict> {
      ST_TRY(write_again(range.payload, range.payload_bytes()));
      ST_TRY(write_again(range.sectors, range.tables_bytes()));
      return Verdict::good();
    }));
    if (written.is_good()) ST_TRY(write_again(hot_.record.manifest, list));
  }
  return write::confirm(hot_);
}

Result<void> Replay::apply(StillOurs &ours) {
  const Buffers buffers(hot_.record);
  const auto copy = [&](const RangeRecord &range) -> Result<void> {
    for (uint64_t at = range.offset, end = at + range.length; at < end;) {
      const uint64_t n = up_to_sector(at, write_out_bytes, end - at);
      ST_TRY(ours.check());
      ST_TRY(copy_payload(data_, hot_.file, range, at, at + n, buffers.payload.get()));
      at += n;
    }
    return {};
  };
  const auto apply = [&](const RangeRecord &range) -> Result<Verdict> {
    ST_TRY(changing_.keep(range.offset, range.length));
    ST_TRY(ours.check());
    ST_TRY(range.is_sparse()       ? write_changes(data_, hot_.file, range, buffers.packed.get(), buffers.payload.get())
           : hot_.record.is_undo() ? put_back(data_, hot_.file, range, buffers.payload.get())
                                   : copy(range));
    return Verdict::good();
  };
  ST_TRY(auto verdict, manifest_.each(apply));
  if (!verdict.is_good())
    return fail(Status::journal, in_quotes(hot_.file.path()), " was changed by something else while it was applied (",
                verdict.why(), "); see what writes to it, and open the file again");
  return data_.sync_data();
}

Result<void> empty(const Found &hot) {
  static constexpr std::byte zeros[header_bytes] = {};
  ST_TRY(hot.file.write(zeros, sizeof zeros, 0));
  return hot.file.sync_data();
}

Result<void> stay_empty(Found &found) {
  auto held = who_holds(found);
  if (!held && held.error().status != Status::lock_unsupported) return Failure(std::move(held.error()));
  if (found.waits()) return {};
  return held && *held != Holder::nobody ? sync_for(found) : empty(found);
}

Result<void> empty_and_drop(const Folder &folder, const std::string &name, const Found &hot) {
  ST_TRY(empty(hot));
  ST_TRY(drop_for_good(folder, name));
  return {};
}

namespace {

Result<void> put_record(const Found &found, uint64_t more_flags) {
  CommitRecord record = found.record;
  record.flags |= more_flags;
  const auto block = encode(record);
  ST_TRY(found.file.write(block.data(), block.size(), 0));
  return found.file.sync_data();
}

}  // namespace

Result<void> confirm(const Found &hot) {
  return put_record(hot, 0);
}

Result<void> mark_done(const Found &part) {
  return put_record(part, done_record);
}

Error needs_recovery(const std::string &path, const Error &cause) {
  Error e = error(Status::needs_recovery, "a committed journal waits beside ", in_quotes(path),
                  " but cannot be applied here (", cause.message, "); open the file once where it can be written");
  e.os_errno = cause.os_errno;
  return e;
}

Error recovery_stopped() {
  return error(Status::cancelled, "the report callback stopped the recovery; what it had reported is done");
}

bool means_read_only(const Error &e) {
  return e.os_errno == EACCES || e.os_errno == EPERM || e.os_errno == EROFS || e.os_errno == ETXTBSY ||
         e.os_errno == EFBIG;
}

}  // namespace st::write
