// Locks by LockFileEx, between handles of one process and between two processes; and what they leave to others: stock
// reads plainly, whatever is locked.
//   locks --hold FILE BEGIN LENGTH shared|exclusive     take that lock, say so, and keep it until the input ends
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "../unit/capi/scene.h"
#include "os/range_lock.h"
#include "os/turnstile.h"
#include "other_process.h"

namespace st::testing {
namespace {

using os::LockRange;
using os::RangeLock;

constexpr bool exclusive = true, shared = false;

class Locks : public CapiScene {
 protected:
  static os::File opened(const std::string &path, int flags = O_RDWR) {
    return std::move(*os::File::open(os::Env::posix(), AT_FDCWD, path, flags, 0, path));
  }
  static Result<RangeLock> take(const os::File &file, const LockRange &range, int32_t timeout_ms = 0) {
    return RangeLock::acquire(file, {range}, {timeout_ms, nullptr, nullptr});
  }
  // Another process that holds this.
  OtherProcess holder(const LockRange &range) const {
    OtherProcess other("--hold \"" + path + "\" " + std::to_string(range.begin) + " " + std::to_string(range.length) +
                       (range.exclusive ? " exclusive" : " shared"));
    EXPECT_EQ(other.line(), "held");
    return other;
  }
  void expect_plain_reads() const { EXPECT_TRUE(same_bytes(bytes_of(path), old)); }

  const os::File a = opened(path), b = opened(path);
};

TEST_F(Locks, TwoHandlesOfOneProcessExcludeEachOther) {
  {
    auto held = take(a, {100, 50, exclusive});
    ASSERT_TRUE(is_ok(held));
    EXPECT_TRUE(fails_with(Status::busy, take(b, {149, 1, shared})));
    EXPECT_TRUE(is_ok(take(b, {150, 10, exclusive})));
    expect_plain_reads();
  }
  EXPECT_TRUE(is_ok(take(b, os::whole_file(true))));
}

TEST_F(Locks, TwoProcessesExcludeEachOther) {
  for (const bool theirs : {shared, exclusive})
    for (const bool ours : {shared, exclusive}) {
      const OtherProcess other = holder({100, 50, theirs});
      const bool free = theirs == shared && ours == shared;
      EXPECT_EQ(take(a, {120, 1, ours}).has_value(), free);
      EXPECT_EQ(take(a, os::whole_file(ours)).has_value(), free);
      EXPECT_TRUE(is_ok(take(a, {150, 50, ours})));
      EXPECT_EQ(os::is_locked(a, {120, 1, ours}).value(), !free);
      EXPECT_EQ(os::how_locked(a).value(), theirs == shared ? os::Locked::shared : os::Locked::exclusive);
      expect_plain_reads();
    }
  EXPECT_EQ(os::how_locked(a).value(), os::Locked::no);
}

TEST_F(Locks, AProcessThatIsEndedLeavesNone) {
  OtherProcess other = holder(os::whole_file(true));
  other.stop();
  EXPECT_TRUE(fails_with(Status::busy, take(a, {0, 1, shared})));
  other.end();
  EXPECT_TRUE(is_ok(take(a, os::whole_file(true), 10000)));
}

TEST_F(Locks, GoWithTheirHandleAndNotWithAnother) {
  {
    const os::File third = opened(path);
    auto held = take(third, {0, 10, exclusive});
    ASSERT_TRUE(is_ok(held));
    { const os::File fourth = opened(path); }  // POSIX's own locks would end here
    EXPECT_TRUE(fails_with(Status::busy, take(a, {0, 10, exclusive})));
    held->disown();
  }
  EXPECT_TRUE(is_ok(take(a, {0, 10, exclusive})));
}

TEST_F(Locks, ChangeTheirKindAndAreGivenBackInParts) {
  RangeLock held(a);
  EXPECT_TRUE(held.try_take({0, 100, exclusive}).value());
  EXPECT_TRUE(held.try_take({0, 100, shared}).value());
  EXPECT_EQ(os::how_locked(b).value(), os::Locked::shared);
  {
    auto theirs = take(b, {50, 1, shared});
    ASSERT_TRUE(is_ok(theirs));
    EXPECT_FALSE(held.try_take({0, 100, exclusive}).value());  // and is held shared still
    EXPECT_TRUE(fails_with(Status::busy, take(b, {0, 10, exclusive})));
  }
  EXPECT_TRUE(held.try_take({0, 100, exclusive}).value());
  held.drop({40, 20, true});
  EXPECT_TRUE(is_ok(take(b, {40, 20, exclusive})));
  EXPECT_TRUE(fails_with(Status::busy, take(b, {39, 1, exclusive})));
  EXPECT_TRUE(fails_with(Status::busy, take(b, {60, 1, exclusive})));
}

TEST_F(Locks, TheBytesOfTheTurnstileAreNotOfTheFile) {
  const OtherProcess other = holder(os::whole_file(true));
  for (uint64_t byte = 0; byte < 4; ++byte) EXPECT_TRUE(is_ok(take(a, {os::whole_file_bytes + byte, 1, exclusive})));
  const OtherProcess third = holder({os::whole_file_bytes + 1, 1, exclusive});
  EXPECT_TRUE(fails_with(Status::busy, take(a, {os::whole_file_bytes + 1, 1, exclusive})));
  EXPECT_TRUE(is_ok(take(a, {os::whole_file_bytes, 1, exclusive})));
}

TEST_F(Locks, ACallWaitsForThemAndIsInterrupted) {
  const OtherProcess other = holder({b_at, 10, exclusive});
  st_file *file = open();
  const st_tensor t = value(1, new_b);
  EXPECT_ST(ST_E_BUSY, st_update(file, "b", ST_NTS, &t));
  auto options = sized<st_txn_options>();
  options.lock_timeout_ms = ST_TIMEOUT_FOREVER;
  st_txn *txn = nullptr;
  ASSERT_ST(ST_OK, st_txn_begin(file, &options, &txn));
  ASSERT_ST(ST_OK, st_txn_update(txn, "b", ST_NTS, &t));
  const auto waits = [&] {
    auto stats = sized<st_stats>();
    EXPECT_ST(ST_OK, st_file_stats(file, &stats));
    return stats.lock_waits;
  };
  std::atomic<bool> done = false;
  std::thread interrupts([&, before = waits()] {
    for (; !done; std::this_thread::yield())
      if (waits() > before) st_interrupt(file);
  });
  EXPECT_ST(ST_E_INTERRUPTED, st_txn_commit(txn));
  done = true;
  interrupts.join();
  st_txn_free(txn);
  st_close(file);
  expect_plain_reads();
}

TEST_F(Locks, StockReadsWhileTensorsArePatched) {
  std::atomic<bool> done = false;
  std::thread patches([&] {
    st_file *file = open();
    for (int i = 0; i < 40; ++i) {
      const std::string &bytes = i % 2 ? tensors[0].bytes : new_a;
      const st_tensor t = value(0, bytes);
      EXPECT_ST(ST_OK, st_update(file, "a", ST_NTS, &t));
    }
    st_close(file);
    done = true;
  });
  size_t reads = 0;
  for (; !done || reads == 0; ++reads) {
    const std::string seen = bytes_of(path);
    ASSERT_EQ(seen.size(), old.size());
    ASSERT_EQ(seen.substr(0, a_at), old.substr(0, a_at));
    ASSERT_EQ(seen.substr(b_at), old.substr(b_at));
  }
  patches.join();
  expect_plain_reads();
}

int hold(char **arguments) {
  const os::File file = std::move(*os::File::open(os::Env::posix(), AT_FDCWD, arguments[0], O_RDWR, 0, arguments[0]));
  const LockRange range{std::strtoull(arguments[1], nullptr, 10), std::strtoull(arguments[2], nullptr, 10),
                        std::string_view(arguments[3]) == "exclusive"};
  auto held = RangeLock::acquire(file, {range}, {0, nullptr, nullptr});
  std::printf("%s\n", held ? "held" : held.error().message.c_str());
  std::fflush(stdout);
  return std::getchar() == EOF ? 0 : 1;
}

}  // namespace
}  // namespace st::testing

int main(int argc, char **argv) {
  if (argc == 6 && std::string_view(argv[1]) == "--hold") return st::testing::hold(argv + 2);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
