// Journals that were found beside a file: what they are, whether they may be
// applied, and how they are applied and dropped. For recovery alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "journal/journal_folder.h"
#include "journal/journal_layout.h"
#include "journal/manifest.h"
#include "journal/still_ours.h"
#include "os/writable_mappings.h"

namespace st::write {

// A journal found in the folder, and what its first sector says. Reading takes
// no lock: one reader must not take another for the journal's writer.
struct Found {
  os::File file;
  uint64_t size = 0;
  JournalState state = JournalState::empty;
  CommitRecord record;     // if it is empty: what it said last,
  bool has_last = false;   // and whether that is known
  Verdict verdict;         // may it be applied, as far as was seen?
  bool is_trusted = true;  // by its kind and its owner; else no more was seen
  bool is_linked = false;  // it has a second link, and a holder: open for reading alone, and left to the holder

  // A part that is carried out, though perhaps not all of its transaction.
  bool is_done() const { return state == JournalState::committed && verdict.is_good() && record.is_done(); }
  bool waits() const { return (state != JournalState::empty && !is_done()) || !verdict.is_good(); }
};

Result<void> read_state(Found &found);
// Null if it has gone meanwhile. Opened for writing if `write`; else null, too, if it has no bytes and may not be read,
// as its maker has not come to that.
Result<std::unique_ptr<Found>> look_at(const Folder &folder, const std::string &name, const struct stat &data,
                                       bool write);
// The same, opened for writing, for the recovery of `path`. Null, too, if its holder alone may touch it; status busy if
// it waits for that one. Where opening is refused: `left` says why, and it is opened for reading; status needs_recovery
// if it waits.
Result<std::unique_ptr<Found>> look_to_settle(const Folder &folder, const std::string &name, const struct stat &data,
                                              const std::string &path, std::string *left);
// Removes a journal that does not wait, if nobody is filling it: true if it did. Only under
// the lock of the whole file: a journal's lock in other hands than its writer's
// would be taken for a sign of life. No power cut will bring its old record back. If it waits by now, it has just been
// claimed, and is under `name`.
Result<bool> drop_if_idle(const Folder &folder, std::string *name, Found &found);
bool drop(const Folder &folder, const std::string &name);
// The same, of a journal that was another's. Where other hosts may write, no power cut brings it back either. False:
// another host has claimed it, or dropped it.
Result<bool> drop_for_good(const Folder &folder, const std::string &name);
// Takes out of `names` what somebody was dropping for good, and finishes it.
Result<void> drop_gone(const Folder &folder, std::vector<std::string> *names);
// By its lock (see Journal::create): nobody, a keeper for later, or a writer that may have a record in it on the disk.
enum class Holder { nobody, parked, writer };
// A journal that nobody holds is read anew, as nobody writes to it any more. Where other hosts write, so is a writer's:
// what it tells is then of the transaction that it is locked for.
Result<Holder> who_holds(Found &found);
// A journal that does not wait, and whose writer has lost its locks on the file: its
// state becomes durable. An empty one goes. False: it waits by now. `on_ours`: another host may have written it, and it
// told of bytes that the asker has locked when it was found so `held`.
Result<bool> settle_idle(const Folder &folder, std::string name, Found &found, Holder held, bool on_ours);
// Durably empty.
Result<void> empty(const Found &hot);
// The same of one that was found empty, and may be in the hands of a living writer: then no record of that is lost. It
// waits by now if its writer has died since.
Result<void> stay_empty(Found &found);
// Durably empty first, then gone.
Result<void> empty_and_drop(const Folder &folder, const std::string &name, const Found &hot);
// A commit record that was found is in memory, but perhaps not on the disk: its writer may have died before the sync,
// or the sync may have failed. Written once more, it is durable, and may be carried out.
Result<void> confirm(const Found &hot);
// The same of a part that is carried out: says so.
Result<void> mark_done(const Found &part);

// A journal, and the file that it is for. Takes little memory, however large they are, and keeps none.
class Replay {
 public:
  Replay(const os::File &data, const Found &hot)
      : data_(data), hot_(hot), manifest_(hot.file, hot.size, hot.record), changing_(data) {}

  // Does everything hold that must before a byte is written? `identity` is the file's.
  Result<Verdict> judge(const Identity &identity);
  // The same of a part that is to be. It may be strange: the other parts tell then whether the file is the one.
  Result<Verdict> judge_part(Identity identity);
  // The file has another inode than the record says, and lacks new bytes, and has none that tells whose it is.
  bool is_strange() const { return !same_inode_ && !touched_ && lacks_; }
  static constexpr const char *why_strange =
      "it is the journal of another file, and nothing of it is in this one; if this is a copy, open the original and "
      "copy it again";
  // A part of the journal is not there, as a cut may leave a one_flush_record. It is good if the file needs none of it:
  // it has all old bytes, or all new ones.
  bool is_torn() const { return is_torn_ && hot_.record.has_one_flush(); }
  // All new bytes are in the file.
  bool is_finished() const { return !lacks_; }
  // May this process write all of it? Asked before the first byte.
  Result<void> may_apply();
  // Then what was found becomes durable: see confirm() above. If one flush was for all of it, all is written once more.
  Result<void> confirm();
  Result<void> apply(StillOurs &ours);
  bool touched() const { return touched_; }  // as far as judge() has seen
  uint64_t ranges() const { return ranges_; }
  uint64_t bytes() const { return bytes_; }

 private:
  struct Buffers;
  Result<Verdict> judge_range(const RangeRecord &range, Buffers &buffers);
  Result<Verdict> judge_sparse(const RangeRecord &range, Buffers &buffers);
  void found_sector(bool is_new, bool is_old, uint64_t at, Verdict *sectors);
  Result<Verdict> judge_torn();
  Verdict damaged(std::string why);

  const os::File &data_;
  const Found &hot_;
  const Manifest manifest_;
  os::BytesUnderChange changing_;
  uint64_t ranges_ = 0, bytes_ = 0;
  uint64_t end_ = 0, confirmed_ = 0;  // of what is written to the file, and again to the journal
  bool touched_ = false;              // the file holds new bytes that are not the old ones
  bool lacks_ = false;                // and some that are not new
  bool is_torn_ = false;
  bool same_inode_ = true;  // as the record has
};

// A committed journal that cannot be applied here, and whether a failure means that.
Error needs_recovery(const std::string &path, const Error &cause);
bool means_read_only(const Error &e);
Error recovery_stopped();

}  // namespace st::write
