// Huge pages while they come quickly, small ones from then on; and what is refused changes nothing.
#include "read/fresh_memory.h"

#include <vector>

#include "base/huge_memory.h"
#include "read/arena.h"
#include "read_scene.h"

namespace st::read {
namespace {

struct Advice {
  std::byte *at;
  size_t n;
  int advice;
  bool operator==(const Advice &) const = default;
};

// Each huge page takes `each` of processor time. Only notes what it is asked for.
class PageEnv : public testing::FaultEnv {
 public:
  PageEnv() : FaultEnv(os::Env::posix()) {}
  uint64_t thread_ns() override { return now; }
  int madvise(void *at, size_t n, int advice) override {
    asked.push_back({static_cast<std::byte *>(at), n, advice});
    if (advice == MADV_POPULATE_WRITE) now += each;
    return answer;
  }
  uint64_t now = 0, each = 200'000;
  int answer = 0;
  std::vector<Advice> asked;
};

class FreshMemoryTest : public ::testing::Test {
 protected:
  static constexpr size_t small = 4096;
  std::byte *const page = reinterpret_cast<std::byte *>(uintptr_t{1} << 30);  // where none is: no byte is touched here
  PageEnv env;
  FreshMemory memory{env};
};

TEST_F(FreshMemoryTest, AsksForTheHugePagesThatLieInIt) {
  memory.expect(page - small, 2 * huge_page + 2 * small);
  EXPECT_EQ(env.asked, (std::vector<Advice>{{page, huge_page, MADV_POPULATE_WRITE},
                                            {page + huge_page, huge_page, MADV_POPULATE_WRITE}}));
}

TEST_F(FreshMemoryTest, LittleIsNotWorthIt) {
  memory.expect(page, huge_page - 1);
  memory.expect(page + 1, huge_page);  // none lies in it
  EXPECT_TRUE(env.asked.empty());
}

TEST_F(FreshMemoryTest, AfterASlowOneTheRestIsSmallForGood) {
  env.each = 2'000'000;
  memory.expect(page, 3 * huge_page);
  EXPECT_EQ(env.asked, (std::vector<Advice>{{page, huge_page, MADV_POPULATE_WRITE},
                                            {page + huge_page, 2 * huge_page, MADV_NOHUGEPAGE},
                                            {page + huge_page, 2 * huge_page, MADV_POPULATE_WRITE}}));
  env.asked.clear();
  env.each = 200'000;
  memory.expect(page + 4 * huge_page + 10, 2 * huge_page);  // only whole pages
  EXPECT_EQ(env.asked,
            (std::vector<Advice>{{page + 4 * huge_page + small, 2 * huge_page - small, MADV_NOHUGEPAGE},
                                 {page + 4 * huge_page + small, 2 * huge_page - small, MADV_POPULATE_WRITE}}));
}

TEST_F(FreshMemoryTest, NothingIsLeftToSayIfTheLastWasSlow) {
  env.each = 2'000'000;
  memory.expect(page, huge_page);
  EXPECT_EQ(env.asked, (std::vector<Advice>{{page, huge_page, MADV_POPULATE_WRITE}}));
}

TEST(FreshMemoryBytesTest, TouchedMemoryKeepsItsBytes) {
  PageEnv env;
  FreshMemory quick(os::Env::posix());
  HugeBuffer touched(4 * huge_page);
  auto *const bytes = reinterpret_cast<std::byte *>(touched.get());
  std::fill_n(bytes, 4 * huge_page, std::byte{7});
  quick.expect(bytes + 5, 4 * huge_page - 5);
  EXPECT_EQ(std::count(bytes, bytes + 4 * huge_page, std::byte{7}), static_cast<ptrdiff_t>(4 * huge_page));
}

// Whose huge pages are slow.
class SlowPages : public testing::ReadEnv {
 public:
  uint64_t thread_ns() override { return now += 1'000'000; }
  int madvise(void *at, size_t n, int advice) override {
    if (advice == MADV_NOHUGEPAGE) small += n;
    return ReadEnv::madvise(at, n, advice);
  }
  std::atomic<uint64_t> now = 0, small = 0;
};

class FreshReadTest : public testing::ReadScene {
 protected:
  FreshReadTest() : ReadScene(16 * MiB) {}
};

TEST_F(FreshReadTest, BytesArriveOnPagesOfEitherSize) {
  SlowPages slow;
  auto from = os::File::open(slow, AT_FDCWD, path, O_RDONLY, 0, path);
  ASSERT_TRUE(testing::is_ok(from));
  for (const bool direct : {false, true})
    for (const bool fresh : {true, false}) {
      Strategy how = strategy(2, false, direct);
      how.block = 8 * MiB;
      slow.small = 0;
      const Arena arena = Arena::of(slow, bytes.size(), false);
      const auto done = read_pieces(*from, {{0, bytes.size(), arena.data(), fresh}}, how, 0, Control());
      ASSERT_TRUE(testing::is_ok(done));
      EXPECT_EQ(std::memcmp(arena.data(), bytes.data(), bytes.size()), 0);
      EXPECT_EQ(slow.small > 0, fresh) << (direct ? "direct" : "");
    }
}

}  // namespace
}  // namespace st::read
