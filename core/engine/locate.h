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
// anew in one file. But a shard of an index leads to that index; so does one whose successor has a new name, while its
// index lists the old one; and one from which all tensors were removed. A folder without such a file leads to its one
// index. Status not_regular if it holds neither, shard_index if it holds several indexes. Reads headers at most: no
// journal is looked at. Asks the system only if the name leaves a doubt: `maybe_folder` says that it is no plain file.
Result<Located> locate(os::Env &env, const std::string &path, bool maybe_folder = true);

}  // namespace st::store
