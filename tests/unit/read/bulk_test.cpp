// Many stretches of a file at once: the right bytes whatever the threads, the
// order and the luck of each read, and nothing else.
#include "read/bulk.h"

#include <stdexcept>
#include <thread>

#include "read/content.h"
#include "read/warm.h"
#include "read_scene.h"

namespace st::read {
namespace {

using namespace testing;

class BulkTest : public testing::ReadScene {
 protected:
  // Every way to read: threads, ranges of their own, past the page cache.
  static std::vector<Strategy> ways() {
    std::vector<Strategy> all;
    for (uint32_t threads : {1u, 2u, 3u, 8u})
      for (bool own_range : {false, true}) all.push_back(strategy(threads, own_range));
    all.push_back(strategy(4, false, true));
    return all;
  }
  static std::string name(const Strategy &s) {
    return text(s.threads, " threads", s.own_range ? " of ranges" : "", s.direct == Direct::on ? ", direct" : "");
  }
};

TEST_F(BulkTest, AnyPiecesArriveWithAnyThreads) {
  unsigned seed = 0;
  for (const Strategy &way : ways())
    for (uint64_t gap : {0, 4096, 1 << 20}) {
      SCOPED_TRACE(name(way));
      Strategy how = way;
      how.gap = gap;
      auto wanted = random_pieces(++seed, how.threads);
      uint64_t sum = 0;
      for (const Wanted &w : wanted) sum += w.length;
      auto done = read(wanted, how);
      ASSERT_TRUE(is_ok(done));
      expect_read(wanted);
      EXPECT_GE(done->bytes, sum);
      EXPECT_GT(done->requests, bytes.size() / how.block);
      if (gap == 0) {
        EXPECT_EQ(done->bytes, sum);
      }
    }
}

TEST_F(BulkTest, NothingToReadIsNoRead) {
  std::vector<Wanted> wanted = {want(5, 0, 0)};
  auto done = read(wanted, strategy(2, true));
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->requests, 0u);
  EXPECT_EQ(env.reads, 0u);
}

class GapTest : public testing::ReadScene {
 protected:
  // Pages, every third of the file: the gaps between them are two pages long.
  Result<BulkDone> every_third_page() {
    Strategy how = strategy(1, false);
    how.gap = 8 * KiB;
    how.memory_gap = 4 * KiB;
    std::vector<Wanted> wanted;
    for (uint64_t at = 0; at + 4096 < bytes.size(); at += uint64_t{3} * 4096) wanted.push_back(want(at, 4096, 0));
    sum = wanted.size() * 4096;
    env.questions = 0;
    auto done = read(wanted, how);
    expect_read(wanted);
    return done;
  }
  uint64_t sum = 0;
};

TEST_F(GapTest, GapsOfWhatIsInMemoryAreNotRead) {
  env.on_mincore = [](size_t) { return 1; };
  auto done = every_third_page();
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->bytes, sum);
  EXPECT_EQ(done->requests, sum / 4096);
  EXPECT_LE(env.questions, 8u);
}

TEST_F(GapTest, GapsAreReadThroughWhereAPlaceIsNotInMemoryOrNobodyTells) {
  for (int answer : {0, -ENOSYS})
    for (size_t of : {0, 3, 7}) {
      env.on_mincore = [&](size_t question) { return question == of ? answer : 1; };
      auto done = every_third_page();
      ASSERT_TRUE(is_ok(done));
      EXPECT_GT(done->bytes, sum + MiB) << of;
      EXPECT_LT(done->requests, sum / 4096 / 2) << of;
    }
}

TEST_F(GapTest, OfAnotherUsersFileAByteTellsOrMincoreWhereThatIsNotKnown) {
  env.user += 1000;
  struct Case {
    int cached, mincore;
    bool in_memory;
  };
  for (const Case &c :
       {Case{1, 0, true}, {-EAGAIN, 1, false}, {-ENOSYS, 1, true}, {-ENOSYS, 0, false}, {-EOPNOTSUPP, 1, false}}) {
    SCOPED_TRACE(::testing::Message() << c.cached << " " << c.mincore);
    env.on_cached = c.cached;
    env.on_mincore = [&](size_t) { return c.mincore; };
    auto done = every_third_page();
    ASSERT_TRUE(is_ok(done));
    EXPECT_EQ(done->bytes == sum, c.in_memory);
  }
}

TEST_F(GapTest, NobodyIsAskedWhereTheGapsAreFew) {
  Strategy how = strategy(1, false);
  how.gap = 8 * KiB;
  how.memory_gap = 4 * KiB;
  std::vector<Wanted> wanted = {want(0, 4096, 0), want(uint64_t{3} * 4096, 4096, 0)};
  auto done = read(wanted, how);
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->bytes, uint64_t{4} * 4096);
  EXPECT_EQ(env.questions, 0u);
}

// In another language each time is a callback, which takes longer than a small read.
TEST_F(BulkTest, ProgressOfManySmallRequestsIsToldNowAndThen) {
  Strategy how = strategy(1, false);
  how.gap = 0;
  std::vector<Wanted> wanted;
  for (uint64_t i = 0; i < 160; ++i) wanted.push_back(want(i * 100, 50, 0));
  std::vector<uint64_t> told;
  const Control control([&](uint64_t done, uint64_t) { return told.push_back(done), true; }, nullptr);
  auto done = read(wanted, how, 0, control);
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->requests, 160u);
  expect_read(wanted);
  ASSERT_EQ(told.size(), 11u);  // before every sixteenth, and at the end
  EXPECT_EQ(told.front(), 0u);
  EXPECT_EQ(told.back(), 160u * 50);
}

TEST_F(BulkTest, ShortAndInterruptedReadsAreFinished) {
  for (int answer : {ReadEnv::short_io, -EINTR})
    for (const Strategy &how : ways()) {
      SCOPED_TRACE(name(how));
      size_t n = 0;
      env.on_read = [&](int, uint64_t) { return ++n % 2 ? answer : 0; };
      auto wanted = random_pieces(5, 3);
      ASSERT_TRUE(is_ok(read(wanted, how)));
      expect_read(wanted);
    }
}

TEST_F(BulkTest, AFailedReadFailsTheCallWhicheverItIs) {
  for (uint32_t threads : {1u, 3u})
    for (bool own_range : {false, true}) {
      bool failed = true;
      for (size_t n = 0; failed; n += 1 + n / 3) {
        failed = false;
        env.on_read = [&, seen = size_t{0}](int, uint64_t) mutable {
          if (seen++ != n) return 0;
          failed = true;
          return -EIO;
        };
        std::vector<Wanted> wanted;
        for (int i = 0; i < 5; ++i) wanted.push_back(want(0, bytes.size(), 0));
        auto done = read(wanted, strategy(threads, own_range));
        if (!failed) {
          ASSERT_TRUE(is_ok(done));
          EXPECT_GT(n, 100u);
        } else {
          ASSERT_TRUE(fails_with(Status::io, done)) << n;
          EXPECT_EQ(done.error().os_errno, EIO);
          EXPECT_NE(done.error().offset, no_offset);
        }
      }
    }
}

TEST_F(BulkTest, AFileThatEndsBeforeIsAnErrorThatSaysWhere) {
  for (const Strategy &how : ways()) {
    SCOPED_TRACE(name(how));
    testing::put_bytes(path, bytes);
    auto wanted = random_pieces(6, 2);
    std::filesystem::resize_file(path, MiB + 17);
    auto done = read(wanted, how);
    ASSERT_TRUE(fails_with(Status::file_changed, done));
    EXPECT_GE(done.error().offset, MiB + 17);
  }
}

TEST_F(BulkTest, AFileCutOffWhileItIsReadIsAnErrorAndNoSignal) {
  for (const Strategy &how : ways()) {
    SCOPED_TRACE(name(how));
    testing::put_bytes(path, bytes);
    std::vector<Wanted> wanted = {want(0, bytes.size(), 0)};
    const Control control(
        [&](uint64_t done, uint64_t) {
          if (done == 0) std::filesystem::resize_file(path, 100 * KiB);
          return true;
        },
        nullptr);
    auto done = read(wanted, how, 0, control);
    // Its requests, or those of other threads, were under way before the first look at progress.
    if ((how.direct == Direct::on || how.threads > 1) && done) continue;
    ASSERT_TRUE(fails_with(Status::file_changed, done));
  }
}

TEST_F(BulkTest, ProgressRisesToTheTotalOnTheCallersThread) {
  const auto caller = std::this_thread::get_id();
  for (const Strategy &how : ways()) {
    SCOPED_TRACE(name(how));
    auto wanted = random_pieces(7, 4);
    uint64_t sum = 0, last = 0;
    for (const Wanted &w : wanted) sum += w.length;
    size_t calls = 0;
    const Control control(
        [&](uint64_t done, uint64_t total) {
          EXPECT_EQ(std::this_thread::get_id(), caller);
          EXPECT_EQ(total, sum);
          EXPECT_GE(done, last);
          EXPECT_LE(done, total);
          last = done;
          ++calls;
          return true;
        },
        nullptr);
    ASSERT_TRUE(is_ok(read(wanted, how, 0, control)));
    EXPECT_EQ(last, sum);
    EXPECT_GE(calls, how.threads == 1 ? 2u : 1u);
  }
}

TEST_F(BulkTest, ProgressThatSaysNoCancels) {
  for (const Strategy &how : ways())
    for (int at : {0, 1, 2}) {
      SCOPED_TRACE(name(how));
      auto wanted = random_pieces(8, 4);
      int calls = 0;
      const Control control([&](uint64_t, uint64_t) { return calls++ < at; }, nullptr);
      auto done = read(wanted, how, 0, control);
      // Other threads may have been so fast that the caller was asked only once.
      if (calls <= at && how.threads > 1) continue;
      EXPECT_TRUE(fails_with(Status::cancelled, done));
      EXPECT_EQ(calls, at + 1) << "nobody is asked again";
    }
}

TEST_F(BulkTest, AnInterruptEndsItInEveryThread) {
  for (const Strategy &how : ways()) {
    SCOPED_TRACE(name(how));
    auto wanted = random_pieces(9, 4);
    std::atomic<uint64_t> interrupts = 0;
    const Control control(nullptr, &interrupts);
    size_t n = 0;
    env.on_read = [&](int, uint64_t) { return ++n == 5 ? static_cast<int>(interrupts++) : 0; };
    const size_t before = env.reads;
    if (how.direct == Direct::on) interrupts = 1;  // its reads do not pass by on_read
    EXPECT_TRUE(fails_with(Status::interrupted, read(wanted, how, 0, control)));
    EXPECT_LE(env.reads - before, 5u + 2 * how.threads);
  }
}

TEST_F(BulkTest, AnExceptionOfTheCallbackReachesTheCaller) {
  for (const Strategy &how : ways()) {
    SCOPED_TRACE(name(how));
    auto wanted = random_pieces(10, 4);
    const Control control([](uint64_t, uint64_t) -> bool { throw std::runtime_error("from the callback"); }, nullptr);
    EXPECT_THROW(static_cast<void>(read(wanted, how, 0, control)), std::runtime_error);
  }
}

class LargeFile : public testing::ReadScene {
 protected:
  LargeFile() : ReadScene(10 * MiB) {}  // enough for three threads
};

TEST_F(LargeFile, ThreadsWithRangesReadThemForwardsOnDescriptorsOfTheirOwn) {
  std::map<int, std::vector<uint64_t>> offsets;  // of each descriptor
  env.on_read = [&](int fd, uint64_t offset) {
    offsets[fd].push_back(offset);
    return 0;
  };
  std::vector<Wanted> wanted = {want(0, bytes.size(), 0)};
  ASSERT_TRUE(is_ok(read(wanted, strategy(3, true))));
  expect_read(wanted);
  EXPECT_EQ(offsets.count(file.fd()), 0u);
  size_t jumps = 0;  // where a sequence begins; a number of a descriptor may serve twice
  for (const auto &[fd, sequence] : offsets)
    for (size_t i = 0; i < sequence.size(); ++i) jumps += i == 0 || sequence[i] != sequence[i - 1] + 64 * KiB;
  EXPECT_LE(jumps, 3u);
  EXPECT_EQ(env.reads, 160u);
}

TEST_F(BulkTest, WithoutDescriptorsToBeHadTheHandlesOwnIsUsed) {
  for (int error : {EMFILE, EACCES, ENOENT})
    for (const Strategy &how : ways()) {
      SCOPED_TRACE(name(how));
      env.on_open = [&](const char *, int) { return -error; };
      auto wanted = random_pieces(11, 3);
      ASSERT_TRUE(is_ok(read(wanted, how)));
      expect_read(wanted);
    }
}

TEST_F(BulkTest, AReopenedFileIsTheSameOrAnError) {
  env.on_open = [](const char *where, int) { return std::string_view(where).starts_with("/proc") ? -ENOENT : 0; };
  EXPECT_TRUE(is_ok(reopen_file(file, O_RDONLY)));
  std::filesystem::rename(path, dir / "g");
  EXPECT_TRUE(fails_with(Status::no_file, reopen_file(file, O_RDONLY)));
  testing::put_bytes(path, bytes);
  EXPECT_TRUE(fails_with(Status::file_changed, reopen_file(file, O_RDONLY)));
  env.on_open = nullptr;
  auto same = reopen_file(file, O_RDONLY);  // by /proc, whatever the path names
  ASSERT_TRUE(is_ok(same));
  EXPECT_TRUE(os::same_inode(*same->stat(), *file.stat()));
}

// What is told to be forgotten: all that was read, and never so late that more
// than the limit is kept.
TEST_F(BulkTest, AMemoryLimitLetsPagesGoBehindTheReaders) {
  for (uint32_t threads : {1u, 3u})
    for (bool own_range : {false, true})
      for (uint64_t limit : {uint64_t{1}, uint64_t{256 * KiB}}) {
        env.advices.clear();
        std::vector<Wanted> wanted;
        for (int i = 0; i < 5; ++i) wanted.push_back(want(0, bytes.size(), 0));
        auto done = read(wanted, strategy(threads, own_range), limit);
        ASSERT_TRUE(is_ok(done));
        uint64_t dropped = 0;
        bool first_page = false;
        for (const ReadEnv::Advice &a : env.advices)
          if (a.advice == POSIX_FADV_DONTNEED) {
            EXPECT_EQ(a.offset % 4096, 0u);
            EXPECT_EQ(a.n % 4096, 0u);
            EXPECT_LE(a.n, 64 * KiB) << "no more than one's own request";
            dropped += a.n;
            first_page |= a.offset == 0;
          }
        EXPECT_TRUE(first_page);
        EXPECT_GE(dropped + limit, done->bytes) << threads << " threads, limit " << limit;
      }
}

TEST_F(BulkTest, WithoutAMemoryLimitPagesStay) {
  auto wanted = random_pieces(12, 3);
  ASSERT_TRUE(is_ok(read(wanted, strategy(2, false))));
  for (const ReadEnv::Advice &a : env.advices) EXPECT_NE(a.advice, POSIX_FADV_DONTNEED);
}

// A mapping that was asked for, of a file that other hosts change. What is read past the cache would be lost at once.
TEST_F(BulkTest, WarmingAFileThatIsReadPastTheCacheFillsItsMapping) {
  auto content = Content::open(file, bytes.size(), 1, MapMode::private_copy, {os::Storage::network, "testfs"}, {});
  ASSERT_TRUE(is_ok(content));
  file.read_past_cache(os::PastCache::by_one);
  auto done = warm(file, *content, {{0, bytes.size(), nullptr}}, strategy(2, false), {});
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(env.reads, 0u);
  EXPECT_EQ(done->bytes, bytes.size());
}

}  // namespace
}  // namespace st::read
