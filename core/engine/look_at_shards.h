// What an index says, and what the headers of its shards say, at one moment. Verification begins with that: to read all
// bytes takes minutes, and others commit meanwhile.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/control.h"
#include "shards/shard_catalogue.h"

namespace st::store {

// What the totals of an index count.
struct HeldTotals {
  uint64_t bytes = 0, parameters = 0;
  void add(const Index &index);
  // What they count under that key.
  uint64_t of(std::string_view key) const { return key == total_size_key ? bytes : parameters; }
};

struct LookedShard {
  std::optional<Error> missing;
  std::vector<Error> disagreements;  // with the index
  uint64_t bytes = 0;                // of the file
  uint64_t state = 0;                // see Shards::state_of; of one that could be opened
};

struct LookedShards {
  ReadIndex read;
  std::vector<LookedShard> shards;  // in the order of the index
  HeldTotals held;                  // of those that have a header: why one has none is told by whoever reads all of it
  // Has each shard what the index says, no more and no less?
  bool agree() const;
};

// `folder`: in which the shards are named. What does not agree was looked at twice, with the same index, and no commit
// was under way at the end: it is no commit that came in between. Statuses: those of reading the index; busy;
// file_changed, if it is replaced again and again; cancelled, interrupted.
Result<LookedShards> look_at_shards(const os::Location &index, const std::shared_ptr<const os::Directory> &folder,
                                    const Control &control);

Error replaced_all_the_time(const os::Location &index);

}  // namespace st::store
