// What every transaction can do, on one file or on several, and what it is given
// and says. Applied all or none. One thread at a time.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/control.h"
#include "format/header.h"
#include "format/selection.h"
#include "newfile/cost.h"
#include "newfile/layout.h"

namespace st::os {
class File;
class Neighbours;
}  // namespace st::os

namespace st::store {

struct Snapshot;

inline constexpr uint32_t default_shard_grace_s = 3600;

struct TransactionOptions {
  bool copy = false;  // payloads are not kept by the caller until commit
  int32_t lock_timeout_ms = default_lock_timeout_ms;
  Progress progress = {};
  bool journal_only = false;  // a patch answers ok when its journal is durable, where two flushes are enough
  bool publish = false;       // also what could be patched: no reader sees a mix
  bool break_links = false;   // publish a file that has other names
  bool new_names = false;     // of shards: what is published gets a new name, and the old one stays for shard_grace_s
  uint32_t shard_grace_s = default_shard_grace_s;
  bool compact = false;  // the layout is renewed though nothing else changes: see Model::compact
  write::Layout layout = write::Layout::keep;
  bool align = false;  // the kept layout, of a file that is aligned before
  uint64_t alignment = 0;
  uint64_t reserve = 0;
  // Do these bytes lie in memory that views of another file of the same handle show?
  std::function<bool(const void *bytes, uint64_t n)> is_view = {};
  // The names in the folder, of many commits one after the other: what dead writers leave meanwhile is not looked for.
  os::Neighbours *listed = nullptr;
};

// What a commit does. The commit itself goes by it: it begins only if what is needed is free.
struct CommitPlan {
  enum Kind { nothing, patch, publish } kind = nothing;
  uint64_t file_size = 0, data_offset = 0;  // afterwards
  write::Cost cost;
  uint64_t in_all = 0;                                 // bytes that its progress counts
  uint64_t space_needed = 0, space_free = UINT64_MAX;  // bytes
  std::string how;
};

// What an update is to write.
struct NewBytes {
  uint32_t dtype;
  std::span<const uint64_t> shape;
  const void *bytes;
  uint64_t nbytes;
  // XXH3-64 that they were found to have. What is staged of them, or published, has it, or the status is
  // invalid_argument.
  std::optional<uint64_t> hash = {};
};

struct ByteRange {
  uint64_t begin, length;
};

// A block of a tensor as it is, and as it will be.
struct RemadeBlock {
  uint64_t begin;  // in the tensor
  std::span<const std::byte> old, fresh;
  std::span<const uint32_t> places;  // of the elements that change, ascending, counted in the block
  uint32_t width;                    // of an element
};
inline constexpr uint64_t longest_remade = uint64_t{1} << 20;

// What takes these blocks in their order.
class TakesRemade {
 public:
  virtual ~TakesRemade() = default;
  // By any thread, one block at a time: computes, and takes no memory.
  virtual void note(const RemadeBlock &block) noexcept = 0;
  // Then, by the thread of the commit: what was noted is kept.
  virtual Result<void> keep() = 0;
};
// Makes the new bytes of a tensor of those that it has in `file`, at `at`. Gives away each block with changes. What it
// refuses is not changed. It may be asked again.
using Remake = std::function<Result<void>(const os::File &file, uint64_t at, TakesRemade &to)>;

inline Result<void> nothing_at_last() {
  return {};
}

class AnyTransaction {
 public:
  virtual ~AnyTransaction() = default;

  virtual Result<void> update(std::string_view name, const NewBytes &value) = 0;
  // The bytes are taken at once.
  virtual Result<void> update_slice(std::string_view name, const TensorPart &part, const NewBytes &value) = 0;
  // These ranges of a tensor's bytes, which has them; `bytes` are those of all, one behind the other, and taken at
  // once.
  virtual Result<void> update_ranges(std::string_view name, std::span<const ByteRange> ranges,
                                     std::span<const std::byte> bytes) = 0;
  // Will the file with this tensor be made anew, as far as is staged?
  virtual Result<bool> publishes(std::string_view name) = 0;
  // Will this tensor be changed in place, as far as is staged?
  virtual Result<bool> may_remake(std::string_view name) = 0;
  // Then: its new bytes are made at commit, when it is locked. The journal takes about so many bytes for it. What makes
  // a publish of its file must not come after it.
  virtual Result<void> remake(std::string_view name, const Remake &make, uint64_t in_journal) = 0;
  // These make a publish of it. What they refuse leaves the transaction as it was.
  virtual Result<void> put(std::string_view name, const NewBytes &value) = 0;
  virtual Result<void> remove(std::string_view name) = 0;
  virtual Result<void> rename(std::string_view from, std::string_view to) = 0;
  virtual Result<void> set_metadata(std::string_view key, std::optional<std::string_view> value) = 0;
  // The metadata that the handle shows become these pairs, and no others. So it must come before other changes of the
  // metadata. On shards they are the index's, but for its
  // totals; what goes also goes from the first shard's header, which readers of that file alone would show.
  virtual Result<void> replace_metadata(MetadataPairs wanted) = 0;
  // All tensors that there are by then, in their order in the file. Shards have the order of their names, and keep it.
  virtual Result<void> arrange(std::vector<std::string> names) = 0;
  // Asked at commit when all locks are held, with the file as it now is. A refusal ends the commit, with nothing
  // changed. On shards `now` is empty: all of them and the index are what the transaction was begun on, else the status
  // is file_changed.
  using Approve = std::function<Result<void>(std::span<const Snapshot *const> now)>;
  virtual void before_change(Approve approve) = 0;
  // Asked when all that the change takes is made, right before it is decided. A refusal ends the commit, too. Where it
  // finds no more descriptors, it is asked again with those of other files of the handle.
  using AtLast = std::function<Result<void>()>;
  virtual void at_last(AtLast ask) = 0;
  // As the handle sees the file now. Changes nothing.
  virtual Result<CommitPlan> plan() = 0;
  // After status busy it may be called again; after anything else it is over.
  virtual Result<void> commit() = 0;
};

}  // namespace st::store
