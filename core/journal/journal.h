// One journal: an open file, locked by the transaction that writes it. Grows by
// payloads, is sealed with a manifest, made durable, committed, and at last
// emptied (invalidated). See journal_layout.h for its bytes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/control.h"
#include "base/hash.h"
#include "base/round.h"
#include "journal/journal_layout.h"
#include "journal/journal_plan.h"
#include "journal/own_bytes.h"
#include "journal/rights.h"
#include "os/file.h"
#include "os/range_lock.h"

namespace st::write {

// Where staged bytes lie in the journal.
struct Payload {
  uint64_t offset = 0, length = 0, hash = 0;
};

// Where the hashes of a piece's sectors lie in the journal.
struct SectorTable {
  uint64_t offset = 0, hash = 0;
  uint64_t noted_for = 0;  // the piece's place in the file, which its sectors follow

  bool noted() const { return offset != 0; }

  bool fits(uint64_t place) const { return offset != 0 && noted_for % sector_bytes == place % sector_bytes; }
};

class OldBytes;

class Journal {
 public:
  // Creates a file of a new name in `dir`, empty and locked. Status no_file if
  // the folder has vanished. The lock is shared. It is exclusive as long as a record may be in the journal on the disk
  // that the next flush does not remove.
  static Result<std::unique_ptr<Journal>> create(const os::File &dir, const Rights &rights);

  const std::string &name() const { return name_; }
  const os::File &file() const { return file_; }
  uint64_t bytes_written() const { return bytes_written_; }
  uint64_t allocated() const { return allocated_; }
  // To be gone on with: as this journal is now, or as it will be when it is begun.
  JournalPlan plan() const { return {end_, tail_.size(), allocated_, header_written_}; }
  JournalPlan plan_anew() const { return {header_bytes, 0, allocated_, header_written_}; }
  // On the data file's filesystem? Not if that file alone is mounted from elsewhere.
  bool is_beside_data() const { return beside_data_; }
  // Between commit() and retire() or settle(): recovery's business, if we do not get there.
  bool committed() const { return committed_; }

  // Begin a transaction on this empty journal.
  void begin() {
    started_ = end_ = header_bytes;
    tail_.clear();
    served_ = false;
    rest();
  }
  // Reads what it writes past the cache from memory until the next begin(). Journals of shards do not: there may be
  // many.
  void keep_own_bytes() { keeps_own_ = true; }
  // It is not used for now.
  void rest() noexcept {
    keeps_own_ = false;
    own_.forget();
  }
  // Stage n bytes: at the end, or over a payload of the same length. They are read
  // once, and the hash is of what was read, also if they change meanwhile.
  Result<Payload> append(const void *bytes, uint64_t n, const Control &control);
  Result<Payload> overwrite(const Payload &old, const void *bytes, const Control &control);
  // Stage what was staged in another journal, which nobody finds any more.
  Result<Payload> take_over(Journal &from, const Payload &payload, const Control &control);

  // What is staged is in the file, for others to copy from.
  Result<void> flush();
  // Little of it is left for a sync of the journal, or of its folder, to write. A short tail waits for the manifest.
  Result<void> write_out(const Control &control);
  // The disk begins to write what is in the file, while more of it is made. No sync, and nothing is told of a failure:
  // the sync tells.
  void start_writing();
  // Some of it may never have come to the disk, and no sync will tell that.
  bool lost() const { return lost_; }
  // What was committed in it since begin() was carried out.
  bool served() const { return served_; }
  // Bytes of the disk that it takes.
  uint64_t taken() const { return std::max(allocated_, end_); }
  // Asked amid long reads, after so many bytes.
  using GoOn = std::function<Result<void>(uint64_t done)>;
  static Result<void> always(uint64_t) { return {}; }
  // Note the old bytes of the range that `payload` will replace.
  Result<RangeRecord> record_old(OldBytes &old, uint64_t offset, const Payload &payload, const GoOn &go_on = always);

  // For an undo record. Note the new bytes of the range at `offset`, from memory
  // or as they were staged. Save its old bytes: whole blocks by sharing them (if
  // `block`, their size, is not 0), the rest by value. A failure leaves the
  // journal as good as before, but for its size.
  // `hasher` is fed with the bytes that were noted.
  Result<SectorTable> note_new(uint64_t offset, const void *bytes, uint64_t n, const Control &control,
                               Hasher *hasher = nullptr);
  Result<SectorTable> note_staged(uint64_t offset, const Payload &payload, const GoOn &go_on = always);
  Result<RangeRecord> save_old(const os::File &data, uint64_t offset, uint64_t n, const SectorTable &table,
                               uint64_t block, const GoOn &go_on = always);
  // For a redo record: what changes of a range, and hashes of its sectors before and after. `range` has all but the
  // places in the journal.
  Result<RangeRecord> append_changes(RangeRecord range, const std::byte *packed, const std::byte *tables);
  // Were these the bytes that were noted, from the done-th on, where a sector
  // begins? All that was noted is flushed. `hashes`: memory for one a sector.
  Result<bool> was_noted(const SectorTable &table, uint64_t done, std::span<const std::byte> bytes,
                         uint32_t *hashes) const;
  // The same of n bytes in a file.
  Result<bool> was_noted(const SectorTable &table, const os::File &file, uint64_t offset, uint64_t n,
                         const GoOn &go_on) const;
  // Is a payload what was staged?
  Result<bool> holds(const Payload &payload, const GoOn &go_on) const;

  // The manifest. Then: payload and name durable; then the commit record, then
  // that durable too. From the moment commit() is called until it answers ok
  // the outcome is open: recovery may find it either way. With the flag
  // one_flush_record the payload becomes durable with the record.
  Result<void> seal(const Identity &identity, const std::vector<RangeRecord> &ranges, uint64_t flags = 0);
  // The same as a part of `transaction`, whose super-journal lies beside `super_of`; `flags`: sparse_record, or none.
  Result<void> seal_part(const Identity &identity, const std::vector<RangeRecord> &ranges, uint64_t transaction,
                         std::string super_of, uint64_t flags = 0);
  // As that super-journal: `parts` is its manifest.
  Result<void> seal_super(const Identity &identity, std::span<const std::byte> parts, uint64_t transaction);
  Result<void> sync_payload(const os::File &dir, const Control &control = {});
  Result<void> commit();
  // For a part: says, durably, that it is carried out. Still committed(), as this must
  // stay until the super-journal is empty, durably; then the journal may be used again.
  Result<void> finish();
  void settle(bool served) noexcept;
  // Committed, but nothing of it is carried out: takes that back. Is the outcome open?
  bool give_up() { return !invalidate(); }
  // Empty again, durably: from here on it is as if it had never been. An undo
  // record that could not be emptied durably is put in its place again: what it
  // would undo must not be believed until recovery has decided. What was staged and
  // noted stays, until begin().
  Result<void> invalidate();
  // At the end of a patch. The same, but for a one_flush_record the device has the zeros, and nothing is flushed: the
  // next sync of anybody makes them durable.
  Result<void> retire();

  // Staged bytes, read back. Nobody else writes any behind the first page, also where other hosts write.
  Result<void> read(void *to, uint64_t n, uint64_t offset) const;

 private:
  Result<void> reserve(uint64_t end);
  Result<void> write_zeros();
  Result<void> announce();
  Result<void> seal_with(CommitRecord record, std::span<const std::byte> manifest);
  Result<void> append_bytes(const void *bytes, uint64_t n);
  Result<void> flush_if_long();
  Result<void> write(const std::byte *bytes, uint64_t n, uint64_t offset);
  template <class Source>
  Result<SectorTable> note_sectors(uint64_t offset, uint64_t n, Source source);
  struct Saved {
    const os::File &data;
    uint64_t offset;  // where the piece begins, for go_on
    Hasher hasher;
    const GoOn &go_on;
  };
  Result<void> save_bytes(Saved *saved, uint64_t begin, uint64_t end, bool by_value);
  Result<void> align(uint64_t alignment);
  Result<void> note_loss(Result<void> written_out);
  Result<uint64_t> write_hashed(const void *bytes, uint64_t n, uint64_t offset, const Control &control);

  os::File file_;
  os::RangeLock lock_;  // of file_: dies first
  std::string name_;
  uint64_t allocated_ = 0;  // reserved on disk
  bool can_allocate_ = true;
  bool beside_data_ = false;
  bool name_durable_ = false;
  bool header_written_ = false;
  bool committed_ = false;
  bool lost_ = false;
  bool served_ = false;
  uint64_t started_ = header_bytes;  // up to there the disk was told to begin
  uint64_t end_ = header_bytes;      // where the next byte goes
  std::vector<std::byte> tail_;      // small pieces, not yet written: they end at end_
  bool keeps_own_ = false;
  OwnBytes own_;  // where the cache of this kernel has none of it
  CommitRecord record_;
  uint64_t bytes_written_ = 0;
};

}  // namespace st::write
