// Bulk reads past the page cache, and the usual way where a read or the whole of
// it cannot be done so; and when that is chosen unasked.
#include "read/direct.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "os/mapping.h"
#include "os/process.h"
#include "read_scene.h"

namespace st::read {
namespace {

using namespace testing;

class DirectTest : public testing::ReadScene {
 protected:
  void SetUp() override {
    const int fd = ::open(file.path().c_str(), O_RDONLY | O_DIRECT);
    if (fd < 0) GTEST_SKIP() << "the filesystem of " << dir.path() << " has no O_DIRECT; set TMPDIR to one that has";
    ::close(fd);
    ASSERT_TRUE(is_ok(reopen_file(file, O_RDONLY | O_DIRECT)));
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

TEST_F(DirectTest, EveryShapeArrives) {
  for (auto &w : shapes()) {  // alone, so that the pieces are not cut where others begin
    std::vector<Wanted> one;
    one.push_back(want(w.offset, w.length, (w.at - w.offset) % 4096));
    ASSERT_TRUE(is_ok(read(one, strategy(4, false, true))));
    expect_read(one);
  }
  auto all = shapes();
  ASSERT_TRUE(is_ok(read(all, strategy(4, false, true))));
  expect_read(all);
  auto many = random_pieces(3);
  ASSERT_TRUE(is_ok(read(many, strategy(4, false, true))));
  expect_read(many);
}

TEST_F(DirectTest, EveryReadIsAlignedAndNoneGoesThroughThePageCache) {
  auto wanted = shapes();
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
  EXPECT_EQ(descriptors.size(), 1u);
  EXPECT_EQ(descriptors.count(file.fd()), 0u);
  EXPECT_EQ(reads, done->requests);
}

TEST_F(DirectTest, NoMoreThreadsReadThanTheStrategySays) {
  std::set<std::thread::id> threads;
  env.on_read = [&](int, uint64_t) { return threads.insert(std::this_thread::get_id()), 0; };
  auto how = strategy(4, false, true);
  how.direct_threads = 1;
  auto wanted = random_pieces(7);
  ASSERT_TRUE(is_ok(read(wanted, how)));
  expect_read(wanted);
  EXPECT_EQ(threads.size(), 1u);
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

TEST_F(DirectTest, AReadThatFailedOrCameShortIsDoneAgainTheUsualWay) {
  for (int result : {-EIO, -EINVAL, -EINTR, testing::ReadEnv::short_io})
    for (size_t every : {1, 2, 3}) {
      env.on_read = [&, n = size_t{0}](int fd, uint64_t) mutable {
        return fd != file.fd() && n++ % every == 0 ? result : 0;
      };
      auto wanted = random_pieces(6);
      ASSERT_TRUE(is_ok(read(wanted, strategy(2, false, true)))) << result;
      expect_read(wanted);
    }
}

TEST_F(DirectTest, ADiskThatFailsBothWaysIsAnError) {
  for (size_t n : {0, 3, 20}) {
    env.on_read = [&, seen = size_t{0}](int fd, uint64_t) mutable { return fd == file.fd() || seen++ == n ? -EIO : 0; };
    auto wanted = random_pieces(9);
    auto done = read(wanted, strategy(2, false, true));
    ASSERT_TRUE(fails_with(Status::io, done)) << n;
    EXPECT_EQ(done.error().os_errno, EIO);
  }
}

TEST_F(DirectTest, CancelledInTheMiddleItEnds) {
  for (int at : {0, 1, 4, 9}) {
    auto wanted = random_pieces(8);
    int calls = 0;
    const Control control([&](uint64_t, uint64_t) { return calls++ < at; }, nullptr);
    auto done = read(wanted, strategy(2, false, true), 0, control);
    // Other threads may have been so fast that the caller was asked only once.
    if (calls <= at) continue;
    ASSERT_TRUE(fails_with(Status::cancelled, done));
  }
}

// A file large enough that it matters, of which nothing is in memory.
class ColdTest : public testing::ReadScene {
 protected:
  ColdTest() : ReadScene(70 * MiB) {
    env.on_open = [&](const char *, int flags) {
      opened_direct = opened_direct || flags & O_DIRECT;
      return 0;
    };
  }
  void SetUp() override {
    forget();
    if (pages_in_memory() > 0) GTEST_SKIP() << "the filesystem of " << dir.path() << " keeps files in memory";
    auto mapping = os::Mapping::of_file(file, bytes.size(), os::MapKind::shared);
    ASSERT_TRUE(is_ok(mapping));
    EXPECT_EQ(mapping->resident(), 0u);
  }
  // As the kernel tells it.
  size_t pages_in_memory() const {
    void *at = ::mmap(nullptr, bytes.size(), PROT_READ, MAP_SHARED, file.fd(), 0);
    EXPECT_NE(at, MAP_FAILED);
    std::vector<unsigned char> pages(bytes.size() / 4096 + 1);
    EXPECT_EQ(::mincore(at, bytes.size(), pages.data()), 0);
    ::munmap(at, bytes.size());
    return static_cast<size_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return page & 1; }));
  }
  void forget() const {
    ASSERT_EQ(::fsync(file.fd()), 0);
    ASSERT_EQ(::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED), 0);
  }
  // Whether a load of n bytes goes past the page cache, once all has arrived.
  bool goes_past(Direct direct, uint64_t n) {
    opened_direct = false;
    auto how = strategy(2, false);
    how.block = 4 * MiB;
    how.direct = direct;
    std::vector<Wanted> wanted = {want(1, n, 0)};
    EXPECT_TRUE(is_ok(read(wanted, how)));
    expect_read(wanted);
    return opened_direct;
  }
  bool opened_direct = false;
};

TEST_F(ColdTest, TheFirstLoadGoesPastThePageCacheAndTheNextFillsIt) {
  EXPECT_TRUE(goes_past(Direct::automatic, 69 * MiB));
  EXPECT_FALSE(goes_past(Direct::automatic, 69 * MiB));
  EXPECT_FALSE(goes_past(Direct::automatic, 69 * MiB));
  forget();
  EXPECT_TRUE(goes_past(Direct::automatic, 69 * MiB));
}

TEST_F(ColdTest, WhatIsInMemoryInPartIsReadThroughIt) {
  std::string some(16 * MiB, '\0');
  ASSERT_EQ(::pread(file.fd(), some.data(), some.size(), 20 * MiB), static_cast<ssize_t>(some.size()));
  EXPECT_FALSE(goes_past(Direct::automatic, 69 * MiB));
}

TEST_F(ColdTest, TheFirstLoadOfAnotherUsersFileGoesPastThePageCacheToo) {
  env.user += 1000;
  env.on_mincore = [](size_t) { return 1; };  // as Linux says then
  EXPECT_TRUE(goes_past(Direct::automatic, 69 * MiB));
  EXPECT_FALSE(goes_past(Direct::automatic, 69 * MiB));
  forget();
  std::string some(32 * MiB, '\0');
  ASSERT_EQ(::pread(file.fd(), some.data(), some.size(), 20 * MiB), static_cast<ssize_t>(some.size()));
  EXPECT_FALSE(goes_past(Direct::automatic, 69 * MiB));
}

TEST_F(ColdTest, SmallLoadsAndThoseOfWhoSaysNoGoThroughThePageCache) {
  EXPECT_FALSE(goes_past(Direct::automatic, 63 * MiB));
  forget();
  EXPECT_FALSE(goes_past(Direct::off, 69 * MiB));
  EXPECT_TRUE(goes_past(Direct::on, 1 * MiB));
}

// A client of GlusterFS, whose reads go straight to where they are wanted. Here F_SETFL answers, and does nothing.
class StraightTest : public testing::ReadScene {
 protected:
  struct Client : testing::ReadEnv {
    int set_direct(int fd) override {
      std::lock_guard lock(mutex);
      return direct.insert(fd), 0;
    }
    ssize_t preadv(int fd, const struct iovec *parts, int count, uint64_t offset) override {
      {
        std::lock_guard lock(mutex);
        if (direct.contains(fd)) into.insert(into.end(), parts, parts + count);
      }
      return ReadEnv::preadv(fd, parts, count, offset);
    }
    std::mutex mutex;
    std::set<int> direct;
    std::vector<struct iovec> into;  // what is read so
  };
  StraightTest() {
    auto opened = os::File::open(client, AT_FDCWD, path, O_RDONLY, 0, path);
    EXPECT_TRUE(is_ok(opened));
    file = std::move(*opened);
    file.read_past_cache(os::PastCache::by_length);
  }
  ~StraightTest() override { file = {}; }
  Client client;
};

TEST_F(StraightTest, OnlyWholePagesAreFilledWhereTheyAre) {
  const size_t page = os::page_size();
  for (const bool by_halves : {false, true}) {
    if (by_halves) client.on_read = [n = 0](int, uint64_t) mutable { return n++ % 3 ? 0 : ReadEnv::short_io; };
    size_t where_wanted = 0;
    // What one read used for its edges may be where the next is wanted.
    for (std::vector<Wanted> wanted : {random_pieces(5), {want(1, 100000, 0), want(100500, 70000, 1)}}) {
      client.into.clear();
      ASSERT_TRUE(is_ok(read(wanted, strategy(2, false))));
      expect_read(wanted);
      for (const struct iovec &part : client.into) {
        const auto *at = static_cast<const char *>(part.iov_base);
        if (by_halves) continue;  // what goes on amid a page has it for itself
        EXPECT_EQ(reinterpret_cast<uintptr_t>(at) % page, 0u);
        for (const Wanted &w : wanted) {
          if (at < w.room->data() || at >= w.room->data() + w.room->size()) continue;
          ++where_wanted;
          EXPECT_EQ(part.iov_len % page, 0u);
        }
      }
    }
    EXPECT_EQ(where_wanted > 0, !by_halves);
  }
}

}  // namespace
}  // namespace st::read
