// A sharded checkpoint: the files that a `….safetensors.index.json` names, as one
// model. A shard is opened when it is first needed, and then its header is
// held against the index. Tensors stand shard by shard, in the order of the
// shards' names, and within a shard by offset.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "journal/recover.h"
#include "model/multi_file.h"
#include "newfile/temporary_file.h"
#include "os/descriptors.h"
#include "os/made_in.h"
#include "os/named_lock.h"
#include "os/per_process.h"
#include "shards/shard_catalogue.h"

namespace st::store {

class Shards final : public MultiFileOf<ShardCatalogue> {
 public:
  // `path` of the index; symbolic links are followed, but the shards are those
  // beside the path that was given.
  static Result<std::unique_ptr<Shards>> open(os::Env &env, const std::string &path, OpenOptions options);
  // For reading only. `index` is a source, and `shards` opens those that it names. What was read stays as it is: the
  // index is never looked at again, and each shard is of the version that was opened. `path` is for messages.
  static Result<std::unique_ptr<Shards>> open_sources(os::Env &env, os::SourceEnv &index, const std::string &path,
                                                      os::OpenByName shards, OpenOptions options);

  Result<std::unique_ptr<Model>> reopen(const Catalogue &state, Again as) const override;
  Result<std::unique_ptr<Model>> reopen_shown(Again as) const override;
  Result<void> refresh() override;
  Result<std::unique_ptr<AnyTransaction>> begin(TransactionOptions options) override;
  Result<std::unique_ptr<AnyTransaction>> begin_on(const Catalogue &state, TransactionOptions options) override;
  // One shard after the other, each durable by itself.
  Result<void> compact(TransactionOptions options) override;
  // With what commits have made that could not be shown before, if it can be now.
  Catalogue catalogue() const override {
    if (to_show_ != shown_late_) const_cast<Shards *>(this)->show_late();  // which changes nothing else
    return MultiFileOf::catalogue();
  }
  void close() noexcept override;
  std::string index_path() const override { return path_; }
  const os::Location *index_location() const override { return at_ ? &at_ : nullptr; }

  const std::string &path() const { return path_; }     // of the index, as it was given, made absolute
  const os::Location &location() const { return at_; }  // without symbolic links
  // As DataFile::poison, of the index and all shards: a commit on several of them has an open outcome.
  void poison() noexcept { poisoned_ = true; }
  bool poisoned() const { return poisoned_; }
  // Anew, for others may have changed it. `wait`: for a lease on it. Bytes that are those of `known`, by their hash,
  // are not parsed again.
  static Result<ReadIndex> read_index(const os::Location &index, const os::LockWait &wait,
                                      const ReadIndex *known = nullptr);
  // Waits until no writer changes the checkpoint. Where nothing can be locked nobody does.
  static Result<void> await_writers(const os::Location &index, const os::LockWait &wait);
  // What tells an index, or a shard, from another that had its name before or has it after.
  static uint64_t state_of(const struct stat &file);
  // The index at `path` names the shard, and nobody finds it.
  static Error missing(const std::string &path, uint32_t number, const std::string &shard);
  // It is in no folder: others may change nothing of what it shows.
  bool is_of_sources() const { return static_cast<bool>(sources_); }
  // So many of such shards are opened at once.
  unsigned most_opens() const { return most_opens_; }

 private:
  friend class ShardCommit;
  friend class ShardTransaction;
  Shards(os::Env &env, OpenOptions options) : MultiFileOf(env, std::move(options)), made_in_(env), kept_(env) {}

  friend class ShardCatalogue;
  // The handle's descriptors are opened anew when they are wanted. So `work`, which may be done again, may have them.
  template <class Work>
  auto with_room(Work work) const {
    using os::Descriptors;
    return Descriptors::with_room(member_options().descriptors, Descriptors::GiveUp::all, std::move(work));
  }
  static Result<ReadIndex> read_index(const os::File &file, const ReadIndex *known = nullptr);
  // An index that a commit puts in place, and the one that it has locked, whose place that takes.
  struct WithheldIndex {
    struct stat identity = {};
    ReadIndex locked = {};
  };
  struct Kept {
    std::mutex mutex;                                        // of what follows
    std::shared_ptr<const ShardIndex> index;                 // of the last catalogue that was made
    std::shared_ptr<const ShardCatalogue::Members> members;  // those that it names
    std::vector<std::shared_ptr<Member>> with_journals;      // those used last
    // While a commit has not yet shown the shards that belong to it, the locked index is shown in its place.
    const WithheldIndex *withheld_index = nullptr;  // of the commit, which has locked the index
    std::atomic<unsigned> exclusive = 0;            // commits of this handle that keep others out
    uint64_t refreshed = 0;                         // unseen_, when all shards were last refreshed together
    uint64_t newer = 0;                             // shards_newer_, when what is shown was found
    uint64_t settled_at = 0;                        // of the catalogue that is shown
  };
  // Call with the mutex. `read` may be older than shards that a commit of ours has changed since: see show_anew.
  std::unique_ptr<ShardCatalogue> make_catalogue(ReadIndex read, Kept &kept);
  std::shared_ptr<const ShardCatalogue::Members> members_of(const ShardIndex &index,
                                                            const ShardCatalogue::Members *known) const;
  // A transaction will change this shard, which is opened: each state that lacks it gets it as it is now.
  Result<void> pin_in_all_states(const Member &shard);
  // A commit renames the new index into place. `replaced` is locked.
  Result<void> rename_index(const os::File &replaced, write::TemporaryFile &fresh);
  // Shows the index as it is now, and the shards as they are shown. But where others have changed more than one file,
  // the shards are refreshed first. `refreshed_for`: the state of the index before they were last refreshed.
  Result<void> show_anew();
  // The same after a commit of this handle in another thread, which has shown its shards and not yet the index.
  Result<void> show_own();
  // If the index is as it was, all its shards were there once: are they looked for again?
  enum class Missing { looked_for_anew, known };
  Result<void> show(uint64_t refreshed_for, int32_t timeout_ms, Missing missing);
  // Shows the shards as they are shown, under the index that is shown. Opens nothing. False: that would be a mix.
  bool show_shards();
  void show_late() noexcept;
  bool is_behind(const Kept &kept, const Look &look) const;
  // Shards of these names, which a state in use may have, are about to go.
  void keep_open(const std::set<std::string> &names) const;
  Result<void> refresh_shards(int32_t timeout_ms);
  Result<void> open_all(const Progress &progress) const;
  Result<void> compact_one(const std::string &shard, const TransactionOptions &options);
  std::optional<Error> missing_since(const std::string &shard) const;
  Result<void> check_all_there(const ShardIndex &index, int32_t timeout_ms) const;
  Result<void> recover_left(int32_t timeout_ms) const;  // by dead writers
  // Until no commit of others that was decided before has yet to give files their names.
  Result<void> await_half_done(int32_t timeout_ms) const;
  // For ShardCatalogue::check_go_together: the second that it is, and whether files tell by their times what has
  // changed since such a second. They do not once somebody has set the clock back.
  uint64_t second_to_settle() const;
  bool times_tell() const;
  Error replaced_all_the_time() const;
  // One that no catalogue shows as it is.
  Result<void> refresh_unshown(Member &shard) const;
  // A shared lock on the index; null where nobody can have one.
  static Result<std::unique_ptr<os::LockedFile>> keep_writers_out(const os::Location &index, const os::LockWait &wait);
  Result<void> recover(const os::LockWait &wait) const;
  // Has a commit of this handle put it there? A child does not know what its parent was about to show.
  bool is_own(const struct stat &index) const {
    const uint64_t state = own_state_of(index);
    return (state == own_index_ || state == own_before_) && made_in_.this_process();
  }
  // Without its ctime, which a rename, a link and a chmod change.
  static uint64_t own_state_of(const struct stat &index);
  // Status file_changed if the index is no longer the one that was read, nor, if they may, one of ours. `same_as` is a
  // later state of it that was found to have the same bytes; 0: none.
  enum class Own { may_follow, may_not };
  Result<void> check_unchanged(const ReadIndex &read, std::atomic<uint64_t> &same_as, Own ours) const;
  // Before it is said that a shard does not go with the index: this kernel may lead the name to the one before still.
  void ask_anew(const struct stat &index) const;
  // Only so many shards keep journals for their next transaction: fewer where few files may be open.
  void used_journals(const std::shared_ptr<Member> &shard) noexcept;

  std::string path_;
  os::OpenByName sources_;                       // of shards that are in no folder
  unsigned most_opens_ = 1;                      // of these at once
  os::Location at_;                              // of the index
  std::shared_ptr<const os::Directory> folder_;  // that the shards are named in
  const os::MadeIn made_in_;
  mutable os::PerProcess<Kept> kept_;
  std::atomic<bool> poisoned_ = false;
  // States of two indexes: the one that a commit of ours is putting in place, and the one before, if that is ours, too.
  std::atomic<uint64_t> own_index_ = 0, own_before_ = 0;
  // Counts what may make shards newer than an index that was read before: a commit of ours has shown its shards, or has
  // given an index its name that names new ones; or all shards were refreshed.
  std::atomic<uint64_t> shards_newer_ = 0;
  // Counts what may have changed several shards, and is not seen by its index: a commit of ours that is left to
  // recovery, or one by others whose index a commit of ours has replaced.
  std::atomic<uint64_t> unseen_ = 0;
  // The most that the clock on the wall was ahead of the monotonic one, in seconds.
  mutable std::atomic<uint64_t> ahead_ = 0;
  // Counts commits that could not be shown, and how many of them were shown later.
  std::atomic<uint64_t> to_show_ = 0, shown_late_ = 0;
};

// For a progress: the bytes of the file there, or 0 of what cannot be looked at: opening it will tell why.
uint64_t size_at(const Result<os::Location> &at);

}  // namespace st::store
