// Operations that change a checkpoint of three shards, on a simulated disk.
#pragma once

#include <string>
#include <vector>

#include "layout_workload.h"
#include "shards/shards.h"

namespace st::testing {

inline const std::string shards_folder = "/models", index_path = shards_folder + "/m.safetensors.index.json";
inline const std::vector<std::string> shard_names = {"m-1.safetensors", "m-2.safetensors", "m-3.safetensors"};

// What a checkpoint holds, whichever shard holds it; the metadata are the index's, without total_size.
Model first_whole();
SimEnv shards_disk(const Disk &kind);

// As a reader without libst sees it that follows the index: a fault, or its content.
struct Seen {
  std::string wrong;
  Model whole;
};
Seen follow_index(const SimEnv &env);
// The same, by an index that was read before.
Seen follow_index(const SimEnv &env, std::string json);
// Also what only libst checks: the index and the shards say the same, and total_size is right. Empty: all well.
std::string check_strictly(SimEnv &env);

struct ShardOperation {
  std::string_view name;
  Stage stage;
};
const std::vector<ShardOperation> &shard_operations();
Result<void> run(store::Shards &shards, const ShardOperation &operation, Model &whole, bool new_names = false);

}  // namespace st::testing
