// A delta applied to shards on a simulated disk: a cut or a failing call at any
// point leaves all of them as they were or all as they are to be, and whenever they
// are changed the delta that leads back is there, whole, and does.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <random>
#include <unordered_set>

#include "bound.h"
#include "fault_env.h"
#include "format/shard_index.h"
#include "layout_workload.h"
#include "store/delta_patch.h"
#include "store/diff.h"
#include "store/recover_all.h"

namespace st::testing {
namespace {

const std::string folder = "/models", index_path = folder + "/m.safetensors.index.json",
                  other_path = folder + "/other.safetensors", delta_path = folder + "/d.safetensors",
                  reverse_path = folder + "/r.safetensors";
const std::vector<std::string> shard_names = {"m-1.safetensors", "m-2.safetensors"};
const std::string stale = "an old file where the reverse delta is to be";

struct Case {
  std::string_view name;
  bool publishes;
};
constexpr Case cases[] = {{"in place", false}, {"published", true}};

ModelTensor u8(size_t n, int seed) {
  std::string bytes(n, '\0');
  for (size_t i = 0; i < n; ++i)
    bytes[i] = static_cast<char>(seed * 43 + static_cast<int>(i / 64) * 3 + static_cast<int>(i));
  return {Dtype::U8, {n}, bytes};
}

std::string file_of(const Model &model) {
  std::vector<HeaderTensor> tensors;
  std::string data;
  for (const auto &[name, t] : model.tensors) {
    tensors.push_back({name, t.dtype, t.shape, data.size(), t.bytes.size()});
    data += t.bytes;
  }
  const std::vector<std::pair<std::string_view, std::string_view>> pairs(model.metadata.begin(), model.metadata.end());
  return *serialise_header(tensors, pairs) + data;
}

// The shards, and what they are as one.
const Model shards[] = {{{{"a", u8(700, 1)}, {"b", u8(300, 2)}}, {{"format", "pt"}}},
                        {{{"c", u8(600, 3)}, {"d", u8(520, 4)}}, {}}};
Model before() {
  Model whole = shards[0];
  whole.tensors.insert(shards[1].tensors.begin(), shards[1].tensors.end());
  whole.metadata["origin"] = "here";
  return whole;
}
Model after(const Case &c) {
  Model whole = before();
  whole.tensors["a"] = u8(700, 11);
  whole.tensors["c"] = u8(600, 13);
  if (!c.publishes) return whole;
  whole.tensors.erase("b");
  whole.tensors["d"] = {Dtype::F16, {100}, u8(200, 14).bytes};
  whole.tensors["new"] = u8(90, 15);
  whole.metadata = {{"origin", "there"}};
  return whole;
}

// The shards and the delta, durable.
SimEnv fresh_disk(const Case &c) {
  SimEnv env;
  env.copies_ranges = true;
  env.mkdirat(AT_FDCWD, folder.c_str(), 0755);
  const int root = env.openat(AT_FDCWD, "/", O_RDONLY, 0);
  env.fsync(root);
  env.close(root);
  ShardIndex index = ShardIndex::of(shard_names);
  for (size_t i = 0; i < std::size(shards); ++i) {
    env.add_file(folder + "/" + shard_names[i], file_of(shards[i]));
    for (const auto &[name, t] : shards[i].tensors) index.assign(name, shard_names[i]);
  }
  index.set_metadata("origin", "here");
  index.set_total_size(700 + 300 + 600 + 520);
  env.add_file(index_path, index.spell());
  SimEnv making(env.disk());
  making.add_file(other_path, file_of(after(c)));
  EXPECT_TRUE(store::diff(making, index_path, other_path, delta_path, {}));
  env.add_file(delta_path, making.contents(delta_path));
  env.add_file(reverse_path, stale);
  return env;
}

Result<store::DeltaPatched> apply(os::Env &env, const std::string &delta, const std::string &reverse) {
  store::DeltaPatchOptions options;
  options.reverse = reverse;
  options.lock_timeout_ms = 50;
  return store::patch(env, index_path, delta, options);
}

// As a reader without libst finds it, who follows the index.
std::optional<Model> follow_index(const SimEnv &env) {
  std::string json = env.contents(index_path);
  const size_t n = json.size();
  json.resize(n + header_padding);
  auto index = ShardIndex::parse(json.data(), n, 1);
  if (!index) return std::nullopt;
  Model whole;
  for (uint32_t i = 0; i < index->shards().size(); ++i) {
    const auto shard = model_of(env.contents(folder + "/" + index->shards()[i]));
    if (!shard) return std::nullopt;
    for (const std::string_view name : index->names_in(i)) {
      const auto found = shard->tensors.find(std::string(name));
      if (found == shard->tensors.end()) return std::nullopt;
      whole.tensors.insert(*found);
    }
    if (i == 0) whole.metadata = shard->metadata;
  }
  for (const auto &pair : index->metadata())
    if (pair.key != total_size_key) whole.metadata[pair.key] = pair.text;
  return whole;
}

// Recovers, and says what is wrong: with the shards, which must all be old or all new;
// with the delta that leads back, which must be there if they are new.
std::string wrong_with(const SimDisk &disk, const Case &c, bool may_be_old, bool may_be_new) {
  SimEnv env(disk);
  if (!follow_index(env)) return "before recovery a tensor is not where the index has it";
  auto recovered = store::recover_all(env, index_path, {}, {});
  if (!recovered) return recovered.error().message;
  if (recovered->aside > 0) return "moved aside: " + recovered->why_aside;
  const auto found = follow_index(env);
  if (!found) return "no reader would take the shards";
  const bool is_new = *found == after(c);
  if (!(may_be_old && *found == before()) && !(may_be_new && is_new)) return "the shards are neither old nor new";
  const bool reverse_is_there = env.contents(reverse_path) != stale;
  if (!is_new) {
    if (!reverse_is_there) return {};
    auto back = apply(env, reverse_path, "");
    if (back || back.error().status != Status::delta_base)
      return "the way back is not refused, or is no delta: " + (back ? "ok" : back.error().message);
    return {};
  }
  if (!reverse_is_there) return "the shards are changed, but there is no way back";
  if (auto back = apply(env, reverse_path, ""); !back) return "the way back fails: " + back.error().message;
  if (follow_index(env) != before()) return "the way back leads elsewhere";
  if (auto forth = apply(env, delta_path, ""); !forth)
    return "the delta cannot be applied again: " + forth.error().message;
  return follow_index(env) == after(c) ? "" : "applied again the delta leads elsewhere";
}

class PatchingShardsByDelta : public ::testing::TestWithParam<Case> {};

TEST_P(PatchingShardsByDelta, LeavesAllOldOrAllNewAndAWayBackAtEveryCut) {
  const Case &c = GetParam();
  std::mt19937 random(3);
  std::unordered_set<uint64_t> seen;
  size_t points = 0, with_new = 0;
  auto cut = [&](const SimDisk &disk, bool may_be_old) {
    const auto changes = pending_changes(disk);
    const bool all = changes.size() <= (small_bound() ? 2 : 5);
    for (uint32_t i = 0; i < (all ? 1u << changes.size() : small_bound() ? 4u : 32u); ++i) {
      std::vector<uint32_t> keep(changes.size());
      for (size_t k = 0; k < keep.size(); ++k)
        keep[k] = all ? i >> k & 1 : static_cast<uint32_t>(random() % 3) * static_cast<uint32_t>(1 + random() % 50);
      const SimDisk left = after_cut(disk, changes, keep);
      if (!seen.insert(fingerprint(left) * 2 + may_be_old).second) continue;
      ++points;
      if (follow_index(SimEnv(left)) == after(c)) ++with_new;
      ASSERT_EQ(wrong_with(left, c, may_be_old, true), "");
    }
  };
  SimEnv env = fresh_disk(c);
  env.before_change = [&] {
    if (!::testing::Test::HasFatalFailure()) cut(env.disk(), true);
  };
  ASSERT_TRUE(apply(env, delta_path, reverse_path));
  env.before_change = nullptr;
  cut(env.disk(), false);
  EXPECT_GT(with_new, 0u);
  std::printf("patching shards by a delta, %.*s: %zu distinct disks after a cut\n", static_cast<int>(c.name.size()),
              c.name.data(), points);
}

TEST_P(PatchingShardsByDelta, LeavesAllOldOrAllNewAndAWayBackWhenAnyCallFails) {
  const Case &c = GetParam();
  const SimDisk fresh = fresh_disk(c).disk();
  size_t trials = 0;
  const size_t step = small_bound() ? 7 : 1;
  for (const int error : {-EIO, -ENOSPC})
    for (size_t n = 0;; n += step, ++trials) {
      SimEnv disk(fresh);
      FaultEnv env(disk);
      size_t calls = 0;
      bool hit = false;
      env.before = [&](Call call) {
        if (!can_fail(call) || calls++ != n) return 0;
        hit = true;
        if (call == Call::fsync || call == Call::fdatasync) {
          disk.sync_fault = [&disk, error] { return disk.sync_fault = nullptr, error; };
          return 0;
        }
        return error;
      };
      auto answer = apply(env, delta_path, reverse_path);
      env.before = nullptr;
      disk.sync_fault = nullptr;
      const bool open = !answer && answer.error().status == Status::needs_recovery;
      const std::string where =
          text(c.name, ", call ", n, ", errno ", -error, ": ", answer ? "ok" : answer.error().message);
      EXPECT_EQ(disk.open_files(), 0u) << where;
      ASSERT_EQ(wrong_with(disk.disk(), c, !answer, answer || open), "") << where;
      const auto changes = pending_changes(disk.disk());
      for (uint32_t keep : {0u, 1u})
        ASSERT_EQ(wrong_with(after_cut(disk.disk(), changes, std::vector<uint32_t>(changes.size(), keep)), c, !answer,
                             answer || open),
                  "")
            << where << ", then a cut keeping " << keep;
      if (!hit) break;
    }
  std::printf("patching shards by a delta, %.*s: %zu trials of failing calls\n", static_cast<int>(c.name.size()),
              c.name.data(), trials);
}

INSTANTIATE_TEST_SUITE_P(EveryWay, PatchingShardsByDelta, ::testing::ValuesIn(cases), [](const auto &info) {
  std::string name;
  for (char ch : info.param.name) name += std::isalnum(static_cast<unsigned char>(ch)) ? ch : '_';
  return name;
});

}  // namespace
}  // namespace st::testing
