// A delta applied to shards on a simulated disk, all of them or none; see delta_trials.h.
#include <gtest/gtest.h>

#include "bound.h"
#include "delta_trials.h"
#include "engine/deltas.h"
#include "engine/recover_all.h"
#include "format/shard_index.h"

namespace st::testing {
namespace {

const std::string folder = "/models", index_path = folder + "/m.safetensors.index.json";
const std::vector<std::string> shard_names = {"m-1.safetensors", "m-2.safetensors"};

struct ShardsCase {
  std::string_view name;
  bool publishes;
  bool elements = false;  // the delta holds steps
};
constexpr ShardsCase shards_cases[] = {{"in place", false},
                                       {"published", true},
                                       {"elements, in place", false, true},
                                       {"elements, one shard published", true, true}};

// The shards, and what they are as one.
const Model small[] = {{{{"a", u8(700, 1)}, {"b", u8(300, 2)}}, {{"format", "pt"}}},
                       {{{"c", u8(600, 3)}, {"d", u8(520, 4)}}, {}}};
// Large enough for steps to be shorter.
const Model large[] = {{{{"a", u8(9000, 1)}, {"b", u8(300, 2)}}, {{"format", "pt"}}},
                       {{{"c", u8(4500, 3)}, {"d", u8(5000, 4)}}, {}}};
const Model *shards_of(const ShardsCase &c) {
  return c.elements ? large : small;
}
Model old_model(const ShardsCase &c) {
  const Model *shards = shards_of(c);
  Model whole = shards[0];
  whole.tensors.insert(shards[1].tensors.begin(), shards[1].tensors.end());
  whole.metadata["origin"] = "here";
  return whole;
}
// Elements in sectors and pages that change and that stay. Where a tensor is new, the first shard is patched all the
// same.
Model with_other_elements(const ShardsCase &c) {
  Model whole = old_model(c);
  for (const size_t at : {size_t{3}, size_t{700}, size_t{8999}}) whole.tensors["a"].bytes[at] ^= 1;
  whole.tensors["c"].bytes[4100] ^= 1;
  if (c.publishes) whole.tensors["new"] = u8(90, 15);
  return whole;
}
Model new_model(const ShardsCase &c) {
  if (c.elements) return with_other_elements(c);
  Model whole = old_model(c);
  whole.tensors["a"] = u8(700, 11);
  whole.tensors["c"] = u8(600, 13);
  if (!c.publishes) return whole;
  whole.tensors.erase("b");
  whole.tensors["d"] = {Dtype::F16, {100}, fill(200, 14)};
  whole.tensors["new"] = u8(90, 15);
  whole.metadata = {{"origin", "there"}};
  return whole;
}

// As a reader without libst finds it that follows the index.
std::optional<Model> follow_index(const SimEnv &env) {
  std::string json = env.contents(index_path);
  const size_t n = json.size();
  json.resize(n + header_padding);
  auto index = ShardIndex::parse(json.data(), n, 1);
  if (!index) return std::nullopt;
  Model whole;
  const auto names = index->names_by_shard();
  for (uint32_t i = 0; i < index->shards().size(); ++i) {
    const auto shard = model_of(env.contents(folder + "/" + index->shards()[i]));
    if (!shard) return std::nullopt;
    for (const std::string_view name : names[i]) {
      const auto found = shard->tensors.find(std::string(name));
      if (found == shard->tensors.end()) return std::nullopt;
      whole.tensors.insert(*found);
    }
    if (i == 0) whole.metadata = shard->metadata;
  }
  for (const auto &pair : index->metadata())
    if (!is_total(pair.key)) whole.metadata[pair.key] = pair.text;
  return whole;
}

struct ShardTrials final : DeltaTrials {
  SimDisk fresh;

  explicit ShardTrials(const ShardsCase &c) {
    name = text("patching shards by a delta, ", c.name);
    base_path = index_path;
    before = old_model(c);
    after = new_model(c);
    if (small_bound()) all_of = 2, samples = 4;
    fresh = make(c);
  }
  SimEnv fresh_disk() const override { return SimEnv(fresh); }
  std::string recover(SimEnv &env) const override {
    if (!found(env)) return "before recovery a tensor is not where the index has it";
    auto recovered = store::recover_all(env, index_path, {}, {});
    if (!recovered) return recovered.error().message;
    return recovered->aside > 0 ? "moved aside: " + recovered->why_aside : "";
  }
  std::optional<Model> found(const SimEnv &env) const override { return follow_index(env); }

 private:
  SimDisk make(const ShardsCase &c) const {
    const Model *shards = shards_of(c);
    uint64_t total = 0;
    SimEnv env = empty_disk({"", false, true});
    ShardIndex index = ShardIndex::of(shard_names, 0);
    for (size_t i = 0; i < shard_names.size(); ++i) {
      env.add_file(folder + "/" + shard_names[i], file_of(shards[i]));
      for (const auto &[tensor, t] : shards[i].tensors) {
        index.assign(tensor, shard_names[i]);
        total += t.bytes.size();
      }
    }
    index.set_metadata("origin", "here");
    index.set_total(total_size_key, total);
    env.add_file(index_path, index.spell());
    SimEnv making(env.disk());
    making.add_file(other_path, file_of(after));
    EXPECT_TRUE(store::diff(making, index_path, other_path, delta_path, {}));
    env.add_file(delta_path, making.contents(delta_path));
    const bool holds_steps = making.contents(delta_path).find("\"st.delta.version\":\"2\"") != std::string::npos;
    EXPECT_EQ(holds_steps, c.elements);
    env.add_file(reverse_path, stale);
    return env.disk();
  }
};

class PatchingShardsByDelta : public ::testing::TestWithParam<ShardsCase> {};

TEST_P(PatchingShardsByDelta, LeavesAllOldOrAllNewAndAWayBackAtEveryCut) {
  const ShardTrials trials(GetParam());
  SimEnv env = trials.fresh_disk();
  trials.cut_everywhere(env);
}

TEST_P(PatchingShardsByDelta, LeavesAllOldOrAllNewAndAWayBackWhenAnyCallFails) {
  ShardTrials(GetParam()).fail_every_call();
}

INSTANTIATE_TEST_SUITE_P(EveryWay, PatchingShardsByDelta, ::testing::ValuesIn(shards_cases), [](const auto &info) {
  std::string name;
  for (char ch : info.param.name) name += std::isalnum(static_cast<unsigned char>(ch)) ? ch : '_';
  return name;
});

}  // namespace
}  // namespace st::testing
