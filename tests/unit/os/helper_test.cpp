// A thread beside the caller's.
#include "os/helper.h"

#include <gtest/gtest.h>
#ifndef _WIN32
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <functional>
#include <future>
#include <memory>
#include <vector>

namespace st::os {
namespace {

TEST(Helper, DoesOnePieceOfWorkAfterTheOther) {
  Helper helper(Env::posix());
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
    Helper helper(Env::posix());
    const Helper::WaitsAtEnd waits{helper};
    helper.begin([&done] { ++done; });
  }
  EXPECT_EQ(done, 1);
  {
    Helper helper(Env::posix());
    helper.begin([&done] { ++done; });
  }
  EXPECT_EQ(done, 2);
}

TEST(Helper, WorksBesideTheCaller) {
  Helper helper(Env::posix());
  std::thread::id by;
  helper.begin([&by] { by = std::this_thread::get_id(); });
  helper.wait();
  EXPECT_NE(by, std::this_thread::get_id());
}

#ifndef _WIN32
// Whether `body` is right in a child of a fork, and ends there.
void expect_in_child(const std::function<bool()> &body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // ends it where it hangs
    ::_exit(body() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

bool works_without_a_thread(std::unique_ptr<Helper> helper) {
  helper->wait();
  std::thread::id by;
  helper->begin([&by] { by = std::this_thread::get_id(); });
  const bool is_done = by == std::this_thread::get_id();
  helper->wait();
  helper.reset();
  return is_done;
}

TEST(Helper, LeavesItsThreadToTheParentOfAFork) {
  auto helper = std::make_unique<Helper>(Env::posix());
  helper->begin([] {});
  helper->wait();
  expect_in_child([&] { return works_without_a_thread(std::move(helper)); });
}

TEST(Helper, WaitsInNoChildForWorkOfTheParent) {
  auto helper = std::make_unique<Helper>(Env::posix());
  std::promise<void> begun, forked;
  helper->begin([&] {
    begun.set_value();
    forked.get_future().wait();
  });
  begun.get_future().wait();
  expect_in_child([&] { return works_without_a_thread(std::move(helper)); });
  forked.set_value();
  helper->wait();
}

TEST(Helper, OfAChildHasAThread) {
  expect_in_child([] {
    Helper helper(Env::posix());
    std::thread::id by;
    helper.begin([&by] { by = std::this_thread::get_id(); });
    helper.wait();
    return by != std::this_thread::get_id();
  });
}
#endif

}  // namespace
}  // namespace st::os
