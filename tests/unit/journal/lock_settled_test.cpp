#include "journal/lock_settled.h"

#include <gtest/gtest.h>

#include "test_files.h"

namespace st::write {
namespace {

using namespace testing;

class LockSettled : public ::testing::Test {
 protected:
  void SetUp() override { put_bytes(path, "abc"); }

  // By looks that find a hot journal, which no recovery finds.
  Result<Look> take(const os::LockWait &wait) {
    auto at = os::Location::find(os::Env::posix(), path);
    if (!at) return Failure(at.error());
    LockSteps steps;
    steps.ranges = [] { return std::vector{os::whole_file(true)}; };
    steps.look = [&](os::LockedFile &) -> Result<Look> {
      ++looks;
      return Look::hot;
    };
    steps.recover = []() -> Result<void> { return {}; };
    std::unique_ptr<os::LockedFile> locked;
    return lock_settled(*at, wait, steps, &locked);
  }

  TempDir dir;
  const std::string path = dir / "f";
  int looks = 0;
};

// A server of NFS 3 may refuse a lock, and say that nobody has it, as long as a host is cut off from it.
TEST_F(LockSettled, WhatNeverSettlesIsWaitedForNoLongerThanForALock) {
  EXPECT_TRUE(fails_with(Status::busy, take({0, nullptr, nullptr})));
  EXPECT_EQ(looks, 10);
}

}  // namespace
}  // namespace st::write
