// A delta applied on a simulated disk: a cut or a failing call at any point leaves
// the base as it was or as it is to be, and whenever it is changed the delta
// that leads back is there, whole, and does.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <random>
#include <unordered_set>

#include "fault_env.h"
#include "layout_workload.h"
#include "store/delta_patch.h"
#include "store/diff.h"
#include "write/replacement.h"

namespace st::testing {
namespace {

const std::string base_path = layout_path, other_path = "/models/other.safetensors",
                  delta_path = "/models/d.safetensors", reverse_path = "/models/r.safetensors";

struct Case {
  std::string_view name;
  bool publishes, reflinks, reverse_exists;
};
constexpr Case cases[] = {
    {"in place, redo journal", false, false, false},
    {"in place, undo journal", false, true, true},
    {"published, copied", true, false, true},
    {"published, blocks shared", true, true, false},
};

std::string fill(size_t n, int seed) {
  std::string bytes(n, '\0');
  for (size_t i = 0; i < n; ++i)
    bytes[i] = static_cast<char>(seed * 41 + static_cast<int>(i / 64) * 3 + static_cast<int>(i));
  return bytes;
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

Model changed(const Case &c) {
  Model model = first_model();
  model.tensors["b"].bytes = fill(8192, 1);
  model.tensors["d"].bytes = fill(9000, 2);
  if (!c.publishes) return model;
  model.tensors.erase("a");
  model.tensors["c"] = {Dtype::F16, {100}, fill(200, 3)};
  model.tensors["new"] = {Dtype::U8, {300}, fill(300, 4)};
  model.metadata["k"] = "w";
  return model;
}

const std::string stale = "an old file where the reverse delta is to be";

// The base and the delta, durable.
SimEnv fresh_disk(const Case &c) {
  SimEnv making = layout_disk({"", false, false});
  making.add_file(other_path, file_of(changed(c)));
  EXPECT_TRUE(store::diff(making, base_path, other_path, delta_path, {}));
  SimEnv env = layout_disk({"", c.reflinks && c.publishes, true});
  env.allow_reflinks(c.reflinks && !c.publishes);
  env.add_file(delta_path, making.contents(delta_path));
  if (c.reverse_exists) env.add_file(reverse_path, stale);
  return env;
}

Result<store::DeltaPatched> apply(os::Env &env, const std::string &delta, const std::string &reverse) {
  store::DeltaPatchOptions options;
  options.reverse = reverse;
  options.lock_timeout_ms = 50;
  return store::patch(env, base_path, delta, options);
}

// Recovers, and says what is wrong: with the base, which must be one of the two;
// with the delta that leads back, which must be there if it is the new one.
std::string wrong_with(const SimDisk &disk, const Case &c, bool may_be_old, bool may_be_new) {
  SimEnv env(disk);
  store::OpenOptions writable;
  writable.writable = true;
  {
    auto opened = store::Checkpoint::open(env, base_path, writable);
    if (!opened) return opened.error().message;
  }
  // POSIX lets a cut keep both names of a rename, and then the base has a second one.
  write::Replacement::remove_stale(env, base_path);
  const auto found = model_of(env.contents(base_path));
  const Model before = first_model(), after = changed(c);
  if (!found) return "no reader would take the base";
  const bool is_new = *found == after;
  if (!(may_be_old && *found == before) && !(may_be_new && is_new)) return "the base is neither old nor new";
  const bool reverse_is_there = env.exists(reverse_path) && env.contents(reverse_path) != stale;
  if (!is_new) {
    if (!reverse_is_there) return {};
    auto back = apply(env, reverse_path, "");
    if (back || back.error().status != Status::delta_base)
      return "the way back is not refused, or is no delta: " + (back ? "ok" : back.error().message);
    return {};
  }
  if (!reverse_is_there) return "the base is changed, but there is no way back";
  if (auto back = apply(env, reverse_path, ""); !back) return "the way back fails: " + back.error().message;
  const auto again = model_of(env.contents(base_path));
  if (!again || *again != before) return "the way back leads elsewhere";
  if (auto forth = apply(env, delta_path, ""); !forth)
    return "the delta cannot be applied again: " + forth.error().message;
  return {};
}

class PatchingByDelta : public ::testing::TestWithParam<Case> {};

TEST_P(PatchingByDelta, LeavesOldOrNewAndAWayBackAtEveryCut) {
  const Case &c = GetParam();
  std::mt19937 random(3);
  std::unordered_set<uint64_t> seen;
  size_t points = 0, with_new = 0;
  auto cut = [&](const SimDisk &disk, bool may_be_old) {
    const auto changes = pending_changes(disk);
    const bool all = changes.size() <= 5;
    for (uint32_t i = 0; i < (all ? 1u << changes.size() : 32u); ++i) {
      std::vector<uint32_t> keep(changes.size());
      for (size_t k = 0; k < keep.size(); ++k)
        keep[k] = all ? i >> k & 1 : static_cast<uint32_t>(random() % 3) * static_cast<uint32_t>(1 + random() % 50);
      const SimDisk left = after_cut(disk, changes, keep);
      if (!seen.insert(fingerprint(left) * 2 + may_be_old).second) continue;
      ++points;
      if (model_of(SimEnv(left).contents(base_path)) == changed(c)) ++with_new;
      ASSERT_EQ(wrong_with(left, c, may_be_old, true), "");
    }
  };
  SimEnv env = fresh_disk(c);
  const SimDisk before = env.disk();
  env.before_change = [&] {
    if (!::testing::Test::HasFatalFailure()) cut(env.disk(), true);
  };
  ASSERT_TRUE(apply(env, delta_path, reverse_path));
  env.before_change = nullptr;
  cut(env.disk(), false);
  EXPECT_GT(with_new, 0u);
  EXPECT_EQ(c.reflinks && !c.publishes, env.clones() > 0 && !c.publishes);
  std::printf("patching by a delta, %.*s: %zu distinct disks after a cut\n", static_cast<int>(c.name.size()),
              c.name.data(), points);
}

TEST_P(PatchingByDelta, LeavesOldOrNewAndAWayBackWhenAnyCallFails) {
  const Case &c = GetParam();
  size_t trials = 0;
  for (const int error : {-EIO, -ENOSPC})
    for (size_t n = 0;; ++n, ++trials) {
      SimEnv disk = fresh_disk(c);
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
  std::printf("patching by a delta, %.*s: %zu trials of failing calls\n", static_cast<int>(c.name.size()),
              c.name.data(), trials);
}

INSTANTIATE_TEST_SUITE_P(EveryWay, PatchingByDelta, ::testing::ValuesIn(cases), [](const auto &info) {
  std::string name;
  for (char ch : info.param.name) name += std::isalnum(static_cast<unsigned char>(ch)) ? ch : '_';
  return name;
});

}  // namespace
}  // namespace st::testing
