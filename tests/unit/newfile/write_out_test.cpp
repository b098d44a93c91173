// How much is on its way to a disk at once.
#include "newfile/write_out.h"

#include <gtest/gtest.h>

#include <vector>

#include "fault_env.h"
#include "test_files.h"

namespace st::write {
namespace {

constexpr uint64_t MiB = uint64_t{1} << 20;

// Takes `ms` for each slice, and tells how many bytes were waited for.
class Disk : public testing::FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  int sync_range(int, uint64_t, uint64_t n) override { return started += n, 0; }
  int wait_range(int, uint64_t offset, uint64_t n) override {
    EXPECT_EQ(offset, taken);
    taken += n;
    now += ms;
    slices.push_back(n / MiB);
    return 0;
  }
  uint64_t monotonic_ms() override { return now; }
  uint64_t ms = 0, now = 0, started = 0, taken = 0;
  std::vector<uint64_t> slices;
};

TEST(WriteOutTest, SlicesGrowWhileTheDiskIsQuickAndShrinkWhenItIsSlow) {
  const testing::TempDir dir;
  Disk disk(os::Env::posix());
  const std::string path = dir / "new";
  testing::put_bytes(path, "");
  auto file = os::File::open(disk, AT_FDCWD, path, O_RDWR, 0, path);
  ASSERT_TRUE(testing::is_ok(file));
  WriteOut out(*file, 0);
  uint64_t end = 0;
  const auto slices_of = [&](uint64_t ms, size_t n) {
    disk.ms = ms;
    disk.slices.clear();
    while (disk.slices.size() < n) {
      EXPECT_TRUE(out.reached(++end * MiB, [] { return Result<void>(); }));
      EXPECT_LE(disk.started - disk.taken, 256 * MiB);
    }
    return disk.slices;
  };
  using Sizes = std::vector<uint64_t>;
  EXPECT_EQ(slices_of(1, 10), (Sizes{1, 1, 2, 4, 8, 16, 32, 64, 128, 128}));
  EXPECT_EQ(slices_of(30, 2), (Sizes{128, 128}));
  EXPECT_EQ(slices_of(200, 11), (Sizes{128, 128, 64, 32, 16, 8, 4, 2, 1, 1, 1}));
  EXPECT_EQ(slices_of(1, 4), (Sizes{1, 1, 1, 2}));  // the first was started when it still was slow
}

}  // namespace
}  // namespace st::write
