// Memory of our own: aligned, whole, gone when it dies, and an exception if it
// cannot be had.
#include "read/arena.h"

#include <cstring>
#include <new>

#include "base/round.h"
#include "os/process.h"
#include "read_scene.h"

namespace st::read {
namespace {

// Counts mappings, and refuses some.
class MapEnv : public testing::FaultEnv {
 public:
  MapEnv() : FaultEnv(os::Env::posix()) {}
  int mmap(size_t n, int protection, int flags, int fd, void **out) override {
    if (flags & MAP_HUGETLB) {
      ++reserved;
      EXPECT_EQ(flags >> 26, 21) << "pages of 2^21 bytes";
      EXPECT_EQ(n % (2 << 20), 0u);
    }
    if (refuse_all || (flags & MAP_HUGETLB)) return -ENOMEM;
    mapped += n;
    return os::Env::posix().mmap(n, protection, flags, fd, out);
  }
  int munmap(void *address, size_t n) override {
    mapped -= n;
    return os::Env::posix().munmap(address, n);
  }
  size_t mapped = 0, reserved = 0;
  bool refuse_all = false;
};

TEST(ArenaTest, IsAlignedAndWhole) {
  MapEnv env;
  for (size_t n : {1ul, 4096ul, 100000ul, (2ul << 20) - 1, 2ul << 20, (6ul << 20) + 5}) {
    const Arena arena = Arena::of(env, n, false);
    EXPECT_EQ(arena.size(), n);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.data()) % 4096, 0u);
    std::memset(arena.data(), 7, n);
    EXPECT_EQ(env.mapped, n < 2ul << 20 ? 0 : round_up(n, os::page_size())) << n;
  }
  EXPECT_EQ(env.mapped, 0u) << "given back";
}

TEST(ArenaTest, OfAViewIsAlignedAsItsLengthWants) {
  MapEnv env;
  for (size_t n : {1ul, 64ul, 4095ul, 4096ul, 100000ul, 3ul << 20}) {
    const Arena arena = Arena::of_view(env, n);
    EXPECT_EQ(arena.size(), n);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.data()) % (n < 4096 ? 64 : 4096), 0u) << n;
    std::memset(arena.data(), 7, n);
  }
  EXPECT_EQ(env.mapped, 0u) << "given back";
}

TEST(ArenaTest, ReservedPagesAreAskedForAndDoneWithout) {
  MapEnv env;
  for (size_t n : {1ul, 3ul << 20}) {
    const Arena arena = Arena::of(env, n, true);
    std::memset(arena.data(), 7, n);
  }
  EXPECT_EQ(env.reserved, 2u);
  EXPECT_EQ(env.mapped, 0u);
}

TEST(ArenaTest, MovesOnceAndIsFreedOnce) {
  MapEnv env;
  Arena a = Arena::of(env, 3 << 20, false), b;
  std::byte *const bytes = a.data();
  b = std::move(a);
  EXPECT_EQ(b.data(), bytes);
  EXPECT_EQ(a.data(), nullptr);
  b = Arena::of(env, 10, false);
  EXPECT_EQ(env.mapped, 0u);
}

TEST(ArenaTest, MemoryThatCannotBeHadIsBadAlloc) {
  MapEnv env;
  env.refuse_all = true;
  EXPECT_THROW(Arena::of(env, 3 << 20, false), std::bad_alloc);
  env.refuse_all = false;
  EXPECT_THROW(Arena::of(env, uint64_t{1} << 60, false), std::bad_alloc);
}

}  // namespace
}  // namespace st::read
