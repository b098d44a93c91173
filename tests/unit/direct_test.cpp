// Bulk reads past the page cache: by io_uring, by threads where there is none,
// and the usual way where a read or the whole of it cannot be done so.
#include "read/direct.h"

#include <unistd.h>

#include "read_scene.h"

namespace st::read {
namespace {

using testing::fails_with;
using testing::is_ok;

// In front of the system's queue; each answer may be replaced.
class FaultyQueue : public os::ReadQueue {
 public:
  // Of the n-th call: 0 to go on; of a submission also how many bytes to ask for.
  using Fault = std::function<int(size_t n)>;
  FaultyQueue(std::unique_ptr<os::ReadQueue> base, Fault submit, Fault wait, Fault result)
      : base_(std::move(base)), submit_(std::move(submit)), wait_(std::move(wait)), result_(std::move(result)) {}
  int submit(int fd, void *buffer, uint32_t n, uint64_t offset, uint64_t tag) override {
    const int answer = submit_ ? submit_(submits_++) : 0;
    if (answer < 0) return answer;
    if (answer > 0) n = std::min(n, static_cast<uint32_t>(answer));
    return base_->submit(fd, buffer, n, offset, tag);
  }
  int wait(uint64_t *tag, int32_t *result) override {
    if (const int error = wait_ ? wait_(waits_++) : 0) return error;
    const int r = base_->wait(tag, result);
    if (const int other = result_ ? result_(results_++) : 0) *result = other;
    return r;
  }

 private:
  std::unique_ptr<os::ReadQueue> base_;
  Fault submit_, wait_, result_;
  size_t submits_ = 0, waits_ = 0, results_ = 0;
};

class DirectTest : public testing::ReadScene {
 protected:
  void SetUp() override {
    auto direct = reopen_file(file, O_RDONLY | O_DIRECT);
    if (!direct) GTEST_SKIP() << "the filesystem of " << dir.path() << " has no O_DIRECT; set TMPDIR to one that has";
  }
  // The system's queue with faults; skips nothing: without io_uring there is no queue to fail.
  bool fail_queue(FaultyQueue::Fault submit, FaultyQueue::Fault wait, FaultyQueue::Fault result) {
    if (!os::Env::posix().read_queue(8)) return false;
    env.make_queue = [=](unsigned depth) {
      return std::make_unique<FaultyQueue>(os::Env::posix().read_queue(depth), submit, wait, result);
    };
    return true;
  }
  void without_queue() {
    env.make_queue = [](unsigned) { return std::unique_ptr<os::ReadQueue>(); };
  }
  // Heads, tails, insides; in place and not.
  std::vector<Wanted> shapes() const {
    std::vector<Wanted> wanted;
    for (uint64_t misaligned : {0, 8, 1})
      for (const auto &[offset, length] : {std::pair<uint64_t, uint64_t>{0, 4096},
                                           {0, bytes.size()},
                                           {4096, 64 * KiB},
                                           {1, 4095},
                                           {4095, 2},
                                           {4095, 4098},
                                           {100, 300000},
                                           {64 * KiB - 1, 2},
                                           {128 * KiB, 1},
                                           {bytes.size() - 1, 1},
                                           {bytes.size() - 5000, 5000},
                                           {bytes.size() / 4096 * 4096, bytes.size() % 4096}})
        wanted.push_back(want(offset, length, misaligned));
    return wanted;
  }
};

TEST_F(DirectTest, EveryShapeArrivesByQueueAndByThreads) {
  for (bool queue : {true, false}) {
    if (!queue) without_queue();
    for (auto &w : shapes()) {  // alone, so that the pieces are not cut where others begin
      std::vector<Wanted> one;
      one.push_back(want(w.offset, w.length, (w.at - w.offset) % 4096));
      ASSERT_TRUE(is_ok(read(one, strategy(4, false, true)))) << queue;
      expect_read(one);
    }
    auto all = shapes();
    ASSERT_TRUE(is_ok(read(all, strategy(4, false, true)))) << queue;
    expect_read(all);
    auto many = random_pieces(3);
    ASSERT_TRUE(is_ok(read(many, strategy(4, false, true)))) << queue;
    expect_read(many);
  }
}

TEST_F(DirectTest, WhatLiesRightIsReadInPlaceAndAlignedPiecesAlone) {
  without_queue();
  std::vector<Wanted> wanted = {want(8192, 256 * KiB, 0)};
  std::set<int> descriptors;
  size_t reads = 0;
  env.on_read = [&](int fd, uint64_t offset) {
    descriptors.insert(fd);
    EXPECT_EQ(offset % 4096, 0u);
    ++reads;
    return 0;
  };
  auto done = read(wanted, strategy(4, false, true));
  ASSERT_TRUE(is_ok(done));
  expect_read(wanted);
  EXPECT_EQ(descriptors.count(file.fd()), 0u) << "no head and no tail, nothing by way of the cache";
  EXPECT_EQ(reads, done->requests);
  EXPECT_EQ(done->bytes, 256 * KiB);
}

TEST_F(DirectTest, WhereItIsRefusedFilesAreReadTheUsualWay) {
  for (int error : {EINVAL, EOPNOTSUPP, EACCES}) {
    size_t refused = 0;
    env.on_open = [&](const char *, int flags) {
      if (!(flags & O_DIRECT)) return 0;
      ++refused;
      return -error;
    };
    auto wanted = random_pieces(4);
    ASSERT_TRUE(is_ok(read(wanted, strategy(2, false, true))));
    expect_read(wanted);
    EXPECT_GT(refused, 0u);
  }
}

TEST_F(DirectTest, ARefusedSubmissionIsReadTheUsualWay) {
  for (size_t every : {1, 2, 3}) {
    if (!fail_queue([=](size_t n) { return n % every == 0 ? -EAGAIN : 0; }, {}, {}))
      GTEST_SKIP() << "the system has no io_uring";
    auto wanted = random_pieces(5);
    ASSERT_TRUE(is_ok(read(wanted, strategy(2, false, true)))) << every;
    expect_read(wanted);
  }
}

TEST_F(DirectTest, AReadThatFailedOrCameShortIsDoneAgainTheUsualWay) {
  for (int result : {-EIO, -EINVAL, -EINTR, 4096}) {
    auto fault = [=](size_t n) { return n % 2 ? result : 0; };
    if (!(result > 0 ? fail_queue(fault, {}, {}) : fail_queue({}, {}, fault)))
      GTEST_SKIP() << "the system has no io_uring";
    auto wanted = random_pieces(6);
    ASSERT_TRUE(is_ok(read(wanted, strategy(2, false, true)))) << result;
    expect_read(wanted);
  }
}

TEST_F(DirectTest, ADiskThatFailsBothWaysIsAnError) {
  env.on_read = [](int, uint64_t) { return -EIO; };
  if (!fail_queue({}, {}, [](size_t n) { return n == 3 ? -EIO : 0; })) GTEST_SKIP() << "the system has no io_uring";
  std::vector<Wanted> wanted = {want(0, bytes.size() / 4096 * 4096, 0)};
  auto done = read(wanted, strategy(2, false, true));
  ASSERT_TRUE(fails_with(Status::io, done));
  EXPECT_EQ(done.error().os_errno, EIO);
}

// The memory of what is under way is the caller's and the slots': it must not be
// given up before the kernel is done. (Seen by the address sanitizer.)
TEST_F(DirectTest, AQueueThatCannotBeWaitedForIsAnErrorAndNothingStaysUnderWay) {
  for (size_t n : {0, 1, 5}) {
    if (!fail_queue({}, [=](size_t k) { return k >= n ? -EIO : 0; }, {})) GTEST_SKIP() << "the system has no io_uring";
    auto wanted = random_pieces(7);
    auto done = read(wanted, strategy(2, false, true));
    ASSERT_TRUE(fails_with(Status::io, done)) << n;
    EXPECT_EQ(done.error().os_errno, EIO);
  }
}

TEST_F(DirectTest, CancelledInTheMiddleNothingStaysUnderWay) {
  for (bool queue : {true, false}) {
    if (!queue) without_queue();
    for (int at : {0, 1, 4, 9}) {
      auto wanted = random_pieces(8);
      int calls = 0;
      const Control control([&](uint64_t, uint64_t) { return calls++ < at; }, nullptr);
      auto done = read(wanted, strategy(2, false, true), 0, control);
      // Other threads may have been so fast that the caller was asked only once.
      if (!queue && calls <= at) continue;
      ASSERT_TRUE(fails_with(Status::cancelled, done));
    }
  }
}

TEST_F(DirectTest, ByThreadsAFailureOfAnyReadIsTriedTheUsualWayAndThenTold) {
  without_queue();
  for (size_t n : {0, 3, 20}) {
    env.on_read = [&, seen = size_t{0}](int fd, uint64_t) mutable { return fd != file.fd() && seen++ == n ? -EIO : 0; };
    auto wanted = random_pieces(9);
    ASSERT_TRUE(is_ok(read(wanted, strategy(2, false, true)))) << n;
    expect_read(wanted);
  }
  env.on_read = [](int, uint64_t) { return -EIO; };
  auto wanted = random_pieces(9);
  EXPECT_TRUE(fails_with(Status::io, read(wanted, strategy(2, false, true))));
}

}  // namespace
}  // namespace st::read
