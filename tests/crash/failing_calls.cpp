// Every system call of every operation made to fail, with every errno that a
// disk or a signal may give, once and for good; and the same for every call of
// recovery. An answer of "ok" means the new state, durable; "needs recovery"
// means that recovery decides; any other answer means that nothing has changed.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <random>

#include "bound.h"
#include "cuts.h"
#include "failing_call.h"
#include "workload.h"

namespace st::testing {
namespace {

constexpr Fault faults[] = {{-EIO, false},
                            {-EIO, true},
                            {-ENOSPC, false},
                            {-ENOSPC, true},
                            {-EDQUOT, false},
                            {-EDQUOT, true},
                            {-EINTR, false},
                            {-EINTR, true},
                            {-EACCES, false},
                            {FaultEnv::short_io, false},
                            {FaultEnv::short_io, true}};

// One operation on a fresh disk with the n-th call failing that can. False: there was no such call.
bool try_operation(Operation operation, size_t n, const Fault &fault, uint64_t seed, Patches patches) {
  SimEnv disk(Workload::fresh_disk(patches).disk(), seed);
  FaultEnv env(disk);
  Workload workload(env);
  const std::string where =
      text(describe({operation}), ", call ", n, ", errno ", -fault.error, fault.sticky ? " for good" : " once");
  FailingCall failing(env, disk, n, fault);

  const State old_state = workload.before();
  auto answer = workload.run(operation);
  const State new_state = workload.after();
  failing.end();
  const SimDisk crashed = disk.disk();

  const State &allowed_old = answer ? new_state : old_state;
  const State &allowed_new = answer || answer.error().status == Status::needs_recovery ? new_state : old_state;
  if (!answer) {
    EXPECT_NE(answer.error().status, Status::internal) << where;
    EXPECT_NE(answer.error().message, "") << where << " status " << static_cast<int>(answer.error().status) << " errno "
                                          << answer.error().os_errno << " " << call_name(env.calls.back());
    if (answer.error().status != Status::needs_recovery) {
      EXPECT_EQ(disk.contents(model_path), Workload::file_bytes(old_state))
          << where << ": the file was touched: " << answer.error().message;
    }
  }
  // A later operation on the same handle must not lie either.
  auto again = workload.run({Operation::update_b, operation.handle});
  workload.close();
  EXPECT_EQ(disk.open_files(), 0u) << where;
  if (!again) {
    EXPECT_EQ(check_disk(disk.disk(), allowed_old, allowed_new), "")
        << where << ": " << (answer ? "ok" : answer.error().message);
  }
  // And the power goes right after the answer: nothing of what is pending is kept, all, each by itself, and some.
  const auto changes = pending_changes(crashed);
  std::mt19937 random(static_cast<unsigned>(seed));
  for (size_t image = 0; image < 2 + changes.size() + (changes.empty() ? 0 : 4); ++image) {
    std::vector<uint32_t> keep(changes.size(), image == 1);
    if (image >= 2 && image < 2 + changes.size()) keep[image - 2] = 1;
    if (image >= 2 + changes.size())
      for (uint32_t &k : keep) k = static_cast<uint32_t>(random() % 2);
    const std::string wrong = check_disk(after_cut(crashed, changes, keep), allowed_old, allowed_new);
    EXPECT_EQ(wrong, "") << where << ", then a cut, image " << image << ": "
                         << (answer ? "ok" : answer.error().message);
  }
  return failing.hit();
}

class FailingCalls : public ::testing::TestWithParam<Patches> {
 protected:
  const Patches patches = GetParam();
  const char *journals() const { return name_of(patches); }
};

INSTANTIATE_TEST_SUITE_P(Journals, FailingCalls, ::testing::ValuesIn(every_patches),
                         [](const auto &patches) { return name_of(patches.param); });

TEST_P(FailingCalls, EveryCallOfEveryOperationFailsCleanly) {
  size_t trials = 0;
  const uint64_t seeds = bounded(1, 1, 3);
  EveryNth call(5, 2);
  for (int kind = 0; kind < operation_kinds; ++kind)
    for (const Fault &fault : faults)
      for (size_t n = call.first();; n += call.step) {
        bool hit = false;
        for (uint64_t seed = 1; seed <= seeds; ++seed)
          hit = try_operation({static_cast<Operation::Kind>(kind), 0}, n, fault, seed, patches), ++trials;
        if (!hit || HasFailure()) break;
      }
  std::printf("failing calls of operations, %s: %zu trials\n", journals(), trials);
  EXPECT_GT(trials, bounded(1'200, 3'000, 15'000));
}

// A disk whose last transaction has written its record and is half applied.
SimDisk half_applied(Patches patches) {
  SimEnv disk = Workload::fresh_disk(patches);
  FaultEnv env(disk);
  Workload workload(env);
  // Each write puts half of what it is asked to. Three land in the file; then writing fails.
  int landed = 0;
  env.before = [&](Call call) {
    const bool writes = call == Call::pwrite || call == Call::clone_range;
    const bool begun = disk.contents(model_path) != Workload::file_bytes(Workload::state_of(0));
    if (!writes) return 0;
    return begun && ++landed > 2 ? -EIO : FaultEnv::short_io;
  };
  auto answer = workload.run({Operation::all, 0});
  EXPECT_EQ(answer ? Status::ok : answer.error().status, Status::needs_recovery);
  env.before = nullptr;
  workload.close();
  return disk.disk();
}

// Every call of a recovery fails; then, at once or after a power cut, the next
// recovery must succeed, or fail in turn and leave it to another one.
class FailingRecovery {
 public:
  explicit FailingRecovery(const State &decided) : decided_(decided) {}
  size_t trials = 0, cuts = 0;

  // False: the n-th call was not made any more.
  bool fail_at(const SimDisk &start, size_t n, const Fault &fault, int depth, const std::string &before) {
    ++trials;
    const std::string where =
        text(before, "recovery's call ", n, ", errno ", -fault.error, fault.sticky ? " for good" : " once");
    SimEnv disk(start, n + 1);
    FaultEnv env(disk);
    FailingCall failing(env, disk, n, fault);
    store::OpenOptions options;
    options.writable = true;
    auto opened = store::DataFile::open(env, model_path, options);
    EXPECT_TRUE(opened || !opened.error().message.empty()) << where;
    const SimDisk left = disk.disk();
    if (opened) opened->reset();
    failing.end();
    EXPECT_EQ(disk.open_files(), 0u) << where;
    EXPECT_EQ(check_disk(disk.disk(), decided_, decided_), "") << where;
    cut(left, depth, where);
    return failing.hit();
  }

 private:
  void cut(const SimDisk &left, int depth, const std::string &where) {
    for (const SimDisk &after : cuts_.of(left, static_cast<uint64_t>(depth))) {
      ++cuts;
      EXPECT_EQ(check_disk(after, decided_, decided_), "") << where << ", then a cut";
      if (::testing::Test::HasFailure()) return;
      if (depth > 1)
        for (size_t n = second_.first(); fail_at(after, n, {-EIO, false}, depth - 1, where + ", then a cut and ");
             n += second_.step)
          ;
    }
  }

  const State decided_;
  Cuts cuts_{5, 32};
  EveryNth second_{5, 2};
};

TEST_P(FailingCalls, EveryCallOfRecoveryFailsCleanlyAndRunsAgainAfterAPowerCutToo) {
  const SimDisk start = half_applied(patches);
  FailingRecovery recovery(Workload::state_of(patches == Patches::undo ? 0 : 1));
  for (const Fault &fault : faults)
    for (size_t n = 0; recovery.fail_at(start, n, fault, 2, "") && !HasFailure(); ++n)
      ;
  std::printf("failing calls of recovery, %s: %zu trials, %zu different disks after a cut\n", journals(),
              recovery.trials, recovery.cuts);
  EXPECT_GT(recovery.trials, bounded(600, 700, 700));
}

}  // namespace
}  // namespace st::testing
