// A delta applied to its base, one file or shards, as one transaction: in place where
// only bytes of tensors change, else by a new file that takes the base's name. Must never
// change the base before it is known to be the right one. If a way back is asked
// for, it must be durable before, too.
#pragma once

#include <string>

#include "delta/delta_file.h"
#include "file/any_transaction.h"

namespace st::store {

struct DeltaPatchOptions {
  std::string reverse;  // path of the delta that undoes this one; empty: none is wanted
  bool publish = false, break_links = false, journal_only = false;
  int32_t lock_timeout_ms = 10000;
  Progress progress = {};
};

struct DeltaPatched {
  CommitPlan plan;             // by which it was done
  uint64_t written = 0;        // bytes, into the base
  uint64_t journal_bytes = 0;  // bytes, into its journal
};

// `base` is open for writing, and `delta` keeps its file. Statuses: delta, delta_base (nothing was changed); those of a
// transaction's steps and commit, and of saving the reverse delta.
Result<DeltaPatched> patch(os::Env &env, Model &base, DeltaFile delta, DeltaPatchOptions options);

}  // namespace st::store
