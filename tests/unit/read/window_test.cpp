// Files looked at in sequence, through one block of memory.
#include "read/window.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>

#include "fault_env.h"
#include "test_files.h"

namespace st::read {
namespace {

using namespace testing;

// Such a read makes more of it the more was measured.
class LearningEnv : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  uint64_t long_read() override { return best; }
  ssize_t pread(int fd, void *buffer, size_t n, uint64_t offset) override {
    longest = std::max(longest, n);
    best = uint64_t{8} << 20;
    return FaultEnv::pread(fd, buffer, n, offset);
  }
  uint64_t best = 0;
  size_t longest = 0;
};

TEST(WindowTest, KeepsToTheMemoryThatItHas) {
  constexpr uint64_t MiB = 1 << 20, size = 16 * MiB;
  const TempDir dir;
  const std::string path = dir / "f", content = pattern(size, 3);
  put_bytes(path, content);
  LearningEnv env{os::Env::posix()};
  auto file = os::File::open(env, AT_FDCWD, path, O_RDONLY, 0, path);
  ASSERT_TRUE(is_ok(file));
  Window window(*file, size, true);
  for (uint64_t at = 0; at < size; at += MiB) {
    const auto got = window.at(at, MiB);
    ASSERT_TRUE(is_ok(got));
    ASSERT_EQ(got->size(), MiB);
    EXPECT_EQ(0, std::memcmp(got->data(), content.data() + at, MiB));
  }
  EXPECT_EQ(env.longest, 4 * MiB);
}

}  // namespace
}  // namespace st::read
