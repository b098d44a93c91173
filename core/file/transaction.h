// A transaction on one file, applied all or none. New bytes for tensors of
// the same dtype and shape are a patch, in place; anything else (tensors added,
// replaced, removed, renamed, metadata) is a publish: a new file that takes the
// old one's place. Stages without a lock (staging.h); takes its locks, in ascending
// order, when it commits (commit_lock.h). One thread at a time.
#pragma once

#include "file/staged.h"

namespace st::store {

class Transaction final : public AnyTransaction {
 public:
  static Result<std::unique_ptr<Transaction>> begin(DataFile &data_file, TransactionOptions options);

  Result<void> update(std::string_view name, const NewBytes &value) override;
  Result<void> update_slice(std::string_view name, const TensorPart &part, const NewBytes &value) override;
  Result<void> update_ranges(std::string_view name, std::span<const ByteRange> ranges,
                             std::span<const std::byte> bytes) override;
  Result<bool> publishes(std::string_view) override { return publishes(); }
  Result<bool> may_remake(std::string_view) override { return !publishes() && !staged_.options.publish; }
  Result<void> remake(std::string_view name, const Remake &make, uint64_t in_journal) override;
  Result<void> put(std::string_view name, const NewBytes &value) override;
  Result<void> remove(std::string_view name) override;
  Result<void> rename(std::string_view from, std::string_view to) override;
  Result<void> set_metadata(std::string_view key, std::optional<std::string_view> value) override;
  Result<void> replace_metadata(MetadataPairs wanted) override;
  Result<void> arrange(std::vector<std::string> names) override;
  void before_change(Approve approve) override { approve_ = std::move(approve); }
  void at_last(AtLast ask) override { at_last_ = std::move(ask); }
  Result<CommitPlan> plan() override;
  Result<void> commit() override;

  DataFile &data_file() const { return staged_.file; }
  bool has_work() const { return staged_.has_work(); }
  bool publishes() const { return staged_.publishes(); }
  // The state that it changes.
  const Snapshot &before() const { return *staged_.snapshot; }
  // To be committed by a Participant, with others; not by commit() then.
  Staged &staged() { return staged_; }

 private:
  Transaction(DataFile &data_file, TransactionOptions options) : staged_(data_file, std::move(options)) {}
  Result<void> approve() const;
  Result<void> commit_quietly();

  Staged staged_;
  Approve approve_;
  AtLast at_last_ = nothing_at_last;
};

}  // namespace st::store
