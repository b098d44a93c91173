// Transactions across shards on a simulated disk: the power cut before every
// change of it and after every acknowledgement, then recovered through the index,
// or by opening one shard alone; and every system call made to fail. On every
// disk, before recovery and after, each file parses, and a reader of the index
// finds each tensor in the shard that it names.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>

#include "bound.h"
#include "cuts.h"
#include "engine/recover_all.h"
#include "failing_call.h"
#include "file/transaction.h"
#include "journal/super_recover.h"
#include "shards/shards.h"
#include "shards_workload.h"

namespace st::testing {
namespace {

// Names only: bytes may be a mix of old and new, which a patch does not promise against.
std::string classify(const SimEnv &env, const Model &old, const Model &fresh) {
  const Seen seen = follow_index(env);
  if (!seen.wrong.empty()) return seen.wrong;
  if (seen.whole == old) return "old";
  if (seen.whole == fresh) return "new";
  return "mixed";
}

enum class By { index, one_shard, recover };

// Recovers a disk in one way or the other, and says what it then holds.
std::string after_recovery(const SimDisk &disk, const Model &old, const Model &fresh, By by, size_t shard) {
  SimEnv env(disk);
  if (by == By::index) {
    auto opened = store::Shards::open(env, index_path, {.writable = true});
    if (!opened) return "does not open: " + opened.error().message;
    for (size_t i = 0; i < (*opened)->catalogue().members(); ++i)
      if (auto member = (*opened)->catalogue().member(i); !member) return "does not open: " + member.error().message;
  } else if (by == By::one_shard) {
    auto opened = store::DataFile::open(env, shards_folder + "/" + shard_names[shard], {});
    if (!opened) return "does not open: " + opened.error().message;
    // What one shard decides must hold for all.
    opened->reset();
    const std::string alone = classify(env, old, fresh);
    auto rest = store::recover_all(env, index_path, {}, {});
    if (!rest) return "does not recover: " + rest.error().message;
    if (rest->aside > 0) return "moved aside: " + rest->why_aside;
    if (alone != "old" && alone != "new" && alone != "mixed") return alone;
  }
  auto rest = store::recover_all(env, index_path, {}, {});
  if (!rest) return "does not recover: " + rest.error().message;
  if (rest->aside > 0) return "moved aside: " + rest->why_aside;
  if (const std::string wrong = check_strictly(env); !wrong.empty()) return wrong;
  for (const std::string &name : env.names(shards_folder))
    if (name.starts_with(".") && name.find(".st-tmp-") == std::string::npos) return "rubbish is left: " + name;
  if (env.open_files() != 0) return "descriptors are left open";
  return classify(env, old, fresh);
}

std::unique_ptr<store::Shards> open_shards(os::Env &env) {
  store::OpenOptions options;
  options.writable = true;
  options.lock_timeout_ms = 50;
  auto opened = store::Shards::open(env, index_path, options);
  EXPECT_TRUE(opened) << opened.error().message;
  return opened ? std::move(*opened) : nullptr;
}

size_t states = 0;

// Where each is tried at many places: patches, files that gain and lose names, all at once, elements, and these beside
// a new file.
constexpr size_t chosen_operations[] = {0, 6, 8, 11, 12};

class Judge {
 public:
  void cut(const SimDisk &disk, const Model &old, const Model &fresh, bool acknowledged, const std::string &where) {
    if (::testing::Test::HasFailure()) return;
    for (const SimDisk &left : cuts_.of(disk, acknowledged)) {
      const std::string crashed = classify(SimEnv(left), old, fresh);
      const bool bearable = crashed == "old" || crashed == "new" || crashed == "mixed";
      ASSERT_TRUE(bearable) << where << ", before recovery: " << crashed;
      const size_t shard = states % 3;
      const By by = static_cast<By>(states / 3 % 3);
      ++states;
      const std::string recovered = after_recovery(left, old, fresh, by, shard);
      const std::string how = text(where, ", state ", states, ", recovered by ",
                                   by == By::index       ? "the index"
                                   : by == By::one_shard ? "shard " + shard_names[shard]
                                                         : "st_recover");
      if (acknowledged) {
        ASSERT_EQ(recovered, "new") << how;
      } else {
        ASSERT_TRUE(recovered == "old" || recovered == "new") << how << ": " << recovered;
      }
    }
  }

 private:
  Cuts cuts_{5, 24};
};

TEST(ShardCuts, EveryCutLeavesAllShardsOldOrAllNew) {
  for (const Disk &kind : {disks[0], disks[2]})
    for (const ShardOperation &operation : shard_operations()) {
      SimEnv env = shards_disk(kind);
      Judge judge;
      const std::string where = text(operation.name, ", ", kind.name);
      auto shards = open_shards(env);
      ASSERT_TRUE(shards);
      const Model old = first_whole();
      Model fresh = old;
      Result<void> done;
      const auto moments = moments_of(env, [&] { done = run(*shards, operation, fresh); });
      ASSERT_TRUE(done) << where << ": " << done.error().message;
      for (const SimDisk &m : moments) judge.cut(m, old, fresh, false, where);
      judge.cut(env.disk(), old, fresh, true, where + ", acknowledged");
      shards.reset();
      judge.cut(env.disk(), old, fresh, true, where + ", closed");
      if (HasFailure()) return;
    }
  std::printf("transactions on shards: %zu distinct disks after a cut\n", states);
  EXPECT_GT(states, 2'400u);
}

// A writer of several shards dies, and loses nothing of what it has written; somebody opens a shard alone and publishes
// it, or only closes it again; then the power may fail. All is right, and the next open of the index says so.
TEST(ShardCuts, AShardThatIsChangedAloneAfterADyingWriterIsNoFalseAlarm) {
  size_t after = 0;
  EveryNth moment(7, 3);
  for (const size_t chosen : chosen_operations) {
    const ShardOperation &operation = shard_operations()[chosen];
    SimEnv env = shards_disk(disks[0]);
    auto shards = open_shards(env);
    const Model old = first_whole();
    Model fresh = old;
    const auto deaths = moments_of(env, [&] { ASSERT_TRUE(run(*shards, operation, fresh)); });
    // What an earlier death leaves is decided by nobody: of those a few.
    for (size_t m = deaths.size() < 24 ? 0 : deaths.size() - 24; m < deaths.size(); ++m)
      for (const std::string &name : shard_names)
        for (const bool publishes : {true, false}) {
          SimEnv left(deaths[m]);
          const std::string path = shards_folder + "/" + name;
          const auto moments = moments_of(left, [&] {
            auto alone = store::DataFile::open(left, path, {.writable = true, .lock_timeout_ms = 50});
            ASSERT_TRUE(alone) << alone.error().message;
            if (!publishes) return;
            auto transaction = store::Transaction::begin(**alone, {});
            ASSERT_TRUE(transaction);
            ASSERT_TRUE((*transaction)->set_metadata("alone", "yes"));
            const auto done = (*transaction)->commit();
            ASSERT_TRUE(done) << done.error().message;
          });
          const auto judge = [&](const SimDisk &disk, const std::string &when) {
            const By by = static_cast<By>(after % 3);
            const std::string found = after_recovery(disk, old, fresh, by, after / 3 % 3);
            ++after;
            ASSERT_TRUE(found == "old" || found == "new")
                << operation.name << ", death " << m << ", " << name << (publishes ? " published " : " opened ") << when
                << ": " << found;
          };
          ASSERT_NO_FATAL_FAILURE(judge(left.disk(), "and no cut"));
          if (publishes) {
            ASSERT_EQ(model_of(left.contents(path))->metadata["alone"], "yes");
          }
          Cuts cuts(3, 3);
          for (size_t i = moment.first(); i < moments.size(); i += moment.step)
            for (const SimDisk &disk : cuts.of(moments[i], 0))
              ASSERT_NO_FATAL_FAILURE(judge(disk, text("and cut at ", i)));
          for (const bool keep : {false, true})
            ASSERT_NO_FATAL_FAILURE(judge(after_cut(left.disk(), keep), "and cut at the end"));
        }
  }
  std::printf("shards that were opened alone after a death: %zu\n", after);
  EXPECT_GT(after, bounded(2'800, 4'700, 9'000));
}

// A recovery that is cut itself is gone on with by the next.
TEST(ShardCuts, EveryCutOfARecoveryLeavesAllShardsOldOrAllNew) {
  size_t recoveries = 0;
  for (const size_t chosen : chosen_operations) {
    const ShardOperation &operation = shard_operations()[chosen];
    SimEnv env = shards_disk(disks[0]);
    auto shards = open_shards(env);
    const Model old = first_whole();
    Model fresh = old;
    const auto moments = moments_of(env, [&] { ASSERT_TRUE(run(*shards, operation, fresh)); });
    for (size_t m = 0; m < moments.size(); m += 2) {
      SimEnv crashed(after_cut(moments[m], true));
      const auto inner =
          moments_of(crashed, [&] { static_cast<void>(store::recover_all(crashed, index_path, {}, {})); });
      Judge judge;
      for (const SimDisk &disk : inner) {
        ++recoveries;
        judge.cut(disk, old, fresh, false, text(operation.name, ", recovery cut at moment ", m));
      }
      if (HasFailure()) return;
    }
  }
  std::printf("recoveries of shards that were cut: %zu\n", recoveries);
  EXPECT_GT(recoveries, 1'000u);
}

TEST(ShardFaults, EveryFailingCallFailsCleanly) {
  size_t trials = 0;
  EveryNth call(7, 3);
  for (const size_t chosen : chosen_operations)
    for (const Fault &fault : {Fault{-EIO, false}, {-EIO, true}, {-ENOSPC, false}, {FaultEnv::short_io, false}})
      for (size_t n = call.first();; n += call.step, ++trials) {
        const ShardOperation &operation = shard_operations()[chosen];
        SimEnv disk = shards_disk(disks[0]);
        FaultEnv env(disk);
        auto shards = open_shards(env);
        ASSERT_TRUE(shards);
        FailingCall failing(env, disk, n, fault);
        const Model old = first_whole();
        Model fresh = old;
        auto answer = run(*shards, operation, fresh);
        failing.end();
        if (!answer) {  // staging may have stopped half-way; the whole of it is what a commit would have done
          SimEnv other = shards_disk(disks[0]);
          auto whole = open_shards(other);
          fresh = old;
          ASSERT_TRUE(run(*whole, operation, fresh));
        }
        const std::string where = text(operation.name, ", call ", n, ", errno ", -fault.error,
                                       fault.sticky ? " for good: " : ": ", answer ? "ok" : answer.error().message);
        const bool open_outcome = !answer && answer.error().status == Status::needs_recovery;
        if (!answer) {
          EXPECT_NE(answer.error().status, Status::internal) << where;
          EXPECT_NE(answer.error().message, "") << where;
          if (!open_outcome) {
            EXPECT_EQ(classify(disk, old, fresh), "old") << where;
          }
        }
        const SimDisk crashed = disk.disk();
        shards.reset();
        EXPECT_EQ(disk.open_files(), 0u) << where;
        for (const bool keep : {false, true}) {
          const SimDisk left = after_cut(crashed, keep);
          const std::string found = after_recovery(left, old, fresh, static_cast<By>(n % 3), n % 3);
          EXPECT_TRUE(answer         ? found == "new"
                      : open_outcome ? found == "old" || found == "new"
                                     : found == "old")
              << where << ", then a cut keeping " << keep << ": " << found;
        }
        if (!failing.hit() || HasFailure()) break;
      }
  std::printf("failing calls of transactions on shards: %zu trials\n", trials);
  EXPECT_GT(trials, bounded(500, 1'200, 3'600));
}

// A recovery that fails leaves a checkpoint that the next one brings to its end.
TEST(ShardFaults, EveryFailingCallOfARecoveryLeavesItToTheNext) {
  size_t trials = 0;
  EveryNth call(5, 3);
  for (const size_t chosen : chosen_operations) {
    const ShardOperation &operation = shard_operations()[chosen];
    SimEnv env = shards_disk(disks[0]);
    auto shards = open_shards(env);
    ASSERT_TRUE(shards);
    const Model old = first_whole();
    Model fresh = old;
    const auto moments = moments_of(env, [&] { ASSERT_TRUE(run(*shards, operation, fresh)); });
    size_t which = 0;
    for (size_t m = 0; m < moments.size(); m += bounded(9, 4, 4))
      for (const By by : {By::recover, By::index, By::one_shard})
        for (size_t n = call.first();; n += call.step, ++trials) {
          const int error = which++ % 2 == 0 ? -EIO : -EACCES;
          SimEnv disk(after_cut(moments[m], true));
          FaultEnv faulty(disk);
          FailingCall failing(faulty, disk, n, {error});
          Result<void> answer;
          if (by == By::recover) {
            if (auto done = store::recover_all(faulty, index_path, {}, {}); !done) answer = Failure(done.error());
          } else if (by == By::index) {
            if (auto opened = store::Shards::open(faulty, index_path, {.writable = true}); !opened)
              answer = Failure(opened.error());
          } else {
            const std::string shard = shards_folder + "/" + shard_names[n % 3];
            if (auto opened = store::DataFile::open(faulty, shard, {}); !opened) answer = Failure(opened.error());
          }
          failing.end();
          const std::string where =
              text(operation.name, ", moment ", m, ", call ", n, ", ", answer ? "ok" : answer.error().message);
          if (!answer) {
            EXPECT_NE(answer.error().status, Status::internal) << where;
          }
          EXPECT_EQ(disk.open_files(), 0u) << where;
          for (const bool keep : {false, true}) {
            const std::string found = after_recovery(after_cut(disk.disk(), keep), old, fresh, By::recover, 0);
            EXPECT_TRUE(found == "old" || found == "new") << where << ", then a cut keeping " << keep << ": " << found;
          }
          if (!failing.hit() || HasFailure()) break;
        }
    if (HasFailure()) return;
  }
  std::printf("failing calls of recoveries of shards: %zu trials\n", trials);
  EXPECT_GT(trials, bounded(800, 3'200, 9'000));
}

}  // namespace
}  // namespace st::testing
