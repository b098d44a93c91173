// Every system call of every operation made to fail, with every errno that a
// disk or a signal may give, once and for good; and the same for every call of
// recovery. An answer of "ok" means the new state, durable; "needs recovery"
// means that recovery decides; any other answer means that nothing has changed.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>

#include "fault_env.h"
#include "workload.h"

namespace st::testing {
namespace {

struct Fault {
  int error;
  bool sticky;
};
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

bool is_sync(Call call) {
  return call == Call::fsync || call == Call::fdatasync;
}

struct Trial {
  size_t calls = 0;  // how many could have failed
  bool hit = false;
};

// One operation on a fresh disk with the n-th failable call failing.
Trial try_operation(Operation operation, size_t n, const Fault &fault, uint64_t seed) {
  Trial trial;
  SimEnv disk(Workload::fresh_disk().disk(), seed);
  FaultEnv env(disk);
  Workload workload(env);
  const std::string where =
      text(describe({operation}), ", call ", n, ", errno ", -fault.error, fault.sticky ? " for good" : " once");
  env.before = [&](Call call) {
    if (!can_fail(call)) return 0;
    const size_t k = trial.calls++;
    if (k != n && !(fault.sticky && k > n)) return 0;
    trial.hit = true;
    // A failing sync is SimEnv's to fail, which knows what it loses.
    if (is_sync(call) && fault.error < 0) {
      disk.sync_fault = [&disk, error = fault.error] {
        disk.sync_fault = nullptr;
        return error;
      };
      return 0;
    }
    return fault.error;
  };

  const State old_state = workload.before();
  auto answer = workload.run(operation);
  const State new_state = workload.after();
  env.before = nullptr;
  disk.sync_fault = nullptr;
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
  // And the power goes right after the answer.
  const auto changes = pending_changes(crashed);
  for (uint32_t keep : {0u, 1u}) {
    const std::string wrong =
        check_disk(after_cut(crashed, changes, std::vector<uint32_t>(changes.size(), keep)), allowed_old, allowed_new);
    EXPECT_EQ(wrong, "") << where << ", then a cut keeping " << keep << ": "
                         << (answer ? "ok" : answer.error().message);
  }
  return trial;
}

TEST(FailingCalls, EveryCallOfEveryOperationFailsCleanly) {
  size_t trials = 0;
  for (int kind = 0; kind < operation_kinds; ++kind)
    for (const Fault &fault : faults)
      for (size_t n = 0;; ++n) {
        Trial last;
        for (uint64_t seed = 1; seed <= 3; ++seed)
          last = try_operation({static_cast<Operation::Kind>(kind), 0}, n, fault, seed), ++trials;
        if (!last.hit || HasFailure()) break;
      }
  std::printf("failing calls of operations: %zu trials\n", trials);
}

// A disk whose last transaction has committed and is half applied.
SimDisk half_applied() {
  SimEnv disk = Workload::fresh_disk();
  FaultEnv env(disk);
  Workload workload(env);
  // Writing fails from the first byte that lands in the file on.
  env.before = [&](Call call) {
    return call == Call::pwrite && disk.contents(model_path) != Workload::file_bytes(State(Workload::tensor_count(), 0))
               ? -EIO
               : 0;
  };
  auto answer = workload.run({Operation::all, 0});
  EXPECT_EQ(answer ? Status::ok : answer.error().status, Status::needs_recovery);
  env.before = nullptr;
  workload.close();
  return disk.disk();
}

TEST(FailingCalls, EveryCallOfRecoveryFailsCleanlyAndRunsAgain) {
  const SimDisk start = half_applied();
  const State old_state(Workload::tensor_count(), 0), new_state(Workload::tensor_count(), 1);
  size_t trials = 0;
  for (const Fault &fault : faults)
    for (size_t n = 0;; ++n, ++trials) {
      SimEnv disk(start);
      FaultEnv env(disk);
      size_t calls = 0;
      bool hit = false;
      env.before = [&](Call call) {
        if (!can_fail(call)) return 0;
        const size_t k = calls++;
        if (k != n && !(fault.sticky && k > n)) return 0;
        hit = true;
        return fault.error;
      };
      store::OpenOptions options;
      options.writable = true;
      auto opened = store::Checkpoint::open(env, model_path, options);
      EXPECT_TRUE(opened || !opened.error().message.empty());
      if (opened) opened->reset();
      env.before = nullptr;
      EXPECT_EQ(disk.open_files(), 0u) << "call " << n << ", errno " << -fault.error;
      EXPECT_EQ(check_disk(disk.disk(), new_state, new_state), "")
          << "call " << n << ", errno " << -fault.error << (fault.sticky ? " for good" : " once");
      if (!hit || HasFailure()) break;
    }
  std::printf("failing calls of recovery: %zu trials\n", trials);
}

}  // namespace
}  // namespace st::testing
