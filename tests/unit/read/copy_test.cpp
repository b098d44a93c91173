// Copies of tensors and slices: the right bytes, and no more of the file than
// is needed for them.
#include <random>

#include "fault_env.h"
#include "read/copy.h"
#include "test_files.h"

namespace st::read {
namespace {

using namespace testing;

class MeterEnv : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  ssize_t pread(int fd, void *buffer, size_t n, uint64_t offset) override {
    offsets.push_back(offset);
    const ssize_t got = FaultEnv::pread(fd, buffer, n, offset);
    if (got > 0) bytes += static_cast<uint64_t>(got);
    return got;
  }
  uint64_t long_read() override { return long_read_; }
  uint64_t bytes = 0, long_read_ = 0;
  std::vector<uint64_t> offsets;
};

class CopyTest : public ::testing::Test {
 protected:
  void make(size_t n) {
    content = testing::pattern(n, 9);
    testing::put_bytes(path, content);
    auto opened = os::File::open(env, AT_FDCWD, path, O_RDONLY, 0, path);
    ASSERT_TRUE(is_ok(opened));
    file = std::move(*opened);
  }
  Source source() const { return {&file, nullptr}; }
  Source memory() const { return {nullptr, reinterpret_cast<const std::byte *>(content.data())}; }

  // The slice by the plan's own runs, which slice_test holds against a model.
  std::string expected(uint64_t offset, const SlicePlan &plan) const {
    std::string out(plan.nbytes(), '\0');
    for (SlicePlan::Cursor run(plan); !run.done(); run.next())
      out.replace(run.destination(), plan.run_bytes(), content, offset + run.source(), plan.run_bytes());
    return out;
  }

  TempDir dir;
  const std::string path = dir / "f";
  std::string content;
  MeterEnv env{os::Env::posix()};
  os::File file;
};

// Behind a URL a long read has several requests under way, and each that ends waits for the last of them.
TEST_F(CopyTest, AReadIsAsLongAsTheStorageLikesIt) {
  constexpr uint64_t piece = uint64_t{16} << 20, n = 2 * piece + 100;
  make(n);
  std::string out(n, '?');
  for (const auto &[longest, reads] : {std::pair(0, 3), {8 << 20, 3}, {24 << 20, 2}, {64 << 20, 1}}) {
    env.long_read_ = static_cast<uint64_t>(longest);
    env.offsets.clear();
    out.assign(n, '?');
    ASSERT_TRUE(is_ok(copy(source(), 0, n, out.data(), {})));
    EXPECT_TRUE(same_bytes(out, content));
    EXPECT_EQ(env.offsets.size(), static_cast<size_t>(reads)) << longest;
  }
}

TEST_F(CopyTest, AWholeTensorIsReadOnceAndInOrder) {
  make(5000);
  std::string out(3000, '?');
  ASSERT_TRUE(is_ok(copy(source(), 1000, 3000, out.data(), {})));
  EXPECT_TRUE(same_bytes(out, content.substr(1000, 3000)));
  EXPECT_EQ(env.bytes, 3000u);
  std::string again(3000, '?');
  ASSERT_TRUE(is_ok(copy(memory(), 1000, 3000, again.data(), {})));
  EXPECT_TRUE(same_bytes(again, out));
  EXPECT_TRUE(is_ok(copy(source(), 1000, 0, nullptr, {})));
}

TEST_F(CopyTest, ProgressIsToldAndCanCancel) {
  make(40u << 20);
  std::string out(content.size(), '?');
  std::vector<uint64_t> told;
  const Control watch([&](uint64_t done, uint64_t total) { return told.push_back(done), total == content.size(); },
                      nullptr);
  ASSERT_TRUE(is_ok(copy(source(), 0, content.size(), out.data(), watch)));
  EXPECT_TRUE(same_bytes(out, content));
  ASSERT_GE(told.size(), 3u);
  EXPECT_EQ(told.front(), 0u);
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));

  env.bytes = 0;
  const Control cancel([](uint64_t done, uint64_t) { return done == 0; }, nullptr);
  EXPECT_TRUE(fails_with(Status::cancelled, copy(source(), 0, content.size(), out.data(), cancel)));
  EXPECT_LT(env.bytes, content.size());

  std::atomic<uint64_t> interrupts = 0;
  const Control interrupt({}, &interrupts);
  ++interrupts;
  env.bytes = 0;
  EXPECT_TRUE(fails_with(Status::interrupted, copy(source(), 0, content.size(), out.data(), interrupt)));
  EXPECT_EQ(env.bytes, 0u);
}

TEST_F(CopyTest, SlicesOfRandomTensorsAreRight) {
  std::mt19937_64 random(21);
  make(1u << 20);
  for (int round = 0; round < 1500; ++round) {
    std::vector<uint64_t> shape(1 + random() % 4);
    uint64_t elements = 1;
    for (uint64_t &dim : shape) elements *= dim = 1 + random() % (round % 10 == 0 ? 60 : 12);
    if (elements * 4 > content.size()) continue;
    std::vector<Range> ranges(random() % (shape.size() + 1));
    for (size_t d = 0; d < ranges.size(); ++d) {
      constexpr int64_t steps[] = {1, 1, 2, 7, -1, -3};
      const auto dim = static_cast<int64_t>(shape[d]);
      ranges[d] = {static_cast<int64_t>(random() % shape[d]) - (random() % 2 ? dim : 0),
                   random() % 3 ? INT64_MAX : dim / 2, steps[random() % 6]};
      if (ranges[d].step < 0 && random() % 2) ranges[d].stop = INT64_MIN;
    }
    auto plan = SlicePlan::make(Dtype::F32, shape, ranges);
    ASSERT_TRUE(is_ok(plan));
    const uint64_t offset = random() % (content.size() - elements * 4 + 1);
    const std::string wanted = expected(offset, *plan);
    for (const Source &from : {source(), memory()}) {
      std::string out(plan->nbytes(), '?');
      env.bytes = 0;
      auto read = copy_slice(from, offset, *plan, out.data(), {});
      ASSERT_TRUE(is_ok(read));
      ASSERT_TRUE(same_bytes(out, wanted)) << round;
      ASSERT_GE(*read, plan->nbytes());
      ASSERT_LE(*read, elements * 4);
      if (from.file) {
        ASSERT_EQ(env.bytes, *read);  // what it says is what it did
      }
    }
  }
}

// 2048 rows of 16 KiB: every 64th row is far from the next, so nothing else is read.
TEST_F(CopyTest, FarRowsAreReadByThemselves) {
  make(32u << 20);
  const uint64_t shape[] = {1024, 8192};
  const Range every64th[] = {{0, INT64_MAX, 64}};
  auto plan = SlicePlan::make(Dtype::F32, shape, every64th);
  ASSERT_TRUE(is_ok(plan));
  std::string out(plan->nbytes(), '?');
  auto read = copy_slice(source(), 0, *plan, out.data(), {});
  ASSERT_TRUE(is_ok(read));
  EXPECT_TRUE(same_bytes(out, expected(0, *plan)));
  EXPECT_EQ(*read, plan->nbytes());
  EXPECT_EQ(env.bytes, uint64_t{32u << 20} / 64);
  EXPECT_TRUE(std::is_sorted(env.offsets.begin(), env.offsets.end()));
}

// A narrow column: small gaps are cheaper to read through than to read twice.
TEST_F(CopyTest, NearRunsShareAReadOfBoundedSize) {
  make(8u << 20);
  const uint64_t shape[] = {4096, 512};  // rows of 2 KiB
  const Range column[] = {{0, INT64_MAX, 1}, {10, 12, 1}};
  auto plan = SlicePlan::make(Dtype::F32, shape, column);
  ASSERT_TRUE(is_ok(plan));
  std::string out(plan->nbytes(), '?');
  auto read = copy_slice(source(), 0, *plan, out.data(), {});
  ASSERT_TRUE(is_ok(read));
  EXPECT_TRUE(same_bytes(out, expected(0, *plan)));
  EXPECT_LE(*read, 8u << 20);
  EXPECT_LT(env.offsets.size(), 20u);  // not one for each of 4096 runs
  EXPECT_TRUE(std::is_sorted(env.offsets.begin(), env.offsets.end()));
}

TEST_F(CopyTest, ReversedRowsAreStillReadInTheOrderOfTheFile) {
  make(4u << 20);
  const uint64_t shape[] = {16, 65536};
  const Range backwards[] = {{-1, INT64_MIN, -3}};
  auto plan = SlicePlan::make(Dtype::F32, shape, backwards);
  ASSERT_TRUE(is_ok(plan));
  std::string out(plan->nbytes(), '?');
  ASSERT_TRUE(is_ok(copy_slice(source(), 0, *plan, out.data(), {})));
  EXPECT_TRUE(same_bytes(out, expected(0, *plan)));
  EXPECT_EQ(out.substr(0, 262144), content.substr(15 * 262144, 262144));
  EXPECT_TRUE(std::is_sorted(env.offsets.begin(), env.offsets.end()));
}

TEST_F(CopyTest, SlicesTellProgressAndStop) {
  make(48u << 20);
  const uint64_t shape[] = {48, 262144};
  const Range most[] = {{0, INT64_MAX, 1}, {0, 262100, 1}};
  auto plan = SlicePlan::make(Dtype::F32, shape, most);
  ASSERT_TRUE(is_ok(plan));
  std::string out(plan->nbytes(), '?');
  std::vector<uint64_t> told;
  const Control watch([&](uint64_t done, uint64_t total) { return told.push_back(done), total == plan->nbytes(); },
                      nullptr);
  ASSERT_TRUE(is_ok(copy_slice(source(), 0, *plan, out.data(), watch)));
  EXPECT_GE(told.size(), 3u);
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  const Control cancel([](uint64_t done, uint64_t) { return done == 0; }, nullptr);
  EXPECT_TRUE(fails_with(Status::cancelled, copy_slice(source(), 0, *plan, out.data(), cancel)));
}

TEST_F(CopyTest, ATruncatedFileIsAnErrorAndNoSignal) {
  make(100000);
  std::filesystem::resize_file(path, 50000);
  std::string out(100000, '?');
  EXPECT_TRUE(fails_with(Status::file_changed, copy(source(), 0, 100000, out.data(), {})));
  EXPECT_TRUE(is_ok(copy(source(), 0, 50000, out.data(), {})));
  const uint64_t shape[] = {10, 10000};
  const Range ends[] = {{0, INT64_MAX, 1}, {0, 10, 1}};
  auto plan = SlicePlan::make(Dtype::U8, shape, ends);
  EXPECT_TRUE(fails_with(Status::file_changed, copy_slice(source(), 0, *plan, out.data(), {})));
}

TEST_F(CopyTest, AFailingReadIsPassedOn) {
  make(1000);
  env.before = testing::nth_call_fails(0, -EIO, true, [](testing::Call call) { return call == testing::Call::pread; });
  std::string out(1000, '?');
  auto r = copy(source(), 0, 1000, out.data(), {});
  ASSERT_TRUE(fails_with(Status::io, r));
  EXPECT_EQ(r.error().os_errno, EIO);
}

}  // namespace
}  // namespace st::read
