// The catalogue of a sharded checkpoint at one moment: the index as it was read,
// and of each shard, once it was needed, the snapshot that was found to hold what
// the index says. Any thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "format/shard_index.h"
#include "model/catalogue.h"
#include "model/model_file.h"

namespace st::store {

// The index as it was read, and the file that it came from.
struct ReadIndex {
  std::shared_ptr<const ShardIndex> parsed = {};  // one for all that had the same bytes when they were read
  struct stat identity = {};
  uint64_t hash = 0;  // of its bytes
  const ShardIndex &index() const { return *parsed; }
};

class Shards;

class ShardCatalogue final : public Merged {
 public:
  using Members = std::vector<std::shared_ptr<Member>>;
  // `members`: in the order of the index, which is that of their names.
  ShardCatalogue(const Shards &owner, ReadIndex read, std::shared_ptr<const Members> members);

  size_t size() const override { return read_.index().size(); }
  Result<Place> at(size_t i) const override;
  Result<std::optional<Place>> find(std::string_view name) const override;
  size_t metadata_size() const override { return read_.index().metadata().size(); }
  MetadataPair metadata_at(size_t i) const override {
    const auto &pair = read_.index().metadata()[i];
    return {pair.key, pair.text};
  }
  std::optional<std::string_view> metadata_find(std::string_view key) const override {
    return read_.index().metadata_find(key);
  }

  bool opens_together() const override;
  std::optional<uint32_t> awaited_for(size_t i) const override { return shard_with(i); }
  std::optional<uint32_t> awaited_for(std::string_view name) const override { return read_.index().shard_of(name); }
  Result<void> open(const std::set<uint32_t> &awaited, const Progress &progress) const override;

  std::string shown_name() const override;
  size_t members() const override { return shards().size(); }
  std::string_view member_path(size_t i) const override { return shards()[i]->path(); }
  Result<Opened> member(size_t i) const override;
  std::vector<Opened> opened() const override;
  size_t index_bytes() const override { return read_.index().memory_bytes(); }

  const ShardIndex &index() const { return read_.index(); }
  const ReadIndex &read() const { return read_; }
  const Members &shards() const { return *members_; }
  std::shared_ptr<const Members> shared_members() const { return members_; }
  static std::shared_ptr<Member> find(const Members &members, std::string_view name);  // null: it is not among them

  struct Pinned {
    DataFile *member;
    const Snapshot *snapshot;
  };
  // Shard i, opened and found to agree with the index. Where a commit of this handle changes the shard meanwhile, it is
  // the shard as the commit handed it over. Statuses shard_missing, shard_tensor, shard_duplicate; file_changed; those
  // of opening.
  Result<Pinned> pin(uint32_t i) const;
  Result<void> check_unchanged() const override;
  // The same, but a commit of this handle is a change like any other.
  Result<void> check_same_index() const;
  // Is this the index file that was read?
  bool is_of(const struct stat &index) const;
  // Says so of a shard that is pinned here.
  Error replaced_since(uint32_t shard) const;
  // Does that state of the shard have the tensors that the index has in it, no more and no fewer?
  bool agrees(uint32_t shard, const Snapshot &snapshot) const;
  // Its snapshot, if somebody needed it already.
  const Snapshot *pinned(uint32_t i) const { return pins_[i].get(); }
  const Snapshot *pinned_of(const Member &shard) const;  // null also if the index does not name it
  // Pins those of the shards that are shown, and agree: so that they stay what they are here, whatever is published
  // next. Before this catalogue is shown; they are settled as those that are shown now. What `before` has pinned under
  // the same index is known to agree; null: there is none.
  void pin_shown(uint64_t settled_at, const ShardCatalogue *before) const;
  // The same of one that is open, if it goes with what is pinned here.
  Result<void> pin_opened(const Member &shard) const;

 private:
  using Pins = std::vector<const Snapshot *>;      // of each shard; null: none yet
  using Found = std::map<uint32_t, HeldSnapshot>;  // of shards that were opened, and are not pinned yet

  uint32_t shard_with(size_t i) const;
  Result<Pinned> open_and_pin(uint32_t i) const;
  Result<HeldSnapshot> first_look(uint32_t i) const;
  Pins pins() const;
  Result<void> pin_together(Found found) const;
  Result<void> check_go_together(const Pins &pinned, Found &found, uint64_t &settled_at) const;
  Error explain(uint32_t shard, const Snapshot &snapshot) const;

  const Shards &owner_;
  const ReadIndex read_;
  mutable std::atomic<uint64_t> same_as_ = 0;  // see Shards::check_unchanged
  const std::shared_ptr<const Members> members_;
  std::vector<size_t> first_;                           // index of each shard's first tensor
  mutable std::vector<Versions<Snapshot>::Once> pins_;  // held
  // A second, by the clock: then or later all of them had their names, and no commit was half done. 0: nobody knows.
  mutable std::atomic<uint64_t> settled_at_ = 0;
};

}  // namespace st::store
