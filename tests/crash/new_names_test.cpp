// Transactions on shards under new names, on a simulated disk: the power cut before every change of it and after every
// acknowledgement, and every system call made to fail. On every disk, before recovery and after, a reader of the index
// sees all of the old state or all of the new, bytes included. A reader that has read the old index before still
// finds all of the old state, until st_recover.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "bound.h"
#include "cuts.h"
#include "engine/recover_all.h"
#include "failing_call.h"
#include "shards/shards.h"
#include "shards_workload.h"

namespace st::testing {
namespace {

std::unique_ptr<store::Shards> open_new(os::Env &env) {
  auto opened = store::Shards::open(env, index_path, {.writable = true, .lock_timeout_ms = 50});
  EXPECT_TRUE(opened) << opened.error().message;
  return opened ? std::move(*opened) : nullptr;
}

// Those that change the layout: what is patched in place gets no new name.
std::vector<const ShardOperation *> renaming() {
  std::vector<const ShardOperation *> all;
  for (const ShardOperation &operation : shard_operations())
    if (!operation.name.starts_with("updates")) all.push_back(&operation);
  return all;
}

// What was before the change and is after it, and the index that was.
struct Change {
  Model old, fresh;
  std::string old_index;
};

// "old" or "new", or what is wrong.
std::string seen_by_all(const SimEnv &env, const Change &change) {
  const Seen before = follow_index(env, change.old_index);
  if (!before.wrong.empty()) return "by the old index: " + before.wrong;
  if (before.whole.tensors != change.old.tensors) return "by the old index: other bytes";
  const Seen now = follow_index(env);
  if (!now.wrong.empty()) return now.wrong;
  return now.whole == change.old ? "old" : now.whole == change.fresh ? "new" : "neither old nor new";
}

// What follows the index, and that nothing else lies there. A cut may bring back temporaries and empty journals, which
// are removed again.
std::string seen_alone(SimEnv &env, const Change &change, bool after_a_cut = false) {
  if (const std::string wrong = check_strictly(env); !wrong.empty()) return wrong;
  auto read = store::Shards::read_index(*os::Location::find(env, index_path), {});
  if (!read) return read.error().message;
  std::vector<std::string> wanted = read->index().shards();
  wanted.push_back(index_path.substr(shards_folder.size() + 1));
  for (const std::string &name : env.names(shards_folder))
    if (std::find(wanted.begin(), wanted.end(), name) == wanted.end() &&
        !(after_a_cut && (name.starts_with(".") || name.ends_with(".st-journal"))))
      return "rubbish is left: " + name;
  if (env.open_files() != 0) return "descriptors are left open";
  const Seen now = follow_index(env);
  if (!now.wrong.empty()) return now.wrong;
  return now.whole == change.old ? "old" : now.whole == change.fresh ? "new" : "neither old nor new";
}

size_t disks_seen = 0;

// Before recovery, when a handle was opened, and after st_recover: the same each time.
std::string judged(const SimDisk &disk, const Change &change) {
  ++disks_seen;
  SimEnv env(disk);
  const std::string crashed = seen_by_all(env, change);
  if (crashed != "old" && crashed != "new") return "before recovery: " + crashed;
  {
    auto opened = store::Shards::open(env, index_path, {.writable = true});
    if (!opened) return "does not open: " + opened.error().message;
    for (size_t i = 0; i < (*opened)->catalogue().members(); ++i)
      if (auto member = (*opened)->catalogue().member(i); !member) return "does not open: " + member.error().message;
  }
  if (const std::string opened = seen_by_all(env, change); opened != crashed) return "opened: " + opened;
  auto recovered = store::recover_all(env, index_path, {}, {});
  if (!recovered) return "does not recover: " + recovered.error().message;
  if (recovered->aside > 0) return "moved aside: " + recovered->why_aside;
  // The shards that this removed do not come back, nor does the index that named them.
  for (const bool keep : {false, true}) {
    SimEnv cut(after_cut(env.disk(), keep));
    if (const std::string alone = seen_alone(cut, change, true); alone != crashed)
      return "recovered, then a cut keeping " + std::to_string(keep) + ": " + alone;
  }
  const std::string alone = seen_alone(env, change);
  return alone == crashed ? crashed : "recovered: " + alone;
}

TEST(NewNamesCuts, EveryCutShowsAllOldOrAllNewAndKeepsWhatTheOldIndexNames) {
  for (const Disk &kind : {disks[0], disks[2]})
    for (const ShardOperation *operation : renaming()) {
      SimEnv env = shards_disk(kind);
      Change change{first_whole(), first_whole(), env.contents(index_path)};
      auto shards = open_new(env);
      ASSERT_TRUE(shards);
      Result<void> done;
      const auto moments = moments_of(env, [&] { done = run(*shards, *operation, change.fresh, true); });
      const std::string where = text(operation->name, ", ", kind.name);
      ASSERT_TRUE(done) << where << ": " << done.error().message;
      Cuts cuts(7, static_cast<uint32_t>(bounded(12, 24, 96)));
      for (size_t m = 0; m < moments.size(); ++m)
        for (const SimDisk &left : cuts.of(moments[m], false)) {
          const std::string found = judged(left, change);
          ASSERT_TRUE(found == "old" || found == "new") << where << ", moment " << m << ": " << found;
        }
      for (const bool close : {false, true}) {
        if (close) shards.reset();
        for (const SimDisk &left : cuts.of(env.disk(), true))
          ASSERT_EQ(judged(left, change), "new") << where << ", acknowledged" << (close ? ", closed" : "");
      }
    }
  std::printf("transactions under new names: %zu distinct disks after a cut\n", disks_seen);
  EXPECT_GT(disks_seen, bounded(1'000, 1'500, 1'500));
}

// A writer dies at any step, and loses nothing of what it has written. Another one commits, and then the power may
// fail: what was acknowledged is there, what the dead one wrote is there whole or not at all, and all that nobody names
// goes.
TEST(NewNamesCuts, WhoComesAfterADyingWriterKeepsNothingOfItOrAll) {
  const ShardOperation second{"after it", stage::put("d", u8(33, 50))};
  size_t after = 0;
  for (const ShardOperation *operation : renaming()) {
    SimEnv env = shards_disk(disks[0]);
    const Model first = first_whole();
    Model changed = first;
    const std::string first_index = env.contents(index_path);
    auto shards = open_new(env);
    const auto deaths = moments_of(env, [&] { ASSERT_TRUE(run(*shards, *operation, changed, true)); });
    for (const SimDisk &death : deaths) {
      SimEnv left(death);
      const Seen met = follow_index(left);
      ASSERT_EQ(met.wrong, "");
      Change change{met.whole, met.whole, left.contents(index_path)};
      ASSERT_TRUE(met.whole == first || met.whole == changed);
      std::unique_ptr<store::Shards> next = open_new(left);
      ASSERT_TRUE(next);
      Result<void> done;
      const auto moments = moments_of(left, [&] { done = run(*next, second, change.fresh, true); });
      ASSERT_TRUE(done) << done.error().message;
      next.reset();
      Cuts cuts(3, static_cast<uint32_t>(bounded(1, 2, 4)));
      for (const SimDisk &moment : moments)
        for (const SimDisk &disk : cuts.of(moment, false)) {
          ++after;
          // The index of the dead one may be lost with the cut, and then the one before it is the one that is read.
          const bool lost = SimEnv(disk).contents(index_path) == first_index && change.old_index != first_index;
          const std::string found = judged(disk, lost ? Change{first, first, first_index} : change);
          ASSERT_TRUE(found == "old" || found == "new") << operation->name << ": " << found;
        }
      for (const SimDisk &disk : cuts.of(left.disk(), true)) ASSERT_EQ(judged(disk, change), "new") << operation->name;
    }
  }
  std::printf("commits under new names after a dying writer: %zu disks\n", after);
  EXPECT_GT(after, bounded(2'000, 3'200, 3'200));
}

// The rename of the index may not be durable yet when its writer dies; the next writer makes it so.
TEST(NewNamesCuts, APatchOfWhatADyingWriterMadeIsNotLost) {
  size_t patches = 0;
  for (const ShardOperation *operation : renaming()) {
    SimEnv env = shards_disk(disks[0]);
    Model changed = first_whole();
    auto shards = open_new(env);
    const auto deaths = moments_of(env, [&] { ASSERT_TRUE(run(*shards, *operation, changed, true)); });
    for (const SimDisk &death : deaths) {
      const Model met = follow_index(SimEnv(death)).whole;
      for (const auto &[name, tensor] : met.tensors) {
        SimEnv left(death);
        Model fresh = met;
        auto next = open_new(left);
        ASSERT_TRUE(next);
        const std::string bytes = fill(tensor.bytes.size(), 60);
        auto begun = next->begin({});
        ASSERT_TRUE(begun);
        ASSERT_TRUE(
            (*begun)->update(name, {static_cast<uint32_t>(tensor.dtype), tensor.shape, bytes.data(), bytes.size()}));
        const auto done = (*begun)->commit();
        ASSERT_TRUE(done) << done.error().message;
        fresh.tensors[name].bytes = bytes;
        begun->reset();
        next.reset();
        ++patches;
        for (const bool keep : {false, true}) {
          SimEnv cut(after_cut(left.disk(), keep));
          ASSERT_TRUE(store::recover_all(cut, index_path, {}, {}));
          const Seen now = follow_index(cut);
          // The index of the dead one may be lost, if what was patched is the same by both.
          ASSERT_TRUE(now.whole.tensors.contains(name)) << operation->name << ", " << name << ": " << now.wrong;
          ASSERT_EQ(now.whole.tensors.at(name).bytes, bytes) << operation->name << ", " << name;
        }
      }
    }
  }
  std::printf("patches after a dying writer under new names: %zu\n", patches);
  EXPECT_GT(patches, 500u);
}

TEST(NewNamesCuts, EveryCutOfARecoveryLeavesItToTheNext) {
  size_t recoveries = 0;
  for (const ShardOperation *operation : renaming()) {
    SimEnv env = shards_disk(disks[0]);
    Change change{first_whole(), first_whole(), env.contents(index_path)};
    auto shards = open_new(env);
    auto moments = moments_of(env, [&] { ASSERT_TRUE(run(*shards, *operation, change.fresh, true)); });
    moments.push_back(env.disk());
    for (const SimDisk &moment : moments) {
      SimEnv crashed(moment);  // with all that is pending
      const std::string was = seen_by_all(crashed, change);
      const auto inner =
          moments_of(crashed, [&] { static_cast<void>(store::recover_all(crashed, index_path, {}, {})); });
      Cuts cuts(5, 12);
      for (const SimDisk &m : inner)
        for (const SimDisk &disk : cuts.of(m, false)) {
          ++recoveries;
          SimEnv again(disk);
          auto recovered = store::recover_all(again, index_path, {}, {});
          ASSERT_TRUE(recovered) << recovered.error().message;
          const std::string found = seen_alone(again, change);
          ASSERT_TRUE(found == "old" || found == "new") << operation->name << ", " << was << ": " << found;
        }
    }
  }
  std::printf("recoveries of new names that were cut: %zu\n", recoveries);
  EXPECT_GT(recoveries, 3'400u);
}

TEST(NewNamesFaults, EveryFailingCallFailsCleanly) {
  size_t trials = 0;
  EveryNth call(7, 3);
  for (const size_t chosen : {size_t{0}, size_t{4}, size_t{6}})
    for (const Fault &fault : {Fault{-EIO, false}, {-EIO, true}, {-ENOSPC, false}, {FaultEnv::short_io, false}})
      for (size_t n = call.first();; n += call.step, ++trials) {
        const ShardOperation &operation = *renaming()[chosen];
        SimEnv disk = shards_disk(disks[0]);
        Change change{first_whole(), first_whole(), disk.contents(index_path)};
        {
          SimEnv other = shards_disk(disks[0]);
          auto whole = open_new(other);
          ASSERT_TRUE(run(*whole, operation, change.fresh, true));
        }
        FaultEnv env(disk);
        auto shards = open_new(env);
        ASSERT_TRUE(shards);
        FailingCall failing(env, disk, n, fault);
        Model staged = change.old;
        const auto answer = run(*shards, operation, staged, true);
        failing.end();
        const std::string where = text(operation.name, ", call ", n, ", errno ", -fault.error,
                                       fault.sticky ? " for good: " : ": ", answer ? "ok" : answer.error().message);
        const bool open_outcome = !answer && answer.error().status == Status::needs_recovery;
        if (!answer) {
          EXPECT_NE(answer.error().status, Status::internal) << where;
          EXPECT_NE(answer.error().message, "") << where;
          if (!open_outcome) {
            EXPECT_EQ(seen_by_all(disk, change), "old") << where;
          }
        }
        const SimDisk crashed = disk.disk();
        shards.reset();
        EXPECT_EQ(disk.open_files(), 0u) << where;
        for (const bool keep : {false, true}) {
          const std::string found = judged(after_cut(crashed, keep), change);
          EXPECT_TRUE(answer         ? found == "new"
                      : open_outcome ? found == "old" || found == "new"
                                     : found == "old")
              << where << ", then a cut keeping " << keep << ": " << found;
        }
        if (!failing.hit() || HasFailure()) break;
      }
  std::printf("failing calls of transactions under new names: %zu trials\n", trials);
  EXPECT_GT(trials, bounded(220, 500, 1'600));
}

TEST(NewNamesFaults, EveryFailingCallOfARecoveryLeavesItToTheNext) {
  size_t trials = 0;
  EveryNth call(7, 3);
  const ShardOperation &operation = *renaming()[6];
  SimEnv env = shards_disk(disks[0]);
  Change change{first_whole(), first_whole(), env.contents(index_path)};
  auto shards = open_new(env);
  ASSERT_TRUE(shards);
  auto moments = moments_of(env, [&] { ASSERT_TRUE(run(*shards, operation, change.fresh, true)); });
  moments.push_back(env.disk());
  for (const SimDisk &moment : moments)
    for (const int error : {-EIO, -EACCES})
      for (size_t n = call.first();; n += call.step, ++trials) {
        SimEnv disk(moment);
        FaultEnv faulty(disk);
        FailingCall failing(faulty, disk, n, {error, false});
        const auto answer = store::recover_all(faulty, index_path, {}, {});
        failing.end();
        const std::string where = text("call ", n, ", ", answer ? "ok" : answer.error().message);
        if (!answer) {
          EXPECT_NE(answer.error().status, Status::internal) << where;
        }
        EXPECT_EQ(disk.open_files(), 0u) << where;
        for (const bool keep : {false, true}) {
          SimEnv again(after_cut(disk.disk(), keep));
          auto recovered = store::recover_all(again, index_path, {}, {});
          ASSERT_TRUE(recovered) << where << ": " << recovered.error().message;
          const std::string found = seen_alone(again, change);
          EXPECT_TRUE(found == "old" || found == "new") << where << ", then a cut keeping " << keep << ": " << found;
        }
        if (!failing.hit() || HasFailure()) break;
      }
  std::printf("failing calls of recoveries of new names: %zu trials\n", trials);
  EXPECT_GT(trials, bounded(880, 2'000, 6'000));
}

}  // namespace
}  // namespace st::testing
