// How the bytes of a file are reached: the fallback from shared mapping to
// private mapping to owned memory, and that all three show the same bytes.
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <future>
#include <map>
#include <set>
#include <thread>

#include "base/interrupt.h"
#include "fault_env.h"
#include "read/content.h"
#include "test_files.h"

namespace st::read {
namespace {

using os::Storage;
using namespace testing;

// Refuses mappings of files, and counts reads; for many threads.
class StubbornEnv : public FaultEnv {
 public:
  explicit StubbornEnv() : FaultEnv(os::Env::posix()) {}
  int mmap(size_t n, int protection, int flags, int fd, void **out) override {
    if (fd >= 0 && flags == MAP_SHARED && shared_error) return -shared_error;
    if (fd >= 0 && flags == MAP_PRIVATE && private_error) return -private_error;
    mapped += n;
    return os::Env::posix().mmap(n, protection, flags, fd, out);
  }
  int munmap(void *address, size_t n) override {
    mapped -= n;
    return os::Env::posix().munmap(address, n);
  }
  ssize_t pread(int fd, void *buffer, size_t n, uint64_t offset) override {
    ++reads;
    if (read_error) return -read_error;
    const ssize_t got = os::Env::posix().pread(fd, buffer, n, offset);
    if (after_read) after_read(offset);
    return got;
  }
  uint64_t long_read() override { return as_source; }
  const char *getenv(const char *name) override { return std::strcmp(name, "ST_MAP") == 0 ? st_map : nullptr; }

  int shared_error = 0, private_error = 0;
  uint64_t as_source = 0;
  std::atomic<int> read_error = 0, reads = 0;
  std::atomic<size_t> mapped = 0;
  std::function<void(uint64_t offset)> after_read;
  const char *st_map = nullptr;
};

class ContentTest : public ::testing::Test {
 protected:
  static constexpr size_t slots = 50, slot_bytes = 3001;
  ContentTest() {
    testing::put_bytes(path, bytes);
    auto opened = os::File::open(env, AT_FDCWD, path, O_RDONLY, 0, path);
    EXPECT_TRUE(is_ok(opened));
    file = std::move(*opened);
  }
  Result<Content> open(MapMode wanted = MapMode::automatic, Storage storage = Storage::local) {
    return Content::open(file, bytes.size(), slots, wanted, {storage, "testfs"},
                         [this](LogLevel level, const std::string &message) {
                           EXPECT_EQ(level, LogLevel::warning);
                           logged.push_back(message);
                         });
  }
  void expect_all_bytes(const Content &content) {
    for (size_t slot = 0; slot < slots; ++slot) {
      auto view = content.view(file, slot, slot * slot_bytes, slot_bytes);
      ASSERT_TRUE(is_ok(view));
      ASSERT_EQ(std::memcmp(*view, bytes.data() + slot * slot_bytes, slot_bytes), 0) << slot;
    }
  }

  TempDir dir;
  const std::string path = dir / "f", bytes = testing::pattern(slots * slot_bytes, 5);
  StubbornEnv env;
  os::File file;
  std::vector<std::string> logged;
};

TEST_F(ContentTest, LocalStorageIsMappedShared) {
  auto c = open();
  ASSERT_TRUE(is_ok(c));
  EXPECT_EQ(c->map(), MapMode::shared);
  EXPECT_EQ(c->fallbacks(), 0u);
  EXPECT_EQ(c->bytes_mapped(), bytes.size());
  EXPECT_EQ(c->bytes_owned(), 0u);
  EXPECT_TRUE(logged.empty());
  expect_all_bytes(*c);
  EXPECT_EQ(env.reads, 0);
  EXPECT_GT(c->bytes_resident(), 0u);
}

TEST_F(ContentTest, StorageChoosesAndSaysWhy) {
  const std::pair<Storage, MapMode> table[] = {
      {Storage::local, MapMode::shared},         {Storage::memory, MapMode::shared},
      {Storage::network, MapMode::private_copy}, {Storage::parallel, MapMode::private_copy},
      {Storage::fuse, MapMode::private_copy},    {Storage::object_store, MapMode::private_copy},
      {Storage::unknown, MapMode::private_copy}};
  for (const auto &[storage, map] : table) {
    auto c = open(MapMode::automatic, storage);
    ASSERT_TRUE(is_ok(c));
    EXPECT_EQ(c->map(), map) << storage_name(storage);
    EXPECT_NE(c->reason().find("testfs"), std::string::npos);
    EXPECT_NE(c->reason().find(storage_name(storage)), std::string::npos);
    expect_all_bytes(*c);
  }
}

TEST_F(ContentTest, TheEnvironmentOverridesTheStorageAndTheCallerBoth) {
  const std::pair<const char *, MapMode> table[] = {
      {"shared", MapMode::shared}, {"private", MapMode::private_copy}, {"none", MapMode::none}};
  for (const auto &[name, map] : table) {
    env.st_map = name;
    auto c = open(MapMode::automatic, Storage::network);
    ASSERT_TRUE(is_ok(c));
    EXPECT_EQ(c->map(), map);
    EXPECT_NE(c->reason().find("ST_MAP"), std::string::npos);
    auto asked = open(MapMode::private_copy);
    EXPECT_EQ(asked->map(), MapMode::private_copy);
  }
}

TEST_F(ContentTest, AnUnknownWordOfTheEnvironmentIsAnErrorOfTheOpenAlone) {
  for (const char *name : {"Shared", "rubbish", "2", "copy-on-write"}) {
    env.st_map = name;
    auto checked = check_map_setting(env, MapMode::automatic);
    ASSERT_TRUE(fails_with(Status::invalid_argument, checked)) << name;
    EXPECT_NE(checked.error().message.find("ST_MAP"), std::string::npos);
    EXPECT_NE(checked.error().message.find(name), std::string::npos);
    EXPECT_TRUE(is_ok(check_map_setting(env, MapMode::private_copy))) << "the caller has asked";
    EXPECT_EQ(open()->map(), MapMode::shared) << "a later look at the file does not fail";
  }
  for (const char *name : {"auto", "shared", "private", "none", "", static_cast<const char *>(nullptr)}) {
    env.st_map = name;
    EXPECT_TRUE(is_ok(check_map_setting(env, MapMode::automatic)));
  }
}

TEST_F(ContentTest, ARefusedSharedMappingBecomesAPrivateOne) {
  for (int error : {ENODEV, EACCES, EPERM, EINVAL, EOPNOTSUPP, ENOSYS, EAGAIN}) {
    logged.clear();
    env.shared_error = error;
    auto c = open();
    ASSERT_TRUE(is_ok(c)) << error;
    EXPECT_EQ(c->map(), MapMode::private_copy);
    EXPECT_EQ(c->fallbacks(), 1u);
    EXPECT_NE(c->reason().find("map (shared)"), std::string::npos) << c->reason();
    ASSERT_EQ(logged.size(), 1u);
    EXPECT_NE(logged[0].find("private"), std::string::npos);
    expect_all_bytes(*c);
  }
}

TEST_F(ContentTest, WhereNothingCanBeMappedBytesAreReadOnceIntoOwnedMemory) {
  env.shared_error = env.private_error = ENODEV;
  auto c = open();
  ASSERT_TRUE(is_ok(c));
  EXPECT_EQ(c->map(), MapMode::none);
  EXPECT_EQ(c->fallbacks(), 2u);
  EXPECT_EQ(logged.size(), 2u);
  EXPECT_EQ(c->bytes_mapped(), 0u);
  EXPECT_EQ(env.reads, 0);  // not before somebody looks
  ASSERT_TRUE(is_ok(c->view(file, 7, 7 * slot_bytes, slot_bytes)));
  EXPECT_EQ(c->bytes_owned(), slot_bytes);
  expect_all_bytes(*c);
  expect_all_bytes(*c);
  EXPECT_EQ(env.reads, static_cast<int>(slots));
  EXPECT_EQ(c->bytes_owned(), bytes.size());
}

TEST_F(ContentTest, OwnedMemoryIsAlignedAndTakenPieceByPiece) {
  auto c = Content::open(file, uint64_t{1} << 50, slots, MapMode::none, {Storage::local, "testfs"}, nullptr);
  ASSERT_TRUE(is_ok(c)) << "a file larger than memory can be opened";
  for (size_t slot : {1, 7, 30}) {
    auto view = c->view(file, slot, slot * slot_bytes, slot_bytes);
    ASSERT_TRUE(is_ok(view));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*view) % 64, 0u);
    EXPECT_EQ(c->view(file, slot, slot * slot_bytes, slot_bytes).value(), *view);  // and stays
  }
  EXPECT_EQ(c->bytes_owned(), 3 * slot_bytes);
}

// A page for each would cost a model of many small tensors far more than its bytes.
TEST_F(ContentTest, SmallViewsShareTheirPages) {
  constexpr size_t many = 1000, small = 64, page = 4096;
  auto c = Content::open(file, bytes.size(), many, MapMode::none, {Storage::local, "testfs"}, nullptr);
  ASSERT_TRUE(is_ok(c));
  std::set<uintptr_t> pages;
  for (size_t slot = 0; slot < many; ++slot) {
    auto view = c->view(file, slot, slot * small, small);
    ASSERT_TRUE(is_ok(view));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*view) % small, 0u);
    pages.insert(reinterpret_cast<uintptr_t>(*view) / page);
  }
  EXPECT_LT(pages.size(), many / 4);
}

TEST_F(ContentTest, AskingForPrivateFallsOnlyToNone) {
  env.private_error = ENODEV;
  auto c = open(MapMode::private_copy);
  ASSERT_TRUE(is_ok(c));
  EXPECT_EQ(c->map(), MapMode::none);
  EXPECT_EQ(c->fallbacks(), 1u);
  auto none = open(MapMode::none);
  EXPECT_EQ(none->map(), MapMode::none);
  EXPECT_EQ(none->fallbacks(), 0u);
}

TEST_F(ContentTest, OtherErrorsAreNoRefusal) {
  for (int error : {EBADF, ENFILE, EIO}) {
    env.shared_error = error;
    auto c = open();
    ASSERT_FALSE(c);
    EXPECT_EQ(c.error().os_errno, error);
  }
}

TEST_F(ContentTest, OwnedMemoryIsFilledOnceHoweverManyThreadsLook) {
  auto c = open(MapMode::none);
  ASSERT_TRUE(is_ok(c));
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < slots; ++i) {
        const size_t slot = t % 2 ? i : slots - 1 - i;
        auto view = c->view(file, slot, slot * slot_bytes, slot_bytes);
        if (!view || std::memcmp(*view, bytes.data() + slot * slot_bytes, slot_bytes) != 0) ++wrong;
      }
    });
  for (std::thread &t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(env.reads, static_cast<int>(slots));
}

TEST_F(ContentTest, ALoadOfWhatIsThereByThenLeavesNoMemory) {
  auto c = open(MapMode::none);
  for (const bool has_more : {true, false}) {
    Arena arena = Arena::of(env, 3 << 20, false);
    std::vector<Content::Loaded> pieces;
    for (const size_t slot : {1, 2}) {
      if (slot == 2 && !has_more) continue;
      pieces.push_back({slot, slot * slot_bytes, slot_bytes, arena.data() + slot * slot_bytes});
      ASSERT_TRUE(is_ok(file.read(pieces.back().bytes, slot_bytes, pieces.back().offset)));
    }
    ASSERT_TRUE(is_ok(c->view(file, 1, slot_bytes, slot_bytes)));
    c->expect(pieces);
    const size_t before = env.mapped;
    ASSERT_TRUE(is_ok(c->adopt(file, std::move(arena), pieces)));
    EXPECT_EQ(before - env.mapped, has_more ? 0u : 3u << 20);
  }
  EXPECT_EQ(c->bytes_owned(), 2 * slot_bytes);
  expect_all_bytes(*c);
}

TEST_F(ContentTest, AFailedReadIsTriedAgainByTheNextLook) {
  auto c = open(MapMode::none);
  env.read_error = EIO;
  EXPECT_TRUE(fails_with(Status::io, c->view(file, 3, 3 * slot_bytes, slot_bytes)));
  EXPECT_EQ(c->bytes_owned(), 0u);
  env.read_error = 0;
  auto view = c->view(file, 3, 3 * slot_bytes, slot_bytes);
  ASSERT_TRUE(is_ok(view));
  EXPECT_EQ(std::memcmp(*view, bytes.data() + 3 * slot_bytes, slot_bytes), 0);
}

// A thread that is still reading slot 1, until another has done something. That comes at once; the bound only ends a
// test that fails.
class ASlowReader : public ContentTest {
 protected:
  void while_slot_1_is_read(const Content &c, const std::function<void()> &then) {
    std::promise<void> begun, over;
    std::future<void> is_over = over.get_future();
    std::atomic<bool> first = true, in_time = false;
    env.after_read = [&](uint64_t offset) {
      if (offset != slot_bytes || !first.exchange(false)) return;
      begun.set_value();
      in_time = is_over.wait_for(std::chrono::seconds(60)) == std::future_status::ready;
    };
    std::thread reader([&] { EXPECT_TRUE(is_ok(c.view(file, 1, slot_bytes, slot_bytes))); });
    begun.get_future().wait();
    then();
    over.set_value();
    reader.join();
    env.after_read = nullptr;
    EXPECT_TRUE(in_time) << "it waited for the reader";
    expect_all_bytes(c);
  }
};

TEST_F(ASlowReader, KeepsNobodyFromOtherPieces) {
  for (const bool patches : {false, true}) {
    auto c = open(MapMode::none);
    while_slot_1_is_read(*c, [&] {
      if (patches) {
        EXPECT_TRUE(is_ok(c->refresh(file, 1, slot_bytes, slot_bytes)));
      } else {
        EXPECT_TRUE(is_ok(c->view(file, 2, 2 * slot_bytes, slot_bytes)));
      }
    });
  }
}

TEST_F(ASlowReader, IsWaitedForByWhoWantsTheSameUntilThatIsInterrupted) {
  auto c = open(MapMode::none);
  while_slot_1_is_read(*c, [&] {
    size_t asked = 0;
    const InterruptScope waits([&] { return ++asked > 1 ? fail(Status::interrupted, "enough") : Result<void>(); });
    EXPECT_TRUE(fails_with(Status::interrupted, c->view(file, 1, slot_bytes, slot_bytes)));
  });
  EXPECT_EQ(env.reads, static_cast<int>(slots));
}

// That thread is not in the child, and its wait would never end there.
TEST_F(ASlowReader, AndWhoWaitsForItKeepNoChildFromItsEnd) {
  auto c = open(MapMode::none);
  while_slot_1_is_read(*c, [&] {
    std::promise<void> waited;
    std::atomic<size_t> asked = 0;
    std::atomic<bool> enough = false;
    std::thread waits([&] {
      const InterruptScope until_over([&] {
        if (++asked == 1) waited.set_value();
        return enough ? fail(Status::interrupted, "enough") : Result<void>();
      });
      EXPECT_TRUE(fails_with(Status::interrupted, c->view(file, 1, slot_bytes, slot_bytes)));
    });
    waited.get_future().wait();  // and it waits on
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      *c = Content();
      ::_exit(0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    enough = true;
    waits.join();
  });
}

TEST_F(ContentTest, AChangeDuringAFirstLookIsNotLost) {
  auto c = open(MapMode::none);
  const std::string fresh = testing::pattern(slot_bytes, 77);
  bool changed = false;
  env.after_read = [&](uint64_t offset) {
    if (std::exchange(changed, true)) return;
    testing::poke(path, offset, fresh);
    EXPECT_TRUE(is_ok(c->refresh(file, 3, offset, slot_bytes)));
  };
  auto view = c->view(file, 3, 3 * slot_bytes, slot_bytes);
  ASSERT_TRUE(is_ok(view));
  EXPECT_EQ(std::memcmp(*view, fresh.data(), slot_bytes), 0);
}

TEST_F(ContentTest, ChangesDuringAFirstLookKeepNobodyFromOtherPieces) {
  auto c = open(MapMode::none);
  const auto fresh = [](int n) { return testing::pattern(slot_bytes, 77 + n); };
  int reads = 0;
  env.after_read = [&](uint64_t offset) {
    if (offset != 3 * slot_bytes || ++reads > 3) return;
    testing::poke(path, offset, fresh(reads));
    auto other = std::async(std::launch::async, [&] {
      const size_t slot = 10 + static_cast<size_t>(reads);
      EXPECT_TRUE(is_ok(c->refresh(file, 3, offset, slot_bytes)));
      EXPECT_TRUE(is_ok(c->view(file, slot, slot * slot_bytes, slot_bytes)));
    });
    if (other.wait_for(std::chrono::seconds(60)) == std::future_status::ready) return;
    ADD_FAILURE() << "others wait for read " << reads;
    ::_exit(1);  // they wait for this thread
  };
  auto view = c->view(file, 3, 3 * slot_bytes, slot_bytes);
  ASSERT_TRUE(is_ok(view));
  EXPECT_EQ(reads, 4);
  EXPECT_EQ(std::memcmp(*view, fresh(3).data(), slot_bytes), 0);
}

// One piece as long as several of the reads between which a caller is asked.
class ALongPiece : public ContentTest {
 protected:
  static constexpr uint64_t length = uint64_t{64} << 20;
  ALongPiece() {
    std::filesystem::resize_file(path, length);
    c = *Content::open(file, length, 1, MapMode::none, {Storage::local, "testfs"}, nullptr);
    env.after_read = [this](uint64_t) { enough = true; };
  }
  Result<const std::byte *> look() {
    const InterruptScope waits([this] { return enough ? fail(Status::interrupted, "enough") : Result<void>(); });
    return c.view(file, 0, 0, length);
  }
  Result<void> refresh() {
    const InterruptScope waits([this] { return enough ? fail(Status::interrupted, "enough") : Result<void>(); });
    return c.refresh_own(file, 0, 0, length);
  }
  Content c;
  bool enough = false;
};

TEST_F(ALongPiece, IsReadNoFurtherThanItIsWanted) {
  EXPECT_TRUE(fails_with(Status::interrupted, look()));
  EXPECT_EQ(env.reads, 1);
  EXPECT_EQ(c.bytes_owned(), 0u);
  env.after_read = nullptr;
  enough = false;
  EXPECT_TRUE(is_ok(look()));
  EXPECT_EQ(c.bytes_owned(), length);
}

TEST_F(ALongPiece, OfASourceIsOneRead) {
  env.as_source = 1 << 20;
  EXPECT_TRUE(is_ok(look()));
  EXPECT_EQ(env.reads, 1);
}

// Half of it may be new by then, so the next look reads all of it.
TEST_F(ALongPiece, IsReadAgainNoFurtherThanItIsWanted) {
  env.after_read = nullptr;
  ASSERT_TRUE(is_ok(look()));
  const int reads = env.reads;
  env.after_read = [this](uint64_t) { enough = true; };
  EXPECT_TRUE(fails_with(Status::interrupted, refresh()));
  EXPECT_EQ(env.reads, reads + 1);
  EXPECT_FALSE(c.in_own_memory(0));
  env.after_read = nullptr;
  enough = false;
  testing::poke(path, length - 5, "fresh");
  auto view = look();
  ASSERT_TRUE(is_ok(view));
  EXPECT_EQ(std::memcmp(*view + length - 5, "fresh", 5), 0);
}

// The callback of a refresh may take its time, or wait for a thread that looks.
TEST_F(ALongPiece, KeepsNobodyOutWhileItsCallerIsAsked) {
  env.after_read = nullptr;
  ASSERT_TRUE(is_ok(look()));
  size_t asked = 0;
  const InterruptScope waits([&]() -> Result<void> {
    ++asked;
    auto other = std::async(std::launch::async, [this] { c.outdate(0, false); });
    if (other.wait_for(std::chrono::seconds(60)) == std::future_status::ready) return {};
    ADD_FAILURE() << "it waits for the thread that is asked";
    ::_exit(1);
  });
  EXPECT_TRUE(is_ok(c.refresh_own(file, 0, 0, length)));
  EXPECT_EQ(asked, 3u);
  EXPECT_FALSE(c.in_own_memory(0));
}

// The caller forks when it is asked, while another thread has the mutex of the content. That thread is not in the
// child.
TEST_F(ALongPiece, KeepsNoChildFromItsEndThatForksWhileItIsRead) {
  constexpr uint64_t half = length / 2;
  c = *Content::open(file, length, 2, MapMode::none, {Storage::local, "testfs"}, nullptr);
  env.after_read = nullptr;
  const auto look = [&] { return Result<void>(c.view(file, 0, 0, half) ? Result<void>() : fail(Status::io, "no")); };
  const auto refresh = [&] { return c.refresh_own(file, 0, 0, half); };
  ASSERT_TRUE(is_ok(c.view(file, 1, half, half)));
  for (const auto &read : {std::function<Result<void>()>(look), std::function<Result<void>()>(refresh)}) {
    std::promise<void> locked, over;
    env.after_read = [&](uint64_t offset) {
      if (offset < half) return;
      locked.set_value();
      over.get_future().wait();
    };
    std::thread locks;
    pid_t child = -1;
    const InterruptScope forks([&]() -> Result<void> {
      if (child >= 0) return {};
      locks = std::thread([&] { EXPECT_TRUE(is_ok(c.refresh(file, 1, half, half))); });
      locked.get_future().wait();
      child = ::fork();
      if (child == 0) {
        ::alarm(60);  // only ends a test that fails
        return fail(Status::forked, "in the child");
      }
      over.set_value();
      return {};
    });
    Result<void> done;
    {
      const auto claim = *c.claim(std::array<size_t, 1>{0});
      done = read();
    }
    if (child == 0) ::_exit(done ? 1 : 0);
    EXPECT_TRUE(is_ok(done));
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    locks.join();
    env.after_read = nullptr;
  }
}

// The server has forgotten the file; or it is not known whether all of the piece was read.
TEST_F(ContentTest, WhatMayHaveChangedIsReadAgainAndStaysIfTheFileIsGone) {
  auto c = open(MapMode::none);
  const auto look = [&] { return c->view(file, 9, 9 * slot_bytes, slot_bytes); };
  const auto refresh = [&](size_t slot) { return c->refresh_own(file, slot, slot * slot_bytes, slot_bytes); };
  ASSERT_TRUE(is_ok(refresh(9)));
  EXPECT_EQ(env.reads, 0);
  const std::byte *const view = look().value();
  const std::string fresh = testing::pattern(slot_bytes, 77);
  testing::poke(path, 9 * slot_bytes, fresh);
  env.read_error = ESTALE;
  EXPECT_TRUE(fails_with(Status::file_changed, refresh(9)));
  EXPECT_EQ(look().value(), view);
  EXPECT_EQ(std::memcmp(view, bytes.data() + 9 * slot_bytes, slot_bytes), 0);
  env.read_error = 0;
  ASSERT_TRUE(is_ok(refresh(9)));
  EXPECT_EQ(look().value(), view);
  EXPECT_EQ(std::memcmp(view, fresh.data(), slot_bytes), 0);
  env.read_error = EIO;
  EXPECT_TRUE(fails_with(Status::io, refresh(9)));
  EXPECT_FALSE(c->in_own_memory(9));
  EXPECT_TRUE(is_ok(refresh(8)));
}

// What is in memory is the old piece then, or a part of each.
TEST_F(ContentTest, APatchThatCannotBeReadIsReadByTheNextLook) {
  auto c = open(MapMode::none);
  const auto look = [&] { return c->view(file, 9, 9 * slot_bytes, slot_bytes); };
  ASSERT_TRUE(is_ok(look()));
  const std::string fresh = testing::pattern(slot_bytes, 77);
  testing::poke(path, 9 * slot_bytes, fresh);
  env.read_error = EIO;
  EXPECT_TRUE(fails_with(Status::io, c->refresh(file, 9, 9 * slot_bytes, slot_bytes)));
  EXPECT_FALSE(c->in_own_memory(9));
  EXPECT_TRUE(is_ok(c->refresh(file, 9, 9 * slot_bytes, slot_bytes)));  // there is nothing to read it to
  EXPECT_TRUE(fails_with(Status::io, look()));
  env.read_error = 0;
  auto view = look();
  ASSERT_TRUE(is_ok(view));
  EXPECT_EQ(std::memcmp(*view, fresh.data(), slot_bytes), 0);
  c->outdate(9, false);
  testing::poke(path, 9 * slot_bytes, bytes.substr(9 * slot_bytes, slot_bytes));
  expect_all_bytes(*c);
}

TEST_F(ContentTest, ATruncatedFileIsAnErrorWithoutAMapping) {
  auto c = open(MapMode::none);
  std::filesystem::resize_file(path, 5 * slot_bytes + 1);
  EXPECT_TRUE(fails_with(Status::file_changed, c->view(file, 5, 5 * slot_bytes, slot_bytes)));
  EXPECT_TRUE(is_ok(c->view(file, 4, 4 * slot_bytes, slot_bytes)));
}

TEST_F(ContentTest, APatchShowsInEveryMode) {
  for (MapMode mode : {MapMode::shared, MapMode::private_copy, MapMode::none}) {
    SCOPED_TRACE(static_cast<int>(mode));
    testing::put_bytes(path, bytes);
    auto c = open(mode);
    ASSERT_TRUE(is_ok(c));
    auto view = c->view(file, 9, 9 * slot_bytes, slot_bytes);
    ASSERT_TRUE(is_ok(view));
    ASSERT_EQ(std::memcmp(*view, bytes.data() + 9 * slot_bytes, slot_bytes), 0);
    const std::string fresh = testing::pattern(slot_bytes, 77);
    testing::poke(path, 9 * slot_bytes, fresh);
    ASSERT_TRUE(is_ok(c->refresh(file, 9, 9 * slot_bytes, slot_bytes)));
    EXPECT_EQ(std::memcmp(*view, fresh.data(), slot_bytes), 0);  // under the old pointer
    auto neighbour = c->view(file, 10, 10 * slot_bytes, slot_bytes);
    EXPECT_EQ(std::memcmp(*neighbour, bytes.data() + 10 * slot_bytes, slot_bytes), 0);
  }
}

TEST_F(ContentTest, RefreshingWhatNobodyLookedAtReadsNothing) {
  auto c = open(MapMode::none);
  ASSERT_TRUE(is_ok(c->refresh(file, 2, 2 * slot_bytes, slot_bytes)));
  EXPECT_EQ(env.reads, 0);
  EXPECT_EQ(c->bytes_owned(), 0u);
}

TEST_F(ContentTest, BorrowedMemoryIsShownAsItIs) {
  const auto *memory = reinterpret_cast<const std::byte *>(bytes.data());
  const Content c = Content::borrowed(memory, bytes.size());
  EXPECT_EQ(c.view({}, 0, 100, 10).value(), memory + 100);
  EXPECT_EQ(c.bytes_mapped(), 0u);
  EXPECT_EQ(c.map(), MapMode::none);
}

}  // namespace
}  // namespace st::read
