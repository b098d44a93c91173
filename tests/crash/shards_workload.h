// Operations that change a checkpoint of three shards, on a simulated disk, and a
// model of what it must then hold, whichever shard holds it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "layout_workload.h"
#include "store/shards.h"

namespace st::testing {

inline const std::string shards_folder = "/models", index_path = shards_folder + "/m.safetensors.index.json";
inline const std::vector<std::string> shard_names = {"m-1.safetensors", "m-2.safetensors", "m-3.safetensors"};

// What a checkpoint holds, whichever shard holds it: tensors, and metadata of the index but total_size.
struct Whole {
  std::map<std::string, ModelTensor> tensors;
  std::map<std::string, std::string> metadata;
  bool operator==(const Whole &) const = default;
};

Whole first_whole();
SimEnv shards_disk(const Disk &kind);

// As a reader without libst sees it, who follows the index. What is wrong, or what it holds.
struct Seen {
  std::string wrong;
  Whole whole;
};
Seen follow_index(const SimEnv &env);
// Also what only libst checks: the index and the shards say the same, and total_size is right. Empty: all well.
std::string check_strictly(SimEnv &env);

// A step, done to the model and to a transaction. `keep` owns the bytes that are borrowed until the commit.
struct ShardOperation {
  using Stage = std::function<Result<void>(store::AnyTransaction &, Whole &, std::vector<std::string> &keep)>;
  std::string_view name;
  Stage stage;
};
const std::vector<ShardOperation> &shard_operations();
Result<void> run(store::Shards &shards, const ShardOperation &operation, Whole &whole);

}  // namespace st::testing
