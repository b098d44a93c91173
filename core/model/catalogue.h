// What a handle shows at one moment: names to tensors, and metadata, of one file
// or of several members that look like one. Cheap to copy. What it answers lives as
// long as a catalogue that holds it, or if it was lent, until the handle releases that.
#pragma once

#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "file/data_file.h"

namespace st::store {

// Where a tensor is: in which member, and which one it is there.
struct Place {
  size_t global;    // its index in the catalogue
  uint32_t number;  // of the member
  const DataFile *member;
  const Snapshot *snapshot;  // of the member
  size_t index;              // in the snapshot

  TensorView tensor() const { return snapshot->header.index.at(index); }
};

// A member that was opened, and the state of it that is shown.
struct Opened {
  const DataFile *data_file;
  const Snapshot *snapshot;
};

using MetadataPair = std::pair<std::string_view, std::string_view>;  // NUL-terminated in memory

// The catalogue of several members, as one. It looks immutable, but may take facts
// from its members when it is first asked for them. Any thread.
class Merged {
 public:
  virtual ~Merged() = default;
  virtual size_t size() const = 0;
  virtual Result<Place> at(size_t i) const = 0;  // i < size()
  virtual Result<std::optional<Place>> find(std::string_view name) const = 0;
  virtual size_t metadata_size() const = 0;
  virtual MetadataPair metadata_at(size_t i) const = 0;  // i < metadata_size()
  virtual std::optional<std::string_view> metadata_find(std::string_view key) const = 0;

  // What names the members, as sentences name it; empty where nothing does.
  virtual std::string shown_name() const { return {}; }
  virtual size_t members() const = 0;
  virtual std::string_view member_path(size_t i) const = 0;  // NUL-terminated; i < members()
  virtual Result<Opened> member(size_t i) const = 0;         // opened, if it is not yet; i < members()
  virtual std::vector<Opened> opened() const = 0;
  // Are there members to be opened, better together than one after the other?
  virtual bool opens_together() const { return false; }
  // Then: the member that has a tensor, which need not be open.
  virtual std::optional<uint32_t> awaited_for(size_t) const { return std::nullopt; }  // below size()
  virtual std::optional<uint32_t> awaited_for(std::string_view /*name*/) const { return std::nullopt; }
  // Opens these, side by side where opens wait for a server. The error is that of the first that fails. No `progress`:
  // the handle's own.
  virtual Result<void> open(const std::set<uint32_t> & /*awaited*/, const Progress & /*progress*/) const { return {}; }
  virtual size_t index_bytes() const = 0;  // of memory, besides those of the members
  // Status file_changed if the index that names the members was replaced since it was read.
  virtual Result<void> check_unchanged() const { return {}; }

  uint64_t look = 0;  // the number of the look that found it: see MultiFileOf
};

class Catalogue {
 public:
  explicit Catalogue(const DataFile &file) : Catalogue(file, file.hold()) {}
  // `held` keeps `several`.
  Catalogue(HeldState held, const Merged &several) : held_several_(std::move(held)), several_(&several) {}
  // What it answers may be given out until the handle releases it.
  Catalogue lent() && {
    if (held_several_) held_several_.lend();
    if (held_snapshot_) held_snapshot_.lend();
    return std::move(*this);
  }
  // The same, held by somebody else.
  Catalogue borrowed() const { return several_ ? Catalogue(*several_) : Catalogue(*file_, *snapshot_); }

  size_t size() const { return several_ ? several_->size() : snapshot_->header.index.size(); }
  // Status out_of_range; of several members also those of opening one.
  Result<Place> at(uint64_t i) const;
  // So many from the first on, in their order; all are there. `progress`: of the call that waits for their members.
  Result<std::vector<Place>> range(size_t first, size_t n, const Progress &progress = {}) const;
  Result<std::vector<Place>> all(const Progress &progress = {}) const { return range(0, size(), progress); }
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

  // The files that it is of.
  size_t members() const { return several_ ? several_->members() : 1; }
  // NUL-terminated; empty for memory. i < members().
  std::string_view member_path(size_t i) const { return several_ ? several_->member_path(i) : file_->place(); }
  // Opened, if it is not yet. Status out_of_range; those of opening.
  Result<Opened> member(size_t i) const;
  std::vector<Opened> opened() const;
  size_t index_bytes() const { return several_ ? several_->index_bytes() : 0; }  // besides those of the members

  // The state of the file, if it is one and no more: for calls that must not take a nanosecond longer.
  const Snapshot *snapshot() const { return snapshot_; }
  const Merged *several() const { return several_; }  // else

 private:
  explicit Catalogue(const Merged &several) : several_(&several) {}
  Catalogue(const DataFile &file, const Snapshot &snapshot) : file_(&file), snapshot_(&snapshot) {}
  Catalogue(const DataFile &file, HeldSnapshot snapshot)
      : file_(&file), held_snapshot_(std::move(snapshot)), snapshot_(held_snapshot_.get()) {}

  HeldState held_several_;
  const Merged *several_ = nullptr;
  const DataFile *file_ = nullptr;  // else
  HeldSnapshot held_snapshot_;
  const Snapshot *snapshot_ = nullptr;
};

// What a call is going to ask a catalogue for. It opens members together, which at() and find() would open one after
// the other: side by side behind a URL, and else with one look at whether they go with what is open.
class Wanted {
 public:
  explicit Wanted(const Catalogue &of)
      : several_(of.several() && of.several()->opens_together() ? of.several() : nullptr) {}
  // False: there is no such tensor, as at() or find() will say; or nothing is to be opened. Then no more need be added.
  bool add(uint64_t i) {
    return several_ && i < several_->size() && add(several_->awaited_for(static_cast<size_t>(i)));
  }
  bool add(std::string_view name) { return several_ && add(several_->awaited_for(name)); }
  // The statuses of at(). `progress`: of the call that waits for them.
  Result<void> open(const Progress &progress = {}) const {
    return awaited_.empty() ? Result<void>() : several_->open(awaited_, progress);
  }

 private:
  bool add(std::optional<uint32_t> member) {
    if (member) awaited_.insert(*member);
    return member.has_value();
  }

  const Merged *several_;
  std::set<uint32_t> awaited_;
};

}  // namespace st::store
