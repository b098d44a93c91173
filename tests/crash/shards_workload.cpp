#include "shards_workload.h"

#include <algorithm>

#include "format/header.h"
#include "format/shard_index.h"

namespace st::testing {
namespace {

const std::map<std::string, ModelTensor> first_shards[] = {
    {{"a", u8(700, 1)}, {"b", u8(300, 2)}}, {{"c", u8(600, 3)}}, {{"d", u8(520, 4)}, {"e", u8(40, 5)}}};

using stage::all, stage::change_elements, stage::metadata, stage::put, stage::remove, stage::rename, stage::update,
    stage::update_slices;

}  // namespace

const std::vector<ShardOperation> &shard_operations() {
  static const std::vector<ShardOperation> operations = {
      {"updates in two shards", all({update("a", 31), update("d", 32)})},
      {"updates in all shards", all({update("b", 33), update("c", 34), update("e", 35)})},
      {"put of a new tensor", put("new", u8(90, 36))},
      {"delete", remove("b")},
      {"rename", rename("a", "z")},
      {"metadata", metadata("origin", "there")},
      {"delete in one shard, put in another", all({remove("d"), put("b", u8(30, 37)), put("new", u8(20, 38))})},
      {"a tensor leaves for another shard", all({remove("a"), put("d", u8(10, 39)), put("a", u8(50, 40))})},
      {"everything at once", all({update("c", 41), update_slices("c", 45), update_slices("a", 46), rename("b", "y"),
                                  remove("e"), put("new", u8(80, 42)), metadata("k", "v")})},
      {"delete of all that a shard holds", remove("c")},
      {"updates of slices in two shards", all({update_slices("a", 43), update_slices("d", 44)})},
      {"updates of elements in two shards", all({change_elements("a", 47), update("b", 48), change_elements("d", 49)})},
      {"elements in one shard, put in another",
       all({put("new", u8(70, 50)), change_elements("c", 51), change_elements("a", 52)})},
  };
  return operations;
}

SimEnv shards_disk(const Disk &kind) {
  SimEnv env = empty_disk(kind);
  ShardIndex index = ShardIndex::of(shard_names, 0);
  uint64_t total = 0;
  for (size_t i = 0; i < 3; ++i) {
    env.add_file(shards_folder + "/" + shard_names[i], file_of({first_shards[i], {}}, 8));
    for (const auto &[name, t] : first_shards[i]) {
      index.assign(name, shard_names[i]);
      total += t.bytes.size();
    }
  }
  index.set_metadata("origin", "here");
  index.set_total(total_size_key, total);
  index.set_total(total_parameters_key, total);  // all are U8
  env.add_file(index_path, index.spell());
  return env;
}

Model first_whole() {
  Model whole;
  for (const auto &shard : first_shards) whole.tensors.insert(shard.begin(), shard.end());
  whole.metadata = {{"origin", "here"}};
  return whole;
}

Seen follow_index(const SimEnv &env) {
  return follow_index(env, env.contents(index_path));
}

Seen follow_index(const SimEnv &env, std::string json) {
  Seen seen;
  const size_t n = json.size();
  json.resize(n + header_padding);
  auto index = ShardIndex::parse(json.data(), n, 1);
  if (!index) return {"the index: " + index.error().message, {}};
  // Files that the index does not name are valid too, for tools that take all files.
  std::map<std::string, Model> models;
  for (const std::string &shard : env.names(shards_folder)) {
    if (!shard.ends_with(".safetensors") || shard.starts_with(".")) continue;
    const auto model = model_of(env.contents(shards_folder + "/" + shard));
    if (!model) return {shard + " is invalid", {}};
    models.emplace(shard, *model);
  }
  const auto by_shard = index->names_by_shard();
  for (size_t number = 0; number < by_shard.size(); ++number) {
    const std::string &shard = index->shards()[number];
    const auto model = models.find(shard);
    if (model == models.end()) return {shard + " is not there", {}};
    for (const std::string_view name : by_shard[number]) {
      const auto found = model->second.tensors.find(std::string(name));
      if (found == model->second.tensors.end()) return {text(name, " is not in ", shard), {}};
      seen.whole.tensors.insert(*found);
    }
  }
  for (const auto &pair : index->metadata())
    if (!is_total(pair.key)) seen.whole.metadata[pair.key] = pair.text;
  return seen;
}

std::string check_strictly(SimEnv &env) {
  auto opened = store::Shards::open(env, index_path, {});
  if (!opened) return opened.error().message;
  uint64_t total = 0;
  const store::Catalogue catalogue = (*opened)->catalogue();
  for (size_t i = 0; i < catalogue.size(); ++i) {
    auto place = catalogue.at(i);
    if (!place) return place.error().message;
    total += place->tensor().nbytes;
  }
  for (const std::string_view key : {total_size_key, total_parameters_key})
    if (catalogue.metadata_find(key) != std::to_string(total)) return text(key, " is wrong");
  return {};
}

Result<void> run(store::Shards &shards, const ShardOperation &operation, Model &whole, bool new_names) {
  store::TransactionOptions options;
  options.new_names = new_names;
  options.lock_timeout_ms = 50;
  auto begun = shards.begin(options);
  if (!begun) return Failure(std::move(begun.error()));
  return run(**begun, operation.stage, whole);
}

}  // namespace st::testing
