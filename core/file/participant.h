// A transaction on one file as a part of a commit on several: the steps of its own commit, which the parts take
// together (shards/shard_commit.h). Nothing means anything before the super-journal is committed, and nothing is given
// up after that. One commit each.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "file/remakes.h"
#include "file/rewrite_commit.h"
#include "file/staging.h"
#include "journal/patch.h"

namespace st::store {

class Participant {
 public:
  explicit Participant(Staged &of) : of_(of) {}
  // A commit that an exception ends leaves to recovery what is committed: see Staged::return_journal.
  ~Participant();
  Participant(const Participant &) = delete;
  Participant &operator=(const Participant &) = delete;

  const DataFile &file() const { return of_.file; }
  bool publishes() const { return of_.publishes(); }
  // A publish's catalogue as it was and as it will be, once it is locked.
  const Index &before() const { return of_.snapshot->header.index; }
  const PendingCatalogue &after() const { return *of_.draft; }
  struct Gain {
    int64_t bytes = 0, parameters = 0;  // of the tensors, afterwards less before
  };
  Gain gain() const;
  // What it will do; `entry` gets its final length. Null: under a new name.
  Result<CommitPlan> plan(write::SuperParticipant *entry);

  // `timeout_ms`: of the whole commit. Look::hot: a dead writer's journal was found; unlock all parts,
  // call recover(), and try again. Status busy: nothing changed.
  Result<write::Look> lock(int32_t timeout_ms);
  Result<void> recover(int32_t timeout_ms);
  void unlock() {
    changing_.reset();
    lock_ = {};
  }
  // Once it is locked: what it does from now on is told there.
  void tell(Progress progress) { of_.tell(std::move(progress)); }
  // Once it is locked: the new bytes that a Remake makes of those that are there.
  Result<void> assemble() { return assemble_remakes(of_, lock_.file()); }
  // If it publishes: may a new file take this one's place?
  Result<void> check_replaceable() const {
    return publishes() ? write::check_replaceable(file().location(), lock_.file()) : Result<void>();
  }
  // Does the path still lead to the locked file? Else status file_changed.
  Result<void> check_in_place() const { return store::check_in_place(of_, lock_); }

  // Every step that can fail. Afterwards all of it is on the disk, but means nothing yet.
  Result<void> prepare(const write::Super &super, write::SuperParticipant *entry);
  // Are the prepared journal and the new files where recovery will look for them?
  Result<void> check_is_there() const;
  // The commit is decided: from here on nothing is dropped, whatever happens. First the new file is withheld from the
  // handle's refreshes (DataFile::withhold), until show(). If all is left to recovery, that ends for all parts
  // together.
  void withhold() noexcept {
    if (publishes()) of_.file.withhold();
  }
  void end_withholding() noexcept {
    if (publishes()) of_.file.end_withholding();
  }
  Result<void> apply_patch(write::StillOurs &ours);
  Result<void> publish_gains();   // before the index takes its new state
  Result<void> publish_losses();  // after it
  Result<void> mark_done();
  // The super-journal is empty: the new file is shown. This happens to all parts under one mutex, so it takes no time.
  void show() noexcept;
  // After show(). If memory runs out the change stands, and the log says that a patch is not shown.
  void finish() noexcept;
  // The commit was never decided: takes all back. `open`: it may have been decided, so all is left to recovery.
  void drop(bool open) noexcept;
  // Tells what the commit has kept for the log, whatever became of it. Nothing of it is under way then, nor locked: the
  // log may fork. drop(false) forgets the warnings about the new file.
  void warn() noexcept;

  // The same if it takes no other's name: see new_names.cpp. Before it is locked, or planned.
  Result<void> publish_anyway() { return make_publish(of_); }
  // No journal decides then. Yet each has one where other hosts write, from before it is locked: if this host loses its
  // locks, their next holder takes the journal away.
  Result<void> raise_fence() { return of_.has_other_hosts() ? of_.need_journal() : Result<void>(); }
  // Right before the change is decided: is it still there?
  Result<void> check_fence() const { return of_.has_other_hosts() ? of_.check_journal_is_there() : Result<void>(); }
  bool keeps_any() const { return !after().tensors().empty(); }
  // Makes a new file beside `at`, whole and durable but for its name; then gives it the name. No file, if it is empty.
  Result<void> prepare_new_name(const os::Location &at);
  Result<void> take_new_name(const std::string &name) { return first_->replacement->rename_beside(name); }
  // From now on the new file stays, or after all it does not.
  void leave_new_name(bool stays) noexcept;
  void finish_new_name();

 private:
  NewFile *last_file() const { return second_ ? second_.get() : first_.get(); }
  void keep_warnings() noexcept;
  Result<void> take_name(const NewFile *made);
  Result<std::unique_ptr<NewFile>> make(write::Form *form, std::string *name, bool keeping_removed);

  Staged &of_;
  CommitLock lock_;
  std::optional<os::BytesUnderChange> changing_;  // once it is prepared, until its bytes are written or given up
  std::vector<write::Piece> pieces_;
  std::unique_ptr<NewFile> first_, second_;
  LaterLog warnings_;          // of a new file that is no longer open here
  write::ChunkBuffer buffer_;  // taken early: a decided commit must not fail for want of memory
};

}  // namespace st::store
