// A transaction on a checkpoint, applied all or none. New bytes for tensors of
// the same dtype and shape are a patch, in place; anything else (tensors added,
// replaced, removed, renamed, metadata) is a publish: a new file that takes the
// old one's place. Stages without a lock; takes its locks, in ascending order,
// when it commits. One thread at a time.
#pragma once

#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "file/any_transaction.h"
#include "file/data_file.h"
#include "file/pending_catalogue.h"
#include "file/slice_map.h"
#include "journal/lock_settled.h"
#include "journal/patch.h"
#include "journal/super_journal.h"
#include "newfile/build.h"
#include "newfile/publish_plan.h"
#include "newfile/temporary_file.h"

namespace st::store {

class Transaction final : public AnyTransaction {
 public:
  static Result<std::unique_ptr<Transaction>> begin(DataFile &data_file, TransactionOptions options);
  ~Transaction() override;

  Result<void> update(std::string_view name, const NewBytes &value) override;
  Result<void> update_slice(std::string_view name, const TensorPart &part, const NewBytes &value) override;
  Result<void> put(std::string_view name, const NewBytes &value) override;
  Result<void> remove(std::string_view name) override;
  Result<void> rename(std::string_view from, std::string_view to) override;
  Result<void> set_metadata(std::string_view key, std::optional<std::string_view> value) override;
  // All tensors that there are by then, in their order in the file.
  Result<void> arrange(std::vector<std::string> names);
  // Asked at commit when all locks are held, with the file as it now is. A refusal
  // ends the commit, with nothing changed.
  using Approve = std::function<Result<void>(const Snapshot &now)>;
  void before_change(Approve approve) { approve_ = std::move(approve); }
  Result<CommitPlan> plan() override;
  Result<void> commit() override;

  DataFile &data_file() const { return data_file_; }

  bool has_work() const { return patches() || publishes(); }
  bool publishes() const;
  // The state that it changes.
  const Snapshot &before() const { return *snapshot_; }

 private:
  friend class Participant;  // of a commit on several files
  struct Staged {
    std::string_view name;  // in *snapshot_
    size_t index;           // in *snapshot_
    write::Piece piece;     // offset as of *snapshot_; what undo is for is not staged but borrowed
    // Borrowed, and noted for a place like this: in a file that replaced the one it was noted for, a tensor may lie
    // across other sectors.
    bool fits() const { return !piece.staged() && piece.table.fits(piece.offset); }
  };
  // The file as it is now, locked for this transaction.
  struct Locked {
    std::unique_ptr<os::LockedFile> held;
    write::Identity identity;
    const os::File &file() const { return held->file; }
    explicit operator bool() const { return held != nullptr; }
  };

  // Bytes of a put: in the caller's memory, or in the journal.
  struct Payload {
    const void *bytes;
    write::Payload journal;
    uint64_t nbytes;
    write::SectorTable table = {};  // of bytes that were borrowed for a patch
  };
  // A new file as it will be, made of `segments`.
  struct Blueprint {
    write::PublishPlan plan;
    std::vector<write::Segment> segments;
    write::Cost cost;
  };
  // Which new files a publish makes. A part makes one before the index takes its new state, and one after that.
  struct Makes {
    bool first, second;
    bool first_keeps;  // what it loses
  };
  // Planned, and being made.
  struct NewFile {
    std::unique_ptr<write::TemporaryFile> replacement;
    std::unique_ptr<Snapshot> snapshot;
    write::Built built;
  };

  Transaction(DataFile &data_file, TransactionOptions options);
  Result<void> may_go_on() const;
  bool patches() const { return !staged_.empty() || !slices_.empty(); }
  Result<void> need_journal();
  Result<void> check_journal_is_there() const;
  Result<void> restage_if_gone();
  Result<void> draft(const Change *first = nullptr);
  Result<void> apply(Change change);
  std::optional<Form> form_of(const std::string &name) const;
  Result<void> put_bytes(Change change, const NewBytes &value);
  bool may_align() const;
  // `keeping_removed`: with the tensors that the draft has no more, at the end.
  Result<write::PublishPlan> plan_publish(uint64_t block, bool keeping_removed) const;
  Result<Blueprint> draw(const os::File &old, uint64_t block, bool keeping_removed) const;
  Makes makes(bool as_part) const;
  // What commit() does to the file as it is, without the filesystem's own needs.
  Result<CommitPlan> reckon(const os::File &data, write::SuperParticipant *as_part);
  Result<CommitPlan> reckon_publish(const os::File &old, write::SuperParticipant *as_part);
  CommitPlan reckon_patch(const os::File &data, bool undo, bool as_part) const;
  bool undoes(const os::File &data) const;
  Result<void> check_room(const os::File &data, const Result<CommitPlan> &plan) const;
  Result<void> check_in_place(const Locked &locked) const;
  Result<void> publish(Locked &locked);
  Result<void> finish_publish(const write::Built &built, tl::expected<void, write::SwapFailure> placed);
  Result<void> check_links(const Locked &locked) const;
  Result<void> check_payloads(const os::File &made, const write::PublishPlan &plan) const;
  Result<void> make(const Locked &locked, NewFile *made, const os::Location &at, std::string_view infix,
                    bool keeping_removed = false);
  Result<bool> settle_hot_journals() const;
  std::vector<os::LockRange> ranges_to_lock() const;
  Result<void> stage(size_t index, const TensorView &tensor, const NewBytes &value);
  bool is_view(const NewBytes &value) const;
  Result<void> borrow(write::Piece *piece, const void *bytes);
  static Error changed_payload(std::string_view name);
  Result<void> stage_borrowed(Staged *staged);
  // With `tell`, nothing is recovered, and the answer may be Look::hot.
  enum class HotJournals { recover, tell };
  Result<write::Look> lock(int32_t timeout_ms, HotJournals hot, Locked *locked);
  Result<write::Look> look(os::LockedFile &file, write::Identity *identity);
  Result<void> follow_to(std::unique_ptr<Snapshot> snapshot);
  Result<void> test_locks(const os::File &locked);
  Error name_blocked(Error busy, const os::File &file) const;
  Result<void> finish(const Locked &locked);
  void count_and_show();
  using Applied = tl::expected<void, write::PatchFailure>;
  Result<Applied> apply(const Locked &locked);
  Result<void> stage_borrowed();
  static void sort_by_offset(std::vector<write::Piece> *pieces);
  std::vector<write::Piece> pieces() const;  // as they follow each other in the file
  void return_journal();
  // Slices: slices.cpp.
  class SliceReader;
  struct StagedSlices {
    std::string name;
    SliceMap map;
  };
  Result<void> stage_slice(std::string_view name, const Form &form, const Selection &selection, const NewBytes &value);
  Result<SliceMap *> map_of(size_t index);
  Result<void> restage_slices(write::Journal &gone);
  Result<size_t> place_in(const Index &now, std::string_view name, size_t index) const;
  Result<void> draft_slices(PendingCatalogue *draft, std::vector<Change> *changes, std::vector<SliceMap> *maps) const;
  Result<void> check_slice_payload(size_t number) const;
  Result<void> assemble_slices(const os::File &data);
  // As they are assembled, or as `journal` will have them.
  std::vector<write::Piece> slice_pieces(write::JournalPlan *journal) const;
  void reckon_slices(write::Cost *cost, uint64_t block) const;
  Result<void> write_slices(NewFile *made) const;
  std::vector<Covered> bytes_to_lock() const;
  std::string_view name_at(uint64_t offset) const;
  void show_slices();
  void show(size_t index, uint64_t offset, uint64_t n);

  DataFile &data_file_;
  const TransactionOptions options_;
  Control control_;  // of the call under way
  Approve approve_;
  const uint64_t process_;  // see os::Env::fork_generation
  HeldSnapshot snapshot_;
  std::vector<Staged> staged_;               // of a patch
  std::unique_ptr<PendingCatalogue> draft_;  // of a publish, and how it came about
  std::vector<Change> changes_;
  std::vector<Payload> payloads_;
  std::map<size_t, StagedSlices> slices_;        // of a patch, by the index of their tensor in *snapshot_
  std::vector<SliceMap> slice_maps_;             // of a publish
  std::vector<write::Payload> slice_payloads_;   // in the journal
  std::vector<write::Piece> slice_pieces_;       // once the locks are held
  std::unordered_map<size_t, size_t> by_index_;  // index of a tensor to its place in staged_
  write::JournalFolder::Taken journal_;
  uint64_t journal_start_ = 0;  // bytes written to it before this transaction
  bool failed_ = false;
};

}  // namespace st::store
