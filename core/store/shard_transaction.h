// A transaction on a sharded checkpoint: a transaction on each shard that it
// changes, committed together. What touches one shard and not the index is that
// shard's own affair. Otherwise a super-journal beside the index decides for all,
// and new files take their places in such an order that the index, the old or
// the new one, never names a tensor that is not where it says.
#pragma once

#include <map>
#include <unordered_map>

#include "store/shown_shards.h"
#include "store/transaction.h"

namespace st::store {

class ShardTransaction final : public AnyTransaction {
 public:
  static Result<std::unique_ptr<ShardTransaction>> begin(Shards &shards, TransactionOptions options);

  Result<void> update(std::string_view name, const NewBytes &value) override;
  Result<void> put(std::string_view name, const NewBytes &value) override;
  Result<void> remove(std::string_view name) override;
  Result<void> rename(std::string_view from, std::string_view to) override;
  Result<void> set_metadata(std::string_view key, std::optional<std::string_view> value) override;
  Result<CommitPlan> plan() override;
  Result<void> commit() override;

  // The first one that will hold a tensor, by what is staged; none if none will.
  std::optional<uint32_t> first_shard() const;
  // A pair of a shard's own header, which readers of one file take for metadata.
  Result<void> remove_header_metadata(uint32_t shard, std::string_view key);
  // Asked at commit when all locks are held, and what they lock, and the index, is still what the handle shows: what it
  // refuses is not done. Else status file_changed.
  void before_change(std::function<Result<void>()> approve) { approve_ = std::move(approve); }

 private:
  // The index file, locked, and what is to take its place.
  struct LockedIndex {
    os::File file;
    os::RangeLock lock;  // of file: dies first
    std::unique_ptr<write::Replacement> fresh;
  };
  // The super-journal, once it is there.
  struct Decision {
    std::unique_ptr<write::JournalFolder> beside;  // removed with the last journal in it
    write::JournalFolder::Taken taken;             // nothing is left of it when it is done, or was given up
    bool there() const { return taken.journal != nullptr; }
    void remove();
  };

  ShardTransaction(Shards &shards, TransactionOptions options)
      : shards_(shards), options_(std::move(options)), shown_(shards.now()) {}
  Result<void> may_go_on() const;
  std::optional<uint32_t> shard_of(std::string_view name) const;
  Result<uint32_t> existing(std::string_view name) const;
  uint32_t place_for_new() const;
  Result<Transaction *> part(uint32_t shard);
  std::vector<std::pair<uint32_t, Transaction *>> parts_with_work() const;
  bool changes_index() const;

  Result<void> approve() const;
  Result<void> commit_each();
  Result<void> commit_together();
  Result<void> lock_all(const std::vector<Transaction *> &parts, bool exclusive, uint64_t deadline, LockedIndex *index);
  Result<void> lock_index(bool exclusive, uint64_t deadline, LockedIndex *locked);
  Result<void> lock_parts(const std::vector<Transaction *> &parts, uint64_t deadline, Transaction **orphaned);
  int32_t left(uint64_t deadline) const;
  Result<void> prepare(const std::vector<Transaction *> &parts, LockedIndex *index, Decision *decision);
  Result<void> prepare_index(const std::vector<Transaction *> &parts, LockedIndex *index, write::SuperEntry *entry);
  Result<std::optional<std::string>> new_index(const std::vector<Transaction *> &parts) const;
  Result<void> carry_out(const std::vector<Transaction *> &parts, const LockedIndex &index, const Decision &decision);
  Failure open_outcome(const std::vector<Transaction *> &parts, LockedIndex *index, Decision *decision, Error cause);
  void show_result();
  Result<void> sync_folder() const;
  const Log &options_log() const;

  Shards &shards_;
  const TransactionOptions options_;
  const ShownShards &shown_;
  std::map<uint32_t, std::unique_ptr<Transaction>> parts_;          // by number of the shard
  std::unordered_map<std::string, std::optional<uint32_t>> moved_;  // names that are no longer where the index has them
  std::vector<std::pair<std::string, std::optional<std::string>>> metadata_;
  std::function<Result<void>()> approve_;
  bool failed_ = false;
};

}  // namespace st::store
