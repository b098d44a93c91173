#include "journal/journal.h"

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/hash.h"
#include "journal/made_entry.h"
#include "journal/old_bytes.h"
#include "journal/super_journal.h"
#include "newfile/units.h"
#include "newfile/write_out.h"
#include "os/given_memory.h"
#include "os/missing_call.h"
#include "os/random.h"

namespace st::write {
namespace {

constexpr os::LockRange unrecorded = os::whole_file(false), recorded = os::whole_file(true);

// It is open to be written, and locked shared. On SMB such a lock keeps out its own writer, too.
Error cannot_begin(Error e, const os::File &journal) {
  if (e.os_errno != EACCES) return e;
  e.status = Status::unsupported;
  e.message = text("cannot write to ", in_quotes(journal.path()),
                   ", the journal of this change: locks of this storage, as those of SMB, keep out their own writer; "
                   "nothing was changed; publish the change if it is of one file, or save the model anew");
  return e;
}

}  // namespace

Result<std::unique_ptr<Journal>> Journal::create(const os::File &dir, const Rights &rights) {
  constexpr int attempts = 100;
  const struct stat &data = rights.data;
  Error last;
  for (int i = 0; i < attempts; ++i) {
    auto journal = std::make_unique<Journal>();
    journal->name_ = os::random_name(dir.env());
    auto file = os::File::open(dir.env(), dir.fd(), journal->name_, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600,
                               dir.path() + "/" + journal->name_);
    if (!file) {
      if (file.error().os_errno != EEXIST) return Failure(std::move(file.error()));
      last = std::move(file.error());
      continue;
    }
    journal->file_ = std::move(*file);
    MadeEntry made(dir.env(), dir.fd(), journal->name_.c_str(), 0);
    // Also its size: a server that is asked for it by a neighbour may answer one of before the last write.
    journal->file_.read_like(dir);
    // Between the two calls a recoverer may take the new file for a hot journal's
    // and remove it: it is ours once it is both locked and linked.
    auto lock = os::RangeLock::acquire(journal->file_, {unrecorded}, {});
    if (!lock) {
      last = std::move(lock.error());
      if (last.status != Status::busy) return Failure(std::move(last));
      continue;
    }
    journal->lock_ = std::move(*lock);
    ST_TRY(auto s, journal->file_.stat());
    if (s.st_nlink == 0) continue;
    journal->beside_data_ = s.st_dev == data.st_dev;
    open_to_readers(journal->file_, rights);
    made.keep();
    return journal;
  }
  return Failure(std::move(last));
}

Result<void> Journal::reserve(uint64_t end) {
  if (!header_written_) {
    // Written now, the header's block needs neither space nor a change of
    // metadata at commit.
    static constexpr std::byte zeros[header_bytes] = {};
    if (auto written = file_.write(zeros, sizeof zeros, 0); !written)
      return Failure(cannot_begin(std::move(written.error()), file_));
    header_written_ = true;
  }
  if (end <= allocated_ || !can_allocate_) return {};
  const uint64_t rounded = round_up(end, journal_step);
  ST_TRY(file_.may_reach(rounded));
  const int r =
      os::repeat_interrupted([&] { return file_.env().fallocate(file_.fd(), 0, allocated_, rounded - allocated_); });
  if (os::is_missing(r)) {
    can_allocate_ = false;  // a full disk then shows when writing, still before commit
    return {};
  }
  if (r < 0) {
    // A filesystem may keep what it found before it ran out, and the disk would stay full while we live.
    file_.env().ftruncate(file_.fd(), std::max<uint64_t>(allocated_, header_bytes));
    return Failure(file_.error(-r, text("reserve ", rounded - allocated_, " bytes for")));
  }
  allocated_ = rounded;
  return {};
}

Result<void> Journal::write(const std::byte *bytes, uint64_t n, uint64_t offset) {
  auto written = file_.write(bytes, n, offset);
  if (!written)
    own_.forget();
  else if (keeps_own_ && file_.writes_past_cache())
    own_.note(bytes, n, offset);
  return written;
}

Result<void> Journal::read(void *to, uint64_t n, uint64_t offset) const {
  return own_.read(to, n, offset) ? Result<void>() : file_.read_own(to, n, offset);
}

// What is hashed is read back, or written from a copy: another thread, or a commit that shows through a mapping, may
// change the caller's memory between two looks at it. And memory that cannot be read is an error, not a signal.
Result<uint64_t> Journal::write_hashed(const void *bytes, uint64_t n, uint64_t offset, const Control &control) {
  // The last chunk may be longer: copy_given() asks for few bytes without a call, and then memory that is gone is a
  // signal.
  constexpr uint64_t few = 4096;
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(std::min(write_chunk_bytes + few, n));
  Hasher hasher;
  WriteOut out(file_, offset);
  for (uint64_t done = 0; done < n;) {
    ST_TRY(control.check(done, n));
    const uint64_t left = n - done, take = left <= write_chunk_bytes + few ? left : write_chunk_bytes;
    const auto *from = static_cast<const std::byte *>(bytes) + done;
    if (file_.writes_past_cache()) {
      ST_TRY(os::copy_given(file_.env(), from, take, buffer.get()));
      ST_TRY(write(buffer.get(), take, offset + done));
    } else {
      ST_TRY(file_.write(from, take, offset + done));
      ST_TRY(read(buffer.get(), take, offset + done));
    }
    hasher.add(buffer.get(), take);
    done += take;
    ST_TRY(note_loss(out.reached(offset + done, [] { return Result<void>(); })));
  }
  bytes_written_ += n;
  return hasher.digest();
}

Result<void> Journal::flush() {
  if (tail_.empty()) return {};
  ST_TRY(write(tail_.data(), tail_.size(), end_ - tail_.size()));
  bytes_written_ += tail_.size();
  tail_.clear();
  return {};
}

Result<void> Journal::note_loss(Result<void> written_out) {
  if (!written_out && !was_stopped(written_out.error())) lost_ = true;
  return written_out;
}

Result<void> Journal::write_out(const Control &control) {
  // It asks, and counts nothing: these bytes were counted when they came.
  return note_loss(WriteOut(file_, header_bytes).reached(end_ - tail_.size(), [&] { return control.check(0, 0); }));
}

void Journal::start_writing() {
  constexpr uint64_t worth_it = uint64_t{1} << 20;
  const uint64_t written = end_ - tail_.size();
  if (written < started_ + worth_it) return;
  file_.env().sync_range(file_.fd(), started_, written - started_);
  started_ = written;
}

Result<void> Journal::append_bytes(const void *bytes, uint64_t n) {
  const auto *from = static_cast<const std::byte *>(bytes);
  tail_.insert(tail_.end(), from, from + n);
  end_ += n;
  return flush_if_long();
}

Result<void> Journal::flush_if_long() {
  return tail_.size() < large_payload ? Result<void>() : flush();
}

Result<void> Journal::align(uint64_t alignment) {
  static constexpr std::byte zeros[journal_page] = {};
  return append_bytes(zeros, (alignment - end_ % alignment) % alignment);
}

Result<Payload> Journal::append(const void *bytes, uint64_t n, const Control &control) {
  const bool large = n >= large_payload;
  ST_TRY(reserve(end_of_payload_room(end_, n)));
  ST_TRY(align(payload_alignment(n)));
  Payload payload{end_, n, 0};
  if (large) {
    ST_TRY(flush());
    ST_TRY(payload.hash, write_hashed(bytes, n, end_, control));
    end_ += n;
  } else {
    ST_TRY(control.check(0, n));
    const size_t at = tail_.size();
    tail_.resize(at + n);
    if (auto copied = os::copy_given(file_.env(), bytes, n, tail_.data() + at); !copied) {
      tail_.resize(at);
      return Failure(std::move(copied.error()));
    }
    payload.hash = hash64(tail_.data() + at, n);  // of the copy
    end_ += n;
    ST_TRY(flush_if_long());
  }
  return payload;
}

Result<Payload> Journal::overwrite(const Payload &old, const void *bytes, const Control &control) {
  ST_TRY(flush());
  ST_TRY(auto hash, write_hashed(bytes, old.length, old.offset, control));
  return Payload{old.offset, old.length, hash};
}

Result<Payload> Journal::take_over(Journal &from, const Payload &payload, const Control &control) {
  ST_TRY(from.flush());
  ST_TRY(reserve(end_of_payload_room(end_, payload.length)));
  ST_TRY(align(payload_alignment(payload.length)));
  const Payload taken{end_, payload.length, payload.hash};
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(std::min(write_chunk_bytes, payload.length));
  Hasher hasher;
  for (uint64_t done = 0; done < payload.length;) {
    ST_TRY(control.check(done, payload.length));
    const uint64_t n = std::min(write_chunk_bytes, payload.length - done);
    ST_TRY(from.read(buffer.get(), n, payload.offset + done));
    hasher.add(buffer.get(), n);
    ST_TRY(append_bytes(buffer.get(), n));
    done += n;
  }
  if (hasher.digest() != payload.hash)
    return fail(Status::io, in_quotes(from.file().path()), " no longer holds what was written to it");
  return taken;
}

// `source` answers n bytes of the piece, from the done-th on.
template <class Source>
Result<SectorTable> Journal::note_sectors(uint64_t offset, uint64_t length, Source source) {
  ST_TRY(align(8));
  SectorTable table{end_, 0, offset};
  std::vector<uint32_t> hashes;
  Hasher hasher;
  for (uint64_t done = 0; done < length;) {
    const uint64_t n = up_to_sector(offset + done, write_chunk_bytes, length - done);
    ST_TRY(auto bytes, source(done, n));
    hashes.clear();
    hash_sectors(offset + done, {bytes, static_cast<size_t>(n)}, &hashes);
    hasher.add(hashes.data(), hashes.size() * sizeof(uint32_t));
    ST_TRY(append_bytes(hashes.data(), hashes.size() * sizeof(uint32_t)));
    done += n;
  }
  table.hash = hasher.digest();
  return table;
}

Result<RangeRecord> Journal::record_old(OldBytes &old, uint64_t offset, const Payload &payload, const GoOn &go_on) {
  const auto source = [&](uint64_t done, uint64_t n) -> Result<const std::byte *> {
    ST_TRY(go_on(done));
    return old.read(offset + done, n);
  };
  ST_TRY(auto table, note_sectors(offset, payload.length, source));
  return RangeRecord{offset, payload.length, payload.offset, payload.hash, table.offset, table.hash};
}

Result<SectorTable> Journal::note_new(uint64_t offset, const void *bytes, uint64_t length, const Control &control,
                                      Hasher *hasher) {
  ST_TRY(reserve(end_ + journal_page + table_bytes(offset, length) + range_record_bytes));
  std::unique_ptr<std::byte[]> copy;  // of what is hashed twice: it may change between two looks at it
  if (hasher) copy = std::make_unique_for_overwrite<std::byte[]>(std::min(write_chunk_bytes, length));
  return note_sectors(offset, length, [&](uint64_t done, uint64_t n) -> Result<const std::byte *> {
    ST_TRY(control.check(done, length));
    const std::byte *from = static_cast<const std::byte *>(bytes) + done;
    if (!hasher) return from;
    ST_TRY(os::copy_given(file_.env(), from, n, copy.get()));
    hasher->add(copy.get(), n);
    return copy.get();
  });
}

Result<SectorTable> Journal::note_staged(uint64_t offset, const Payload &payload, const GoOn &go_on) {
  ST_TRY(flush());
  ST_TRY(reserve(end_ + journal_page + table_bytes(offset, payload.length)));
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(std::min(write_chunk_bytes, payload.length));
  return note_sectors(offset, payload.length, [&](uint64_t done, uint64_t n) -> Result<const std::byte *> {
    ST_TRY(go_on(done));
    ST_TRY(read(buffer.get(), n, payload.offset + done));
    return buffer.get();
  });
}

Result<bool> Journal::was_noted(const SectorTable &table, uint64_t done, std::span<const std::byte> bytes,
                                uint32_t *hashes) const {
  const uint64_t at = table.noted_for + done;
  const uint64_t n = sectors_of(at, bytes.size()) * sizeof *hashes;
  const uint64_t before = at / sector_bytes - table.noted_for / sector_bytes;
  ST_TRY(read(hashes, n, table.offset + before * sizeof *hashes));
  for (uint64_t to = 0; to < bytes.size(); ++hashes) {
    const uint64_t take = up_to_sector(at + to, sector_bytes, bytes.size() - to);
    if (hash_sector(bytes.subspan(to, take)) != *hashes) return false;
    to += take;
  }
  return true;
}

Result<bool> Journal::was_noted(const SectorTable &table, const os::File &file, uint64_t offset, uint64_t n,
                                const GoOn &go_on) const {
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(std::min(write_chunk_bytes, n));
  std::vector<uint32_t> hashes(write_chunk_bytes / sector_bytes + 1);
  for (uint64_t done = 0; done < n;) {
    const uint64_t take = up_to_sector(table.noted_for + done, write_chunk_bytes, n - done);
    ST_TRY(go_on(done));
    ST_TRY(file.read(buffer.get(), take, offset + done));
    auto same = was_noted(table, done, {buffer.get(), static_cast<size_t>(take)}, hashes.data());
    if (!same || !*same) return same;
    done += take;
  }
  return true;
}

Result<bool> Journal::holds(const Payload &payload, const GoOn &go_on) const {
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(std::min(write_chunk_bytes, payload.length));
  Hasher hasher;
  for (uint64_t done = 0; done < payload.length;) {
    const uint64_t n = std::min(write_chunk_bytes, payload.length - done);
    ST_TRY(go_on(done));
    ST_TRY(read(buffer.get(), n, payload.offset + done));
    hasher.add(buffer.get(), n);
    done += n;
  }
  return hasher.digest() == payload.hash;
}

// The file's bytes [begin, end): hashed, and appended if they are not shared.
Result<void> Journal::save_bytes(Saved *saved, uint64_t begin, uint64_t end, bool by_value) {
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(std::min(write_chunk_bytes, end - begin));
  for (uint64_t at = begin; at < end;) {
    const uint64_t n = std::min(write_chunk_bytes, end - at);
    ST_TRY(saved->go_on(at - saved->offset));
    ST_TRY(saved->data.read(buffer.get(), n, at));
    saved->hasher.add(buffer.get(), n);
    if (by_value) ST_TRY(append_bytes(buffer.get(), n));
    at += n;
  }
  return {};
}

Result<RangeRecord> Journal::save_old(const os::File &data, uint64_t offset, uint64_t length, const SectorTable &table,
                                      uint64_t block, const GoOn &go_on) {
  const uint64_t end = offset + length;
  const WholeBlocks whole(offset, length, block ? block : 1);
  const bool shares = block != 0 && whole.any();
  ST_TRY(shares ? flush() : align(8));
  if (shares) end_ = place_of_shared(end_, offset, block);
  const uint64_t by_value = shares ? whole.begin - offset : length;
  ST_TRY(reserve(end_ + by_value));

  RangeRecord range{offset, length, end_, 0, table.offset, table.hash};
  Saved saved{data, offset, {}, go_on};
  ST_TRY(save_bytes(&saved, offset, offset + by_value, true));
  if (shares) {
    const uint64_t n = whole.end - whole.begin;
    ST_TRY(save_bytes(&saved, whole.begin, whole.end, false));
    ST_TRY(flush());
    ST_TRY(file_.clone(data, whole.begin, n, end_));
    end_ += n;
    allocated_ = std::max(allocated_, end_);
    ST_TRY(reserve(end_ + (end - whole.end) + journal_page));
    ST_TRY(save_bytes(&saved, whole.end, end, true));
  }
  range.payload_hash = saved.hasher.digest();
  return range;
}

Result<RangeRecord> Journal::append_changes(RangeRecord range, const std::byte *packed, const std::byte *tables) {
  constexpr uint64_t most_ahead = uint64_t{1} << 20;
  const uint64_t end = end_ + journal_page + range.packed + range.tables_bytes() + sparse_range_record_bytes;
  ST_TRY(reserve(end <= allocated_ ? end : end + std::min(end, most_ahead)));
  ST_TRY(align(8));
  range.payload = end_;
  ST_TRY(append_bytes(packed, range.packed));
  ST_TRY(align(8));
  range.sectors = end_;
  ST_TRY(append_bytes(tables, range.tables_bytes()));
  return range;
}

Result<void> Journal::seal_with(CommitRecord record, std::span<const std::byte> manifest) {
  ST_TRY(align(8));
  record_ = std::move(record);
  record_.manifest = end_;
  record_.manifest_hash = hash64(manifest.data(), manifest.size());
  ST_TRY(reserve(end_ + manifest.size()));
  ST_TRY(append_bytes(manifest.data(), manifest.size()));
  return flush();
}

Result<void> Journal::seal(const Identity &identity, const std::vector<RangeRecord> &ranges, uint64_t flags) {
  const uint64_t id = os::random_number(file_.env());
  return seal_with({id, identity, 0, ranges.size(), 0, flags, {}}, encode(ranges, (flags & sparse_record) != 0));
}

Result<void> Journal::seal_part(const Identity &identity, const std::vector<RangeRecord> &ranges, uint64_t transaction,
                                std::string super_of, uint64_t flags) {
  return seal_with({transaction, identity, 0, ranges.size(), 0, part_record | flags, std::move(super_of)},
                   encode(ranges, (flags & sparse_record) != 0));
}

Result<void> Journal::seal_super(const Identity &identity, std::span<const std::byte> parts, uint64_t transaction) {
  if (parts.size() > longest_super_list)
    return fail(Status::unsupported, "the list of what this transaction changes has ", parts.size(),
                " bytes, more than the ", longest_super_list, " that recovery reads; change fewer shards at once");
  return seal_with({transaction, identity, 0, parts.size(), 0, super_record, {}}, parts);
}

Result<void> Journal::sync_payload(const os::File &dir, const Control &control) {
  ST_ASSERT(tail_.empty());
  if (file_.reads_past_cache()) ST_TRY(announce());
  ST_TRY(write_out(control));
  // Which blocks are shared is metadata.
  if (!record_.has_one_flush()) ST_TRY(record_.is_undo() ? file_.sync() : file_.sync_data());
  if (name_durable_) return {};
  ST_TRY(dir.sync());
  name_durable_ = true;
  return {};
}

namespace {

// On a disk of this machine nobody loses locks; see move_all_aside().
Error locked_by_another(const os::File &journal) {
  const std::string shown = in_quotes(journal.path());
  if (journal.reads_past_cache())
    return error(Status::file_changed, "another host has locked ", shown,
                 ", as this one was stopped or cut off, and lost its locks; open the file anew");
  return error(Status::file_changed, "another program has locked ", shown,
               ", as one does before a new file takes the name of one that is gone; open the file anew");
}

}  // namespace

// If this host loses its locks, and then locks the journal for the record, others see by it whose bytes it is on.
Result<void> Journal::announce() {
  const auto block = encode(record_);
  bytes_written_ += sector_bytes;
  return file_.write(block.data() + sector_bytes, sector_bytes, sector_bytes);
}

Result<void> Journal::commit() {
  ST_TRY(auto locked, lock_.try_take(recorded));
  if (!locked) return Failure(locked_by_another(file_));
  const auto block = encode(record_);
  bytes_written_ += block.size();
  committed_ = true;
  ST_TRY(file_.write(block.data(), block.size(), 0));
  return file_.sync_data();
}

Result<void> Journal::finish() {
  record_.flags |= done_record;
  return commit();
}

// Nobody would hear the sentence of a failure, for which there may be no memory.
void Journal::settle(bool served) noexcept try {
  committed_ = false;
  served_ = served;
  static_cast<void>(lock_.try_take(unrecorded));  // or others sync it once too often
} catch (const std::bad_alloc &) {
}

Result<void> Journal::write_zeros() {
  static constexpr std::byte zeros[sector_bytes] = {};
  bytes_written_ += sizeof zeros;
  return file_.write(zeros, sizeof zeros, 0);
}

Result<void> Journal::invalidate() {
  auto emptied = write_zeros();
  if (emptied) emptied = file_.sync_data();
  if (!emptied) {
    const auto block = encode(record_);
    if (record_.is_undo()) static_cast<void>(file_.write(block.data(), block.size(), 0));
    return emptied;
  }
  settle(false);
  return {};
}

// The lock tells others when the device has the zeros. Until then they flush for themselves, should this writer die.
Result<void> Journal::retire() {
  if (!record_.has_one_flush()) {
    ST_TRY(invalidate());
    served_ = true;
    return {};
  }
  ST_TRY(write_zeros());
  ST_TRY(file_.write_out(0, sector_bytes));
  settle(true);
  return {};
}

}  // namespace st::write
