// A transaction on a sharded checkpoint: a transaction on each shard that it
// changes. What touches one shard and not the index is that shard's own affair;
// else they are committed together (shard_commit.h). Ends before its Shards do.
#pragma once

#include <functional>
#include <map>

#include "shards/shard_commit.h"

namespace st::store {

class ShardTransaction final : public AnyTransaction {
 public:
  // On a state that the shards show, or have shown.
  static Result<std::unique_ptr<ShardTransaction>> begin(Shards &shards, Catalogue state, TransactionOptions options);
  ~ShardTransaction() override { drop_parts(); }
  ShardTransaction(const ShardTransaction &) = delete;
  ShardTransaction &operator=(const ShardTransaction &) = delete;

  Result<void> update(std::string_view name, const NewBytes &value) override;
  Result<void> update_slice(std::string_view name, const TensorPart &part, const NewBytes &value) override;
  Result<void> update_ranges(std::string_view name, std::span<const ByteRange> ranges,
                             std::span<const std::byte> bytes) override;
  Result<bool> publishes(std::string_view name) override;
  Result<bool> may_remake(std::string_view name) override;
  Result<void> remake(std::string_view name, const Remake &make, uint64_t in_journal) override;
  Result<void> put(std::string_view name, const NewBytes &value) override;
  Result<void> remove(std::string_view name) override;
  Result<void> rename(std::string_view from, std::string_view to) override;
  Result<void> set_metadata(std::string_view key, std::optional<std::string_view> value) override;
  Result<void> replace_metadata(MetadataPairs wanted) override;
  Result<void> arrange(std::vector<std::string>) override { return {}; }
  void before_change(Approve approve) override { approve_ = std::move(approve); }
  void at_last(AtLast ask) override { at_last_ = std::move(ask); }
  // That shard is written anew, if the options say so, though nothing in it changes. Status file_changed.
  Result<void> renew(const std::string &shard);
  Result<CommitPlan> plan() override;
  Result<void> commit() override;

 private:
  using Parts = std::vector<std::pair<uint32_t, Transaction *>>;  // each with the number of its shard

  ShardTransaction(Shards &shards, Catalogue state, TransactionOptions options)
      : shards_(shards), options_(of_parts(std::move(options))), state_(std::move(state)) {}
  static TransactionOptions of_parts(TransactionOptions options) {
    options.journal_only = false;  // nobody settles what would wait in a shard
    return options;
  }
  const ShardCatalogue &shown() const { return static_cast<const ShardCatalogue &>(*state_.several()); }
  Result<ReadIndex> read_index() const {  // as it is now
    return Shards::read_index(shards_.location(), {options_.lock_timeout_ms}, &shown().read());
  }
  // Opened, if it is not yet. Others may have replaced shards, so that this one does not go with the state. The
  // transaction then goes on from a later state, if the bytes of the index are the same.
  Result<ShardCatalogue::Pinned> pin(uint32_t shard);
  Result<void> may_go_on() const;
  std::optional<uint32_t> shard_of(std::string_view name) const;
  Result<uint32_t> existing(std::string_view name) const;
  void note_moved(std::string_view name, std::optional<uint32_t> to);
  uint32_t place_for_new() const;
  // The first one that will hold a tensor, by what is staged; none if none will.
  std::optional<uint32_t> first_shard() const;
  Result<Transaction *> part(uint32_t shard);
  struct At {
    uint32_t shard;
    Transaction *transaction;
  };
  // The part of the shard that find() names.
  Result<At> at(const std::function<Result<uint32_t>()> &find);
  Result<At> at(std::string_view name);
  // Takes a step that stages something, or prepares it. As long as nothing is staged, the transaction first goes on
  // from what the handle shows by now. It does so again where the step answers that the file was changed.
  Result<void> following(const std::function<Result<void>()> &step);
  Result<bool> follows_this_handle();
  void drop_parts() noexcept;
  Parts parts_with_work() const;
  Result<CommitPlan> plan_nothing() const;
  bool changes_index() const;
  bool changes_anything() const;
  // Will a shard get a new name? Then each part gets one.
  bool renames_shards() const;

  using Wanted = std::map<std::string_view, std::string_view>;
  Result<void> change_metadata(std::string_view key, std::optional<std::string_view> value);
  Result<void> replace_by(const Wanted &wanted);
  Result<void> approve() const;
  Result<void> check_shown(uint32_t shard, const Transaction &part) const;
  Result<void> check_others() const;
  Result<void> check_named() const;
  template <class T>
  Result<T> or_why_gone(Result<T> done) const;
  ShardCommit::Work work_of(const Parts &parts);
  Result<void> commit_together(const Parts &parts);
  void show_result() noexcept;

  Shards &shards_;
  const TransactionOptions options_;
  Catalogue state_;                                         // and with it its shards, which the parts are of
  std::map<uint32_t, std::unique_ptr<Transaction>> parts_;  // by number of the shard
  std::map<std::string, std::optional<uint32_t>> moved_;    // names that are no longer where the index has them
  std::vector<MetadataChange> metadata_;
  std::map<std::string, bool> has_key_;  // of each key in them, after the last
  Approve approve_;
  AtLast at_last_ = nothing_at_last;
  bool failed_ = false;
};

}  // namespace st::store
