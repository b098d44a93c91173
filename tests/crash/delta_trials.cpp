#include "delta_trials.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>

#include "bound.h"
#include "cuts.h"
#include "engine/deltas.h"
#include "failing_call.h"

namespace st::testing {
namespace {

Result<store::DeltaPatched> apply(os::Env &env, const std::string &base, const std::string &delta,
                                  const std::string &reverse, bool later = false) {
  store::DeltaPatchOptions options;
  options.journal_only = later;
  options.reverse = reverse;
  options.lock_timeout_ms = 50;
  return store::patch(env, base, delta, options);
}

}  // namespace

// Recovers, and says what is wrong: with the base, which must be one of the two;
// with the delta that leads back, which must be there if it is the new one.
std::string DeltaTrials::wrong_with(const SimDisk &disk, bool may_be_old, bool may_be_new) const {
  SimEnv env(disk);
  if (std::string wrong = recover(env); !wrong.empty()) return wrong;
  const auto now = found(env);
  if (!now) return "no reader would take the base";
  const bool is_new = *now == after;
  if (!(may_be_old && *now == before) && !(may_be_new && is_new)) return "the base is neither old nor new";
  const bool reverse_is_there = env.exists(reverse_path) && env.contents(reverse_path) != stale;
  if (!is_new) {
    if (!reverse_is_there) return {};
    auto back = apply(env, base_path, reverse_path, "");
    if (back || back.error().status != Status::delta_base)
      return "the way back is not refused, or is no delta: " + (back ? "ok" : back.error().message);
    return {};
  }
  if (!reverse_is_there) return "the base is changed, but there is no way back";
  if (auto back = apply(env, base_path, reverse_path, ""); !back) return "the way back fails: " + back.error().message;
  if (found(env) != before) return "the way back leads elsewhere";
  if (auto forth = apply(env, base_path, delta_path, ""); !forth)
    return "the delta cannot be applied again: " + forth.error().message;
  return found(env) == after ? "" : "applied again the delta leads elsewhere";
}

void DeltaTrials::cut_everywhere(SimEnv &env) const {
  Cuts cuts(all_of, samples);
  size_t points = 0, with_new = 0;
  auto cut = [&](const SimDisk &disk, bool may_be_old) {
    for (const SimDisk &left : cuts.of(disk, may_be_old)) {
      ++points;
      if (found(SimEnv(left)) == after) ++with_new;
      ASSERT_EQ(wrong_with(left, may_be_old, true), "");
    }
  };
  env.before_change = [&] {
    if (!::testing::Test::HasFatalFailure()) cut(env.disk(), true);
  };
  ASSERT_TRUE(apply(env, base_path, delta_path, reverse_path, later));
  env.before_change = nullptr;
  cut(env.disk(), false);
  EXPECT_GT(with_new, 0u);
  std::printf("%s: %zu distinct disks after a cut\n", name.c_str(), points);
  EXPECT_GT(points, 38u);
}

void DeltaTrials::fail_every_call() const {
  size_t trials = 0;
  EveryNth call(7, 3);
  for (const int error : {-EIO, -ENOSPC})
    for (size_t n = call.first();; n += call.step, ++trials) {
      SimEnv disk = fresh_disk();
      FaultEnv env(disk);
      FailingCall failing(env, disk, n, {error});
      auto answer = apply(env, base_path, delta_path, reverse_path, later);
      failing.end();
      const bool open = !answer && answer.error().status == Status::needs_recovery;
      const std::string where =
          text(name, ", call ", n, ", errno ", -error, ": ", answer ? "ok" : answer.error().message);
      EXPECT_EQ(disk.open_files(), 0u) << where;
      ASSERT_EQ(wrong_with(disk.disk(), !answer, answer || open), "") << where;
      for (const bool keep : {false, true})
        ASSERT_EQ(wrong_with(after_cut(disk.disk(), keep), !answer, answer || open), "")
            << where << ", then a cut keeping " << keep;
      if (!failing.hit()) break;
    }
  std::printf("%s: %zu trials of failing calls\n", name.c_str(), trials);
  EXPECT_GT(trials, bounded(22, 50, 150));
}

}  // namespace st::testing
