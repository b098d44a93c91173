// The commit of a transaction on a sharded checkpoint that touches several shards,
// or the index. A super-journal beside the index decides for all. New files take
// their places in an order in which the index, old or new, never names a tensor
// that is not where it says.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/joined_progress.h"
#include "base/later_log.h"
#include "file/participant.h"
#include "file/transaction.h"
#include "shards/old_shards.h"
#include "shards/shards.h"

namespace st::store {

// A key of the index's metadata, and its new value; none removes it.
using MetadataChange = std::pair<std::string, std::optional<std::string>>;

class ShardCommit {
 public:
  // What is staged. `timeout_ms` is for all locks together.
  struct Work {
    std::vector<std::pair<std::string, Transaction *>> transactions;  // of the shards that change, with their names
    bool changes_index;                                               // its metadata, or where it says that tensors are
    const std::vector<MetadataChange> &metadata;
    int32_t timeout_ms;
    Progress progress;
    bool &spent;  // becomes true when no other commit may be tried, whatever comes of this one
    // The parts get new names, and the old shards stay so many seconds (new_names.cpp).
    std::optional<uint32_t> grace_s;
  };
  ShardCommit(Shards &shards, const ShardCatalogue &shown, Work work);
  ~ShardCommit();
  ShardCommit(const ShardCommit &) = delete;
  ShardCommit &operator=(const ShardCommit &) = delete;

  // What run() will do, as files are now.
  Result<CommitPlan> plan();
  // Once. `approve` is asked when all locks are held, `at_last` when all is prepared. What they refuse is not done.
  using Asked = std::function<Result<void>()>;
  Result<void> run(const Asked &approve, const Asked &at_last);

 private:
  // The index file, locked, and the new file that will take its place.
  struct LockedIndex {
    std::unique_ptr<os::LockedFile> held;
    std::unique_ptr<write::TemporaryFile> fresh;
    Shards::WithheldIndex withheld;  // `fresh`, and what `held` says
    const os::File &file() const { return held->file; }
  };
  // The super-journal, once it is there.
  struct Decision {
    std::unique_ptr<write::JournalFolder> beside;  // removed with the last journal in it
    write::JournalFolder::Taken taken;             // nothing is left of it when it is done, or was given up
    bool there() const { return taken.journal != nullptr; }
    void remove();
  };

  template <class Work>
  auto with_room(Work work) const {  // each part takes some
    return shards_.with_room(std::move(work));
  }
  Result<void> check_folder() const;
  Result<void> prepare_to_lock();
  Result<void> run_quietly(const Asked &approve, const Asked &at_last);
  Result<CommitPlan> reckon(const os::File &beside);
  Result<CommitPlan> reckon_new_names(const os::File &beside);
  static CommitPlan nothing();
  Result<bool> changes_anything();
  Result<void> may_change(const Asked &approve);
  Result<void> check_replaceable();
  Result<void> check_room();
  Result<void> lock_all();
  Result<write::Look> look(const os::LockedFile &index, bool exclusive, Participant **hot);
  Result<write::Look> lock_parts(Participant **hot);
  // One part after the other, whose progress is told as one.
  Result<void> prepare_each(const std::function<Result<void>(Participant &)> &prepare);
  Result<void> prepare(const Asked &at_last);
  Result<void> prepare_index(write::SuperParticipant *entry);
  Result<void> make_index(const std::string &text);
  Result<void> check_all_is_there() const;
  Result<void> check_in_place() const;
  // What the index will say, as text; null if that is what it says. It is made once, unless the index, or what the
  // shards will be called, is found to be another meanwhile. `as_read` becomes what is there now.
  Result<std::shared_ptr<const std::string>> new_index(ReadIndex *as_read = nullptr);
  Result<std::shared_ptr<const std::string>> make_new_index(const ShardIndex &now) const;
  Result<void> decide();
  // Nobody is shown a part of what it puts in place, until all of it is there and show() shows that at once.
  Result<void> apply();
  void withhold() noexcept;
  void show() noexcept;
  void end_withholding() noexcept;
  // A step before anything is decided: if it fails, or memory runs out in it, all is taken back.
  Result<void> or_drop_all(const std::function<Result<void>()> &step);
  void drop_all();
  // Last: the log may use the checkpoint by another handle, and would wait for what is locked here.
  void unlock_and_tell() noexcept;
  // No message: memory ran out.
  Failure open_outcome(Error cause);
  // Under new names.
  const std::string &name_of(const Participant &part) const { return names_.at(&part.file()); }
  std::string name_after(const std::string &shard) const;
  Result<void> choose_names();
  Result<std::vector<write::OldShard>> will_be_old() const;
  Result<void> prepare_new_names(const Asked &at_last);
  Result<void> commit_new_names(const Asked &at_last);
  bool is_index_in_place() const noexcept;
  Result<void> open_folder();
  Result<void> sync_folder() const;

  Shards &shards_;
  const os::MadeIn made_in_;
  Shards::Kept &kept_;  // asked for here, as that may take memory
  const ShardCatalogue &shown_;
  const Work work_;
  const std::vector<std::unique_ptr<Participant>> parts_;  // in the order of their paths; they outlive what decides
  std::map<const DataFile *, std::string> names_;          // of their shards, as the index has them
  std::vector<uint64_t> moves_;                            // bytes that each of them moves, as was reckoned
  JoinedProgress joined_;
  LockedIndex index_;
  bool is_exclusive_ = false;  // others are kept out
  LaterLog warnings_;          // of the index and the list beside it, for when they have their places
  LaterLog found_;             // what others have left, whatever becomes of this commit
  Decision decision_;
  os::File folder_;                               // to be synced
  std::optional<OldShards> old_;                  // of a commit under new names
  std::map<std::string, std::string> new_names_;  // then: of each part's shard
  // What new_index() made last, and of what.
  struct NewIndex {
    uint64_t hash;  // of the bytes of the index
    std::map<std::string, std::string> new_names;
    std::shared_ptr<const std::string> text;
  };
  std::optional<NewIndex> new_index_;
};

}  // namespace st::store
