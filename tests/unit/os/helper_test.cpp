// A thread beside the caller's.
#include "os/helper.h"

#include <gtest/gtest.h>

#include <vector>

namespace st::os {
namespace {

TEST(Helper, DoesOnePieceOfWorkAfterTheOther) {
  Helper helper;
  helper.wait();  // nothing was begun
  std::vector<int> done;
  for (int i = 0; i < 100; ++i) {
    helper.begin([&done, i] { done.push_back(i); });
    helper.wait();
    ASSERT_EQ(done.size(), static_cast<size_t>(i) + 1);
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[static_cast<size_t>(i)], i);
}

TEST(Helper, FinishesWhatWasBegunBeforeItGoes) {
  int done = 0;
  {
    Helper helper;
    const Helper::WaitsAtEnd waits{helper};
    helper.begin([&done] { ++done; });
  }
  EXPECT_EQ(done, 1);
  {
    Helper helper;
    helper.begin([&done] { ++done; });
  }
  EXPECT_EQ(done, 2);
}

TEST(Helper, WorksBesideTheCaller) {
  Helper helper;
  std::thread::id by;
  helper.begin([&by] { by = std::this_thread::get_id(); });
  helper.wait();
  EXPECT_NE(by, std::this_thread::get_id());
}

}  // namespace
}  // namespace st::os
