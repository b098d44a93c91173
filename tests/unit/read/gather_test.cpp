// Slices of many runs by few reads: the right bytes, near runs by one read, and bounded memory.
#include "read/gather.h"

#include <algorithm>
#include <atomic>
#include <random>

#include "fault_env.h"
#include "test_files.h"

namespace st::read {
namespace {

using namespace testing;

class CountingEnv : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  ssize_t preadv(int fd, const struct iovec *parts, int count, uint64_t offset) override {
    ++reads;
    return FaultEnv::preadv(fd, parts, count, offset);
  }
  ssize_t pread(int fd, void *buffer, size_t n, uint64_t offset) override {
    ++reads;
    return FaultEnv::pread(fd, buffer, n, offset);
  }
  std::atomic<int> reads = 0;
};

class GatherTest : public ::testing::Test {
 protected:
  static constexpr uint64_t KiB = 1024;

  void SetUp() override {
    testing::put_bytes(path, content);
    auto opened = os::File::open(env, AT_FDCWD, path, O_RDONLY, 0, path);
    ASSERT_TRUE(is_ok(opened));
    file = std::move(*opened);
    strategy.threads = 4;
    strategy.block = 64 * KiB;
    strategy.gap = strategy.memory_gap = 4 * KiB;
    strategy.thread_work = 1;
  }
  static SlicePlan plan_of(const std::vector<uint64_t> &shape, const std::vector<Range> &ranges) {
    return *SlicePlan::make(Dtype::U8, shape, ranges);
  }
  // The slice by the plan's own runs, which slice_test holds against a model.
  std::string expected(uint64_t offset, const SlicePlan &plan) const {
    std::string out(plan.nbytes(), '\0');
    for (SlicePlan::Cursor run(plan); !run.done(); run.next())
      out.replace(run.destination(), plan.run_bytes(), content, offset + run.source(), plan.run_bytes());
    return out;
  }
  std::byte *bytes_of(std::string &text) { return reinterpret_cast<std::byte *>(text.data()); }

  TempDir dir;
  const std::string path = dir / "f";
  const std::string content = testing::pattern(1 << 20, 9);
  CountingEnv env{os::Env::posix()};
  os::File file;
  Strategy strategy;
};

TEST_F(GatherTest, AnySlicesAreTheirBytes) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    strategy.block = static_cast<uint32_t>(64 * KiB << random() % 4);
    strategy.gap = strategy.memory_gap = 1u << random() % 17;
    std::vector<SlicePlan> plans;
    std::vector<uint64_t> offsets;
    uint64_t total = 0;
    for (int i = 0; i < 3; ++i) {
      const uint64_t columns = 1 + random() % 20000, rows = 1 + random() % (content.size() / columns / 2);
      const auto from = static_cast<int64_t>(random() % columns);
      const auto until = from + 1 + static_cast<int64_t>(random() % (columns - static_cast<uint64_t>(from)));
      const int64_t step = 1 + static_cast<int64_t>(random() % 3);
      plans.push_back(plan_of({rows, columns}, {{0, static_cast<int64_t>(rows), step}, {from, until, step}}));
      offsets.push_back(random() % (content.size() / 2));
      total += plans.back().nbytes();
    }
    const Control control;
    Gather gather(file, strategy, control, total, 100 * KiB << random() % 5);
    std::vector<std::string> out;
    out.reserve(plans.size());
    for (size_t i = 0; i < plans.size(); ++i) {
      out.emplace_back(plans[i].nbytes(), '?');
      ASSERT_TRUE(is_ok(gather.add(offsets[i], plans[i], bytes_of(out[i]))));
    }
    ASSERT_TRUE(is_ok(gather.finish()));
    for (size_t i = 0; i < plans.size(); ++i) ASSERT_TRUE(same_bytes(out[i], expected(offsets[i], plans[i]))) << round;
  }
}

TEST_F(GatherTest, NearRunsAreOneRead) {
  const auto plan = plan_of({128, 4096}, {{0, 128, 1}, {0, 1024, 1}});
  const Control control;
  std::string out(plan.nbytes(), '?');
  Gather gather(file, strategy, control, plan.nbytes());
  ASSERT_TRUE(is_ok(gather.add(0, plan, bytes_of(out))));
  EXPECT_EQ(env.reads, 0) << "all of them are asked for at once";
  const auto done = gather.finish();
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->requests, 8u) << "one a block";
  EXPECT_LE(done->bytes, 512 * KiB);
  EXPECT_TRUE(same_bytes(out, expected(0, plan)));
}

TEST_F(GatherTest, FarRunsAreAReadEach) {
  const auto plan = plan_of({32, 16 * KiB}, {{0, 32, 1}, {0, 1024, 1}});
  const Control control;
  std::string out(plan.nbytes(), '?');
  Gather gather(file, strategy, control, plan.nbytes());
  ASSERT_TRUE(is_ok(gather.add(100, plan, bytes_of(out))));
  const auto done = gather.finish();
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->requests, 32u);
  EXPECT_EQ(done->bytes, 32 * KiB);
  EXPECT_TRUE(same_bytes(out, expected(100, plan)));
}

// Requests end at multiples of the block of the file, wherever a slice begins.
TEST_F(GatherTest, AWindowIsOneRequestWhereverItBegins) {
  const auto plan = plan_of({240, 4096}, {{0, 240, 1}, {0, 1024, 1}});
  const Control control;
  std::string out(plan.nbytes(), '?');
  Gather gather(file, strategy, control, plan.nbytes(), strategy.block);
  const uint64_t offset = 33 * KiB;
  ASSERT_TRUE(is_ok(gather.add(offset, plan, bytes_of(out))));
  const auto done = gather.finish();
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->requests, (offset % strategy.block + 240 * 4 * KiB) / strategy.block + 1);
  EXPECT_TRUE(same_bytes(out, expected(offset, plan)));
}

// A gap is read where little is wanted only if it is short.
TEST_F(GatherTest, AGapIsReadWhereWhatLiesBesideItIsWorthIt) {
  strategy.block = 1024 * KiB;
  strategy.gap = strategy.memory_gap = 256 * KiB;
  struct Case {
    uint64_t row, wanted, requests;
  };
  for (const auto &[row, wanted, requests] : {Case{100 * KiB, 4, 10}, Case{60 * KiB, 4, 1}, Case{100 * KiB, 4 * KiB, 1},
                                              Case{300 * KiB, 8 * KiB, 3}, Case{100 * KiB, 1 * KiB, 10}}) {
    const uint64_t rows = content.size() / row;
    const auto n = static_cast<int64_t>(rows);
    const auto plan = plan_of({rows, row}, {{0, n, 1}, {0, static_cast<int64_t>(wanted), 1}});
    const Control control;
    std::string out(plan.nbytes(), '?');
    Gather gather(file, strategy, control, plan.nbytes());
    ASSERT_TRUE(is_ok(gather.add(0, plan, bytes_of(out))));
    const auto done = gather.finish();
    ASSERT_TRUE(is_ok(done));
    EXPECT_EQ(done->requests, requests) << row << ", " << wanted;
    EXPECT_EQ(done->bytes, requests == 1 ? (rows - 1) * row + wanted : plan.nbytes()) << row << ", " << wanted;
    EXPECT_TRUE(same_bytes(out, expected(0, plan)));
  }
}

// More runs than are asked for at once, and more windows than have room.
TEST_F(GatherTest, WhatIsTooMuchIsReadInTurns) {
  strategy.gap = strategy.memory_gap = 0;
  const auto far = plan_of({5000, 100}, {{0, 5000, 1}, {0, 10, 1}});
  std::string out(far.nbytes(), '?');
  const Control control;
  Gather gather(file, strategy, control, far.nbytes());
  ASSERT_TRUE(is_ok(gather.add(0, far, bytes_of(out))));
  EXPECT_GE(env.reads, 4096);
  ASSERT_TRUE(is_ok(gather.finish()));
  EXPECT_TRUE(same_bytes(out, expected(0, far)));

  strategy.gap = strategy.memory_gap = 4 * KiB;
  const auto near = plan_of({256, 4096}, {{0, 256, 1}, {0, 1024, 1}});
  std::string again(near.nbytes(), '?');
  Gather narrow(file, strategy, control, near.nbytes(), 128 * KiB);
  ASSERT_TRUE(is_ok(narrow.add(0, near, bytes_of(again))));
  ASSERT_TRUE(is_ok(narrow.finish()));
  EXPECT_TRUE(same_bytes(again, expected(0, near)));
}

TEST_F(GatherTest, ProgressCountsTheBytesOfTheSlicesAndCanCancel) {
  const auto plan = plan_of({256, 4096}, {{0, 256, 1}, {0, 1024, 1}});
  std::string out(plan.nbytes(), '?');
  std::vector<uint64_t> told;
  const Control watch([&](uint64_t done, uint64_t total) { return told.push_back(done), total == plan.nbytes(); },
                      nullptr);
  Gather gather(file, strategy, watch, plan.nbytes(), 128 * KiB);
  ASSERT_TRUE(is_ok(gather.add(0, plan, bytes_of(out))));
  ASSERT_TRUE(is_ok(gather.finish()));
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.back(), plan.nbytes());

  const Control cancel([](uint64_t, uint64_t) { return false; }, nullptr);
  Gather stopped(file, strategy, cancel, plan.nbytes());
  ASSERT_TRUE(is_ok(stopped.add(0, plan, bytes_of(out))));
  EXPECT_TRUE(fails_with(Status::cancelled, stopped.finish()));
  Gather in_turns(file, strategy, cancel, plan.nbytes(), 128 * KiB);
  EXPECT_TRUE(fails_with(Status::cancelled, in_turns.add(0, plan, bytes_of(out))));
}

}  // namespace
}  // namespace st::read
