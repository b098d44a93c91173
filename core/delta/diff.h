// The difference of two checkpoints, each a file or shards, as one file: see format/delta.h. Both are read
// once, in large requests, and what differs once more; memory is bounded by a
// few blocks and the catalogues. Changes neither.
#pragma once

#include <functional>
#include <string>

#include "base/control.h"
#include "model/model.h"

namespace st::store {

struct DiffOptions {
  uint64_t alignment = 0;  // of the delta's first data byte; 0: 64
  int32_t lock_timeout_ms = default_lock_timeout_ms;
  Progress progress = {};
};

// Writes the delta that makes `to` of `from`, durably, under the path `delta`. `all_read` is called when nothing more
// is read of the two. Status file_changed: a program that takes no locks has changed `to` meanwhile. Else those of
// opening and saving.
Result<void> diff(os::Env &env, const Model &from, const Model &to, const std::string &delta,
                  const DiffOptions &options, const std::function<void()> &all_read);

}  // namespace st::store
