// Crash enumeration: every sequence of up to three operations on two handles. The
// power is cut before every change of the disk and after every acknowledgement. Each
// cut leaves every subset of what was not yet synced, with torn writes. Each is
// recovered, with cuts during that recovery too. After recovery the file is exactly
// old or new, and what was acknowledged is there.
//
//   crash_enumeration           the bound for CI; see bound.h for a larger one
//   crash_enumeration --full    the campaign
#include <gtest/gtest.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <random>
#include <unordered_set>

#include "base/hash.h"
#include "bound.h"
#include "fault_env.h"
#include "workload.h"

namespace st::testing {
namespace {

bool full = false;

class Enumerator {
 public:
  uint64_t points = 0, distinct = 0;

  // All the disks that a cut at this moment may leave.
  void cut(const SimDisk &disk, const State &before, const State &after, int depth, const std::string &where) {
    if (::testing::Test::HasFailure()) return;
    const std::vector<SimChange> changes = pending_changes(disk);
    std::vector<uint32_t> keep(changes.size(), 0);
    constexpr size_t exhaustive = 12;
    if (changes.size() <= exhaustive) {
      for (uint32_t subset = 0; subset < (1u << changes.size()); ++subset) {
        for (size_t i = 0; i < changes.size(); ++i) keep[i] = subset >> i & 1;
        leave(disk, changes, keep, before, after, depth, where);
      }
    } else {
      for (int sample = 0; sample < (1 << exhaustive); ++sample) {
        for (uint32_t &k : keep) k = static_cast<uint32_t>(random_() % 2);
        leave(disk, changes, keep, before, after, depth, where);
      }
    }
    // Each write torn in several ways, among random neighbours.
    const int tears = full ? 12 : 4;
    for (size_t torn = 0; torn < changes.size(); ++torn) {
      if (changes[torn].sectors < 2) continue;
      for (int i = 0; i < tears; ++i) {
        for (uint32_t &k : keep) k = static_cast<uint32_t>(random_() % 2);
        keep[torn] = static_cast<uint32_t>(2 + random_() % 100000);
        leave(disk, changes, keep, before, after, depth, where);
      }
    }
  }

  // The process dies here, and loses nothing of what it has written, synced or not. Then the power fails while the next
  // one recovers.
  void die(const SimDisk &disk, const State &before, const State &after, const std::string &where) {
    std::vector<SimDisk> during;
    EXPECT_EQ(check_disk(disk, before, after, [&](const SimDisk &d) { during.push_back(d); }), "") << where;
    for (const SimDisk &d : during) cut(d, before, after, 0, where + ", cut in recovery");
  }

 private:
  void leave(const SimDisk &disk, const std::vector<SimChange> &changes, const std::vector<uint32_t> &keep,
             const State &before, const State &after, int depth, const std::string &where) {
    ++points;
    SimDisk left = after_cut(disk, changes, keep);
    uint64_t key = fingerprint(left);
    key = hash64(before.data(), before.size() * sizeof before[0], key);
    key = hash64(after.data(), after.size() * sizeof after[0], key) + static_cast<uint64_t>(depth);
    if (!seen_.insert(key).second) return;
    ++distinct;
    // What was saved by sharing can also be put back by copying.
    if (key % 4 == 0) left.reflinks = false;

    std::vector<SimDisk> during;
    const std::string wrong =
        check_disk(left, before, after,
                   depth > 0 ? [&](const SimDisk &d) { during.push_back(d); } : std::function<void(const SimDisk &)>{});
    EXPECT_EQ(wrong, "") << where << ", depth " << depth;
    for (const SimDisk &d : during) cut(d, before, after, depth - 1, where + ", cut in recovery");
  }

  std::unordered_set<uint64_t> seen_;
  std::mt19937_64 random_{7};
};

struct Moment {
  SimDisk disk;
  State before, after;
};

// Runs the sequence once and remembers the disk before every change.
std::vector<Moment> moments_of(SimEnv &env, Workload workload, const std::vector<Operation> &sequence) {
  std::vector<Moment> moments;
  bool under_way = false;
  env.before_change = [&] {
    moments.push_back({env.disk(), workload.before(), under_way ? workload.after() : workload.before()});
  };
  for (const Operation &operation : sequence) {
    under_way = true;
    auto ok = workload.run(operation);
    EXPECT_TRUE(ok) << describe(sequence) << ": " << (ok ? "" : ok.error().message);
    under_way = false;
    moments.push_back({env.disk(), workload.before(), workload.before()});
  }
  workload.close();
  moments.push_back({env.disk(), workload.before(), workload.before()});
  env.before_change = nullptr;
  return moments;
}

struct Journals {
  Patches patches;
  uint64_t clones = 0;
  bool undo() const { return patches == Patches::undo; }
  const char *name() const { return name_of(patches); }
};

std::vector<Moment> moments_of(Journals &journals, const std::vector<Operation> &sequence) {
  SimEnv env = Workload::fresh_disk(journals.patches);
  auto moments = moments_of(env, Workload(env), sequence);
  journals.clones += env.clones();
  return moments;
}

void enumerate(Enumerator &e, Journals &journals, const std::vector<Operation> &sequence, int depth) {
  for (const Moment &m : moments_of(journals, sequence))
    e.cut(m.disk, m.before, m.after, depth, describe(sequence) + ", " + journals.name());
}

class CrashEnumeration : public ::testing::TestWithParam<Patches> {
 protected:
  // Tells what was tried: more disks than that, which is half of what it was with the kind of journal that has fewest.
  void tell(const char *what, const Enumerator &e, size_t least) const {
    std::printf("%s, %s: %" PRIu64 " points, %" PRIu64 " distinct disks, %" PRIu64 " clones\n", what, journals.name(),
                e.points, e.distinct, journals.clones);
    EXPECT_EQ(journals.clones > 0, journals.undo());
    EXPECT_GT(e.distinct, least);
  }
  Journals journals{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Journals, CrashEnumeration, ::testing::ValuesIn(every_patches),
                         [](const auto &patches) { return name_of(patches.param); });

Operation operation_of(int n) {
  return {static_cast<Operation::Kind>(n % operation_kinds), n / operation_kinds % 2};
}
constexpr int alphabet = 2 * operation_kinds;

TEST_P(CrashEnumeration, EveryCutOfOneOperationLeavesOldOrNew) {
  Enumerator e;
  for (int a = 0; a < operation_kinds; ++a) enumerate(e, journals, {operation_of(a)}, 2);
  tell("one operation, cuts in recovery to depth 2", e, 9'800);
}

TEST_P(CrashEnumeration, EveryCutOfTwoOperationsLeavesOldOrNew) {
  Enumerator e;
  for (int a = 0; a < operation_kinds; ++a)
    for (int b = 0; b < alphabet; ++b) enumerate(e, journals, {operation_of(a), operation_of(b)}, full ? 1 : 0);
  tell("two operations", e, 6'000);
}

TEST_P(CrashEnumeration, EveryCutOfThreeOperationsLeavesOldOrNew) {
  Enumerator e;
  std::mt19937 random(3);
  const size_t every = full ? 1 : bounded(64, 64, 8);
  for (int a = 0; a < operation_kinds; ++a)
    for (int b = 0; b < alphabet; ++b)
      for (int c = 0; c < alphabet; ++c)
        if (random() % every == 0) enumerate(e, journals, {operation_of(a), operation_of(b), operation_of(c)}, 0);
  tell("three operations", e, 5'900);
}

// What a dead writer has written may be in memory alone, its commit record too.
TEST_P(CrashEnumeration, EveryCutOfARecoveryAfterADeathLeavesOldOrNew) {
  Enumerator e;
  EveryNth moment(3, 1);
  for (int a = 0; a < operation_kinds; ++a) {
    const auto moments = moments_of(journals, {operation_of(a)});
    for (size_t i = moment.first(); i < moments.size(); i += moment.step)
      e.die(moments[i].disk, moments[i].before, moments[i].after,
            text(describe({operation_of(a)}), ", ", journals.name(), ", a death"));
  }
  tell("a death, cuts in its recovery", e, bounded(350, 670, 670));
}

// A sync has failed, and what it left out stays visible, but no later sync writes it. So recovery must write all of it
// once more before it relies on it.
TEST_P(CrashEnumeration, EveryCutOfARecoveryAfterAFailedSyncLeavesOldOrNew) {
  Enumerator e;
  for (int a = 0; a < operation_kinds; ++a)
    for (size_t n = 0, made = SIZE_MAX; n < made; ++n)
      for (uint64_t seed = 1; seed <= bounded(2, 4, 4); ++seed) {
        const Operation operation = operation_of(a);
        SimEnv env(Workload::fresh_disk(journals.patches).disk(), seed);
        Workload workload(env);
        size_t syncs = 0;
        env.sync_fault = [&] { return syncs++ == n ? -EIO : 0; };
        const auto answer = workload.run(operation);
        env.sync_fault = nullptr;
        journals.clones += env.clones();
        if (syncs <= n) made = n;
        if (!answer)
          e.die(env.disk(), workload.before(),
                answer.error().status == Status::needs_recovery ? workload.after() : workload.before(),
                text(describe({operation}), ", ", journals.name(), ", sync ", n, " has failed, seed ", seed));
      }
  tell("a failed sync, cuts in its recovery", e, bounded(380, 770, 770));
}

// Two records are on the same bytes. The first is of a finished transaction, and a cut has brought it back. The second
// transaction had begun. Both are settled, in this order, whatever their journals are called.
TEST_P(CrashEnumeration, ARecordThatComesBackUndoesNothing) {
  Enumerator e;
  for (uint32_t seed = 0; seed < bounded(4, 4, 16); ++seed) {  // other names
    SimEnv env(Workload::fresh_disk(journals.patches).disk(), seed);
    Workload workload(env);
    for (const int handle : {0, 1}) ASSERT_TRUE(workload.run({Operation::all, handle}));
    for (const Operation::Kind first : {Operation::both, Operation::all, Operation::later})
      for (const Operation::Kind second : {Operation::update_a, Operation::both, Operation::all}) {
        ASSERT_TRUE(workload.run({first, 0}));
        const State before = workload.before();
        env.before_change = [&] {
          e.cut(env.disk(), before, workload.after(), 0,
                text(describe({{first, 0}, {second, 1}}), ", ", journals.name(), ", seed ", seed));
        };
        ASSERT_TRUE(workload.run({second, 1}));
        env.before_change = nullptr;
      }
    journals.clones += env.clones();
  }
  tell("two records on the same bytes", e, 220);
}

// A journal that recovery has dealt with must not come back to undo what is
// written later: cut, recover, operate, cut again.
TEST_P(CrashEnumeration, WhatFollowsARecoverySurvivesTheNextCut) {
  Enumerator e;
  std::mt19937 random(5);
  for (const Moment &m : moments_of(journals, {{Operation::all, 0}})) {
    const auto changes = pending_changes(m.disk);
    for (uint32_t subset = 0; subset < (1u << std::min<size_t>(changes.size(), 8)); ++subset) {
      if (!full && random() % 4 != 0) continue;
      std::vector<uint32_t> keep(changes.size());
      for (size_t i = 0; i < changes.size(); ++i) keep[i] = subset >> i & 1;
      SimEnv env(after_cut(m.disk, changes, keep), 99);
      store::OpenOptions options;
      options.writable = true;
      ASSERT_TRUE(store::DataFile::open(env, model_path, options));
      const bool is_new = env.contents(model_path) == Workload::file_bytes(m.after);
      for (const Moment &then : moments_of(env, Workload(env, is_new ? m.after : m.before, 50), {{Operation::both, 0}}))
        e.cut(then.disk, then.before, then.after, 0, "recovered, then updated");
    }
  }
  tell("an operation after a recovery", e, 70);
}

// The same, where the folder stays in use and its names are durable: a second
// writer recovers what the first left, and goes on with a parked journal.
TEST_P(CrashEnumeration, AnotherWritersRecoverySurvivesTheNextCut) {
  SimEnv disk = Workload::fresh_disk(journals.patches);
  FaultEnv env(disk);
  Workload second(env);
  ASSERT_TRUE(second.run({Operation::update_b, 1}));
  const State b_done = second.before();

  Workload first(env, b_done, 50);
  env.before = [&](Call call) {
    const bool writes = call == Call::pwrite || call == Call::clone_range;
    return writes && disk.contents(model_path) != Workload::file_bytes(b_done) ? -EIO : 0;
  };
  ASSERT_FALSE(first.run({Operation::all, 0}));
  const State decided = journals.undo() ? b_done : first.after();
  env.before = nullptr;
  first.close();

  // What the second writer sees when it begins is the first one's change, done or undone.
  second.assume(decided);
  ASSERT_TRUE(second.run({Operation::both, 1}));
  Enumerator e;
  e.cut(disk.disk(), second.before(), second.before(), 1, "recovered by another writer");
  journals.clones += disk.clones();
  tell("an operation after another writer's recovery", e, 4);
}

}  // namespace
}  // namespace st::testing

int main(int argc, char **argv) {
  ::testing::InitGoogleTest(&argc, argv);
  st::testing::full = argc > 1 && std::string_view(argv[1]) == "--full";
  return RUN_ALL_TESTS();
}
