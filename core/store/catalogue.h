// What a handle shows at one moment: names to tensors, and metadata, of one file
// or of several members that look like one. Cheap to copy. What it answers lives
// as long as the collection that it is of.
#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "store/checkpoint.h"

namespace st::store {

// Where a tensor is: in which member, and which one it is there.
struct Place {
  size_t global;    // its index in the catalogue
  uint32_t number;  // of the member
  const Checkpoint *member;
  const Snapshot *snapshot;  // of the member
  size_t index;              // in the snapshot

  TensorView tensor() const { return snapshot->header.index.at(index); }
};

using MetadataPair = std::pair<std::string_view, std::string_view>;  // NUL-terminated in memory

// The catalogue of several members, as one. Immutable to who looks at it; what it
// takes from its members it may take when first asked. Any thread.
class Merged {
 public:
  virtual ~Merged() = default;
  virtual size_t size() const = 0;
  virtual Result<Place> at(size_t i) const = 0;  // i < size()
  virtual Result<std::optional<Place>> find(std::string_view name) const = 0;
  virtual size_t metadata_size() const = 0;
  virtual MetadataPair metadata_at(size_t i) const = 0;  // i < metadata_size()
  virtual std::optional<std::string_view> metadata_find(std::string_view key) const = 0;
};

class Catalogue {
 public:
  explicit Catalogue(const Checkpoint &file) : file_(&file), snapshot_(&file.snapshot()) {}
  explicit Catalogue(const Merged &several) : several_(&several) {}

  size_t size() const { return several_ ? several_->size() : snapshot_->header.index.size(); }
  // Status out_of_range; of several members also those of opening one.
  Result<Place> at(uint64_t i) const;
  // All of them, in their order.
  Result<std::vector<Place>> all() const;
  // Status not_found.
  Result<Place> find(std::string_view name) const;

  size_t metadata_size() const {
    return several_ ? several_->metadata_size() : snapshot_->header.index.metadata_size();
  }
  MetadataPair metadata_at(size_t i) const {
    return several_ ? several_->metadata_at(i) : snapshot_->header.index.metadata_at(i);
  }
  std::optional<std::string_view> metadata_find(std::string_view key) const {
    return several_ ? several_->metadata_find(key) : snapshot_->header.index.metadata_find(key);
  }

 private:
  const Merged *several_ = nullptr;
  const Checkpoint *file_ = nullptr;  // else
  const Snapshot *snapshot_ = nullptr;
};

}  // namespace st::store
