// A checkpoint written anew in other files: as shards with an index, or as one
// file. The source is only read, and its bytes do not pass through memory where
// the kernel can copy them.
#pragma once

#include <string>

#include "file/writer.h"

namespace st::store {

// Shards of at most `max_shard_size` bytes of tensors, in a folder that is made
// if need be. The index comes last. What was written is removed on failure.
Result<void> reshard(os::Env &env, const std::string &from, const std::string &to_folder, uint64_t max_shard_size,
                     const write::SaveOptions &options);

Result<void> join(os::Env &env, const std::string &from, const std::string &to, const write::SaveOptions &options);

}  // namespace st::store
