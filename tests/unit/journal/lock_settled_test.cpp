#include "journal/lock_settled.h"

#include <gtest/gtest.h>

#include <atomic>
#include <climits>

#include "clock_env.h"
#include "test_files.h"

namespace st::write {
namespace {

using namespace testing;

class LockSettled : public ::testing::Test {
 protected:
  void SetUp() override { put_bytes(path, "abc"); }

  // By looks that find a hot journal, which no recovery finds, up to the one with this number.
  Result<Look> take(const os::LockWait &wait, int last = INT_MAX, Result<Look> found = Look::settled) {
    looks = 0;
    auto at = os::Location::find(env, path);
    if (!at) return Failure(at.error());
    LockSteps steps;
    steps.ranges = [] { return std::vector{os::whole_file(true)}; };
    steps.look = [&](os::LockedFile &) -> Result<Look> { return ++looks < last ? Look::hot : found; };
    steps.recover = []() -> Result<void> { return {}; };
    std::unique_ptr<os::LockedFile> locked;
    return lock_settled(*at, wait, steps, &locked);
  }

  ClockEnv env{os::Env::posix()};
  TempDir dir;
  const std::string path = dir / "f";
  int looks = 0;
};

// A server of NFS 3 may refuse a lock, and say that nobody has it, as long as a host is cut off from it.
TEST_F(LockSettled, WhatNeverSettlesIsWaitedForNoLongerThanForALock) {
  EXPECT_TRUE(fails_with(Status::busy, take({0, nullptr, nullptr})));
  EXPECT_EQ(looks, 10);
  env.now_us = 0;
  EXPECT_TRUE(fails_with(Status::busy, take({500, nullptr, nullptr})));
  EXPECT_GT(looks, 10);
  EXPECT_EQ(env.now_us / 100000, 5u);
  EXPECT_TRUE(fails_with(Status::busy, take({-1, nullptr, nullptr})));
  EXPECT_EQ(looks, os::most_lock_attempts);
}

TEST_F(LockSettled, TheWaitEndsAsSoonAsItIsSettledOrFailsOrIsStopped) {
  EXPECT_TRUE(is_ok(take({-1, nullptr, nullptr}, 20)));
  EXPECT_EQ(looks, 20);
  EXPECT_TRUE(fails_with(Status::io, take({-1, nullptr, nullptr}, 20, fail(Status::io, "a disk"))));
  EXPECT_EQ(looks, 20);
  std::atomic<uint64_t> interrupts = 0;
  const Control control({}, &interrupts);
  ++interrupts;
  EXPECT_TRUE(fails_with(Status::interrupted, take({-1, &control, nullptr})));
  EXPECT_EQ(looks, 10);
}

}  // namespace
}  // namespace st::write
