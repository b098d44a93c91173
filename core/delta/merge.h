// A base, one file or shards, and deltas folded into one new file. Bytes go from file to file inside the
// kernel, shared where the filesystem can; none of the sources is changed.
#pragma once

#include <string>
#include <vector>

#include "file/writer.h"

namespace st::store {

// Statuses: delta, delta_base; invalid_argument for the name of an index; those of opening and of saving.
Result<void> merge(os::Env &env, const std::string &base, const std::vector<std::string> &deltas, const std::string &to,
                   const write::SaveOptions &options);

}  // namespace st::store
