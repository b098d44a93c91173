// What a path stands for: a file, an index of shards, or a folder that holds one
// of the two.
#pragma once

#include <string>

#include "base/error.h"
#include "os/env.h"

namespace st::store {

struct Located {
  std::string path;
  bool is_index = false;
};

// A folder leads to its model.safetensors, as transformers has it, which leaves an index behind when it saves a model
// anew in one file. But a shard leads to its index, and so does one that was a shard until it got a new name, or lost
// its tensors. A folder without such a file leads to its one index. Status not_regular if it holds neither, shard_index
// if it holds several indexes. Reads headers at most: no journal is looked at. Asks the system only if the name leaves
// a doubt: `maybe_folder` says that it is no plain file.
Result<Located> locate(os::Env &env, const std::string &path, bool maybe_folder = true);

}  // namespace st::store
