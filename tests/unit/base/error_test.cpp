// ST_TRY: an error goes to the caller as it is, a value goes where it is wanted, and nothing is copied.
#include "base/error.h"

#include <gtest/gtest.h>

#include <memory>

namespace st {
namespace {

struct ErrorTest : ::testing::Test {
  int calls = 0;
  const char *sentence = nullptr;  // where that of the last error lay

  Result<void> done() {
    ++calls;
    return {};
  }
  Result<std::unique_ptr<int>> number(int n) {
    ++calls;
    return std::make_unique<int>(n);
  }
  template <class T>
  Result<T> failed() {
    ++calls;
    Error e = error(Status::busy, "a sentence that is too long to lie inside the string").about_tensor("layer.0");
    e.os_errno = 11;
    e.shard = 3;
    e.holder_pid = 4711;
    sentence = e.message.data();
    return Failure(std::move(e).at_offset(96));
  }
};

TEST_F(ErrorTest, AnErrorIsPassedOnWithAllThatItSays) {
  const auto first = [&]() -> Result<int> {
    ST_TRY(failed<void>());
    return 1;
  };
  const auto second = [&]() -> Result<std::unique_ptr<int>> {
    ST_TRY(auto n, first());
    return std::make_unique<int>(n);
  };
  const auto passed = second();
  ASSERT_FALSE(passed);
  const Error &e = passed.error();
  EXPECT_EQ(e.status, Status::busy);
  EXPECT_EQ(e.message, "a sentence that is too long to lie inside the string");
  EXPECT_EQ(e.message.data(), sentence) << "it was copied";
  EXPECT_EQ(e.os_errno, 11);
  EXPECT_EQ(e.shard, 3u);
  EXPECT_EQ(e.offset, 96u);
  EXPECT_EQ(e.tensor, "layer.0");
  EXPECT_TRUE(e.has_tensor);
  EXPECT_EQ(e.holder_pid, 4711);
  EXPECT_EQ(calls, 1);
}

TEST_F(ErrorTest, AValueIsMovedAndWhatFollowsIsDone) {
  const auto sum = [&]() -> Result<int> {
    ST_TRY(done());
    ST_TRY(number(1));  // not wanted
    ST_TRY(auto two, number(2));
    ST_TRY(const auto three, number(3));
    ST_TRY(two, number(*two + *three));
    ST_TRY(auto &&seven, number(7));
    return *two + *seven;
  };
  EXPECT_EQ(sum().value_or(0), 12);
  EXPECT_EQ(calls, 6);
}

TEST_F(ErrorTest, AnErrorLeavesTheVariableAndWhatFollows) {
  auto kept = std::make_unique<int>(5);
  const auto replace = [&]() -> Result<void> {
    ST_TRY(kept, failed<std::unique_ptr<int>>());
    return done();
  };
  EXPECT_FALSE(replace());
  EXPECT_EQ(*kept, 5);
  EXPECT_EQ(calls, 1);
}

TEST_F(ErrorTest, AnIfNeedsNoBracesWhereNoValueIsWanted) {
  const auto either = [&](bool good) -> Result<void> {
    if (good)
      ST_TRY(done());
    else
      ST_TRY(failed<void>());
    return done();
  };
  EXPECT_TRUE(either(true));
  EXPECT_EQ(calls, 2);
  EXPECT_FALSE(either(false));
  EXPECT_EQ(calls, 3);
}

TEST_F(ErrorTest, OneOfAFullDiskOrQuotaSaysWhatToDo) {
  EXPECT_TRUE(os_error(ENOSPC, "write", "f").message.ends_with("; free some room"));
  const Error quota = os_error(EDQUOT, "write", "f");
  EXPECT_EQ(quota.status, Status::no_space);
  EXPECT_EQ(quota.os_errno, EDQUOT);
  EXPECT_TRUE(quota.message.starts_with("cannot write 'f': "));
  EXPECT_TRUE(quota.message.ends_with("; free some room, or have the quota raised"));
}

// The kernel's word for it, "Value too large for defined data type", tells nothing.
TEST_F(ErrorTest, OneOfAnIdMappedMountSaysWhoMayMakeFiles) {
  EXPECT_TRUE(os_error(EOVERFLOW, "create", "f").message.ends_with("only a user who has an id there makes files"));
}

TEST_F(ErrorTest, ErrorsOfOtherTypesArePassedOnToo) {
  using Odd = tl::expected<void, std::unique_ptr<int>>;
  const auto odd = []() -> Odd { return tl::make_unexpected(std::make_unique<int>(3)); };
  const auto passed = [&]() -> Odd {
    ST_TRY(odd());
    return {};
  }();
  ASSERT_FALSE(passed);
  EXPECT_EQ(*passed.error(), 3);
}

}  // namespace
}  // namespace st
