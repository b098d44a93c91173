// Bulk reads of a checkpoint: read_many, prefetch, load, and what they promise
// about views, changes and forks.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <future>
#include <numeric>
#include <set>
#include <thread>

#include "read_scene.h"
#include "store_scene.h"

namespace st::store {
namespace {

using read::MapMode;
using namespace testing;
using Indices = std::vector<size_t>;

// Small tensors and large ones, empty ones at the borders and between.
class BulkStoreTest : public testing::StoreScene {
 protected:
  BulkStoreTest() {
    large.push_back({"empty first", Dtype::F32, {0, 3}, ""});
    for (int i = 0; i < 40; ++i)
      large.push_back(u8_tensor("t" + std::to_string(i), i % 7 ? 3001 + i : 150000, 100 + i));
    large.push_back({"empty in between", Dtype::F32, {0}, ""});
    large.push_back(u8_tensor("big", 3 << 20, 7));
    large.push_back({"empty last", Dtype::U8, {0}, ""});
    testing::put_bytes(where, testing::file_of(large));
  }
  static OpenOptions reading(MapMode map = MapMode::automatic, read::Prefetch prefetch = read::Prefetch::parallel) {
    OpenOptions options;
    options.map = map;
    options.bulk.prefetch = prefetch;
    options.bulk.threads = 3;
    options.bulk.block = 64 << 10;
    return options;
  }
  std::unique_ptr<DataFile> open_large(OpenOptions options = reading()) {
    return open_path(watched, where, std::move(options));
  }
  static Indices all_of(const DataFile &c) {
    Indices all(c.snapshot().header.index.size());
    std::iota(all.begin(), all.end(), size_t{0});
    return all;
  }
  const TestTensor &tensor(std::string_view name) const {
    return *std::find_if(large.begin(), large.end(), [&](const TestTensor &t) { return t.name == name; });
  }
  // 0 if the views of all tensors hold what they should; for children too.
  int wrong_views(const DataFile &c) const {
    const Snapshot &s = c.snapshot();
    for (size_t i = 0; i < s.header.index.size(); ++i) {
      const TensorView t = s.header.index.at(i);
      auto view = c.view(s, i);
      if (!view) return 1;
      if (t.nbytes > 0 && std::memcmp(*view, tensor(t.name).bytes.data(), t.nbytes) != 0) return 2;
    }
    return 0;
  }
  int wrong_reads(const DataFile &c) const {
    const Snapshot &s = c.snapshot();
    std::vector<std::string> rooms;
    std::vector<BulkRequest> requests;
    for (size_t i = 0; i < s.header.index.size(); ++i) rooms.emplace_back(s.header.index.at(i).nbytes, '?');
    for (size_t i = rooms.size(); i-- > 0;)
      requests.push_back({i, nullptr, reinterpret_cast<std::byte *>(rooms[i].data())});
    if (!c.read_many(s, requests, {})) return 3;
    for (size_t i = 0; i < rooms.size(); ++i)
      if (rooms[i] != tensor(s.header.index.at(i).name).bytes) return 4;
    return 0;
  }
  static int in_child(const std::function<int()> &body) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(300);  // a child that waits for ever is killed, and told
      ::_exit(body());
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
  }

  testing::ReadEnv watched;
  const std::string where = dir / "large.safetensors";
  std::vector<TestTensor> large;
};

// The file has lost its name, and then its descriptor. As for reads, nothing more of it is needed.
TEST_F(BulkStoreTest, WhatIsMappedIsThereAlsoWhereItsFileIsGone) {
  for (const MapMode map : {MapMode::automatic, MapMode::none}) {
    OpenOptions options = reading(map);
    const auto descriptors = options.descriptors = std::make_shared<os::Descriptors>(watched);
    testing::put_bytes(where, testing::file_of(large));
    auto c = open_large(options);
    const Indices all = all_of(*c);
    std::filesystem::remove(where);
    descriptors->give_up(os::Descriptors::GiveUp::all);
    const auto prefetched = c->prefetch(c->snapshot(), all, {}), loaded = c->load(c->snapshot(), all, false, false, {});
    EXPECT_TRUE(fails_with(Status::file_changed, loaded));  // it would not outlive a truncation
    if (map == MapMode::none) {
      EXPECT_TRUE(fails_with(Status::file_changed, prefetched));
      continue;
    }
    EXPECT_TRUE(is_ok(prefetched));
    EXPECT_EQ(wrong_views(*c), 0);
    EXPECT_EQ(wrong_reads(*c), 0);
  }
}

TEST_F(BulkStoreTest, ReadManyFillsEveryDestination) {
  for (MapMode map : {MapMode::shared, MapMode::private_copy, MapMode::none, MapMode::copy_on_write}) {
    auto c = open_large(reading(map));
    EXPECT_EQ(wrong_reads(*c), 0);
    EXPECT_GT(c->counters().read_requests, 0u);
    EXPECT_GE(c->counters().bytes_read, c->snapshot().header.index.data_bytes());
  }
}

TEST_F(BulkStoreTest, ReadManyTakesWholeTensorsRowsAndColumnsTogether) {
  auto c = open();  // a: [4000], b: [10007], c: [3000]
  const Snapshot &s = c->snapshot();
  const Range rows[] = {{100, 1100, 1}}, odd[] = {{1, INT64_MAX, 2}}, back[] = {{-1, INT64_MIN, -1}},
              none[] = {{5, 5, 1}};
  auto plan = [&](size_t i, std::span<const Range> ranges) {
    return SlicePlan::make(s.header.index.at(i).dtype, s.header.index.at(i).shape, ranges).value();
  };
  const SlicePlan some = plan(1, rows), each = plan(1, odd), reverse = plan(0, back), nothing = plan(2, none);
  std::string whole(3000, '?'), part(1000, '?'), columns(each.nbytes(), '?'), mirrored(4000, '?');
  auto to = [](std::string &room) { return reinterpret_cast<std::byte *>(room.data()); };
  uint64_t last = 0;
  size_t calls = 0;
  const uint64_t total = 3000 + 1000 + each.nbytes() + 4000;
  auto progress = [&](uint64_t done, uint64_t of) {
    EXPECT_EQ(of, total);
    EXPECT_GE(done, last);
    last = done;
    ++calls;
    return true;
  };
  ASSERT_TRUE(is_ok(c->read_many(s,
                                 {{2, nullptr, to(whole)},
                                  {1, &each, to(columns)},
                                  {2, &nothing, nullptr},
                                  {1, &some, to(part)},
                                  {0, &reverse, to(mirrored)}},
                                 progress)));
  EXPECT_EQ(last, total);
  EXPECT_GE(calls, 2u);
  EXPECT_TRUE(same_bytes(whole, tensors[2].bytes));
  EXPECT_TRUE(same_bytes(part, tensors[1].bytes.substr(100, 1000)));
  for (size_t i = 0; i < columns.size(); ++i) ASSERT_EQ(columns[i], tensors[1].bytes[2 * i + 1]) << i;
  EXPECT_TRUE(same_bytes(mirrored, std::string(tensors[0].bytes.rbegin(), tensors[0].bytes.rend())));
}

TEST_F(BulkStoreTest, AnInterruptBetweenTheSlicesOfOneCallCounts) {
  auto c = open();
  const Snapshot &s = c->snapshot();
  const Range odd[] = {{1, INT64_MAX, 2}};
  const SlicePlan each = SlicePlan::make(Dtype::U8, s.header.index.at(1).shape, odd).value();
  std::string whole(3000, '?'), columns(each.nbytes(), '?');
  size_t calls = 0;
  auto interrupt_at_the_end_of_the_first_part = [&](uint64_t done, uint64_t) {
    if (done == 3000 && ++calls == 1) c->interrupt();
    return true;
  };
  EXPECT_TRUE(fails_with(Status::interrupted, c->read_many(s,
                                                           {{2, nullptr, reinterpret_cast<std::byte *>(whole.data())},
                                                            {1, &each, reinterpret_cast<std::byte *>(columns.data())}},
                                                           interrupt_at_the_end_of_the_first_part)));
}

TEST_F(BulkStoreTest, AFileGivenAsMemoryIsReadAndNeedsNoLoad) {
  const std::string bytes = testing::bytes_of(where);
  auto c = DataFile::open_memory(env, reinterpret_cast<const std::byte *>(bytes.data()), bytes.size());
  ASSERT_TRUE(is_ok(c));
  EXPECT_EQ(wrong_reads(**c), 0);
  uint64_t last = 0;
  auto progress = [&](uint64_t done, uint64_t total) { return last = done, done <= total; };
  std::string room(3 << 20, '?');
  const size_t big = (*c)->snapshot().header.index.find("big").value();
  ASSERT_TRUE(
      is_ok((*c)->read_many((*c)->snapshot(), {{big, nullptr, reinterpret_cast<std::byte *>(room.data())}}, progress)));
  EXPECT_EQ(last, room.size());
  EXPECT_TRUE(is_ok((*c)->prefetch((*c)->snapshot(), all_of(**c), {})));
  EXPECT_TRUE(is_ok((*c)->load((*c)->snapshot(), all_of(**c), true, true, {})));
  EXPECT_EQ((*c)->view((*c)->snapshot(), big).value(),
            reinterpret_cast<const std::byte *>(bytes.data()) +
                (*c)->snapshot().file_offset((*c)->snapshot().header.index.at(big)));
  EXPECT_NE((*c)->strategy().reason, "");
}

TEST_F(BulkStoreTest, LoadedTensorsLieInOneBlockAlignedAsInTheFile) {
  for (MapMode map : {MapMode::shared, MapMode::none})
    for (bool direct : {false, true}) {
      auto c = open_large(reading(map));
      const Snapshot &s = c->snapshot();
      ASSERT_TRUE(is_ok(c->load(s, all_of(*c), direct, direct, {})));
      EXPECT_EQ(wrong_views(*c), 0);
      const std::byte *low = nullptr, *high = nullptr;
      for (size_t i : all_of(*c)) {
        const TensorView t = s.header.index.at(i);
        if (t.nbytes == 0) continue;
        const std::byte *view = c->view(s, i).value();
        if (!low) low = high = view;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(view) % 4096, s.file_offset(t) % 4096);
        EXPECT_EQ(view, high) << "they touch, as in the file";
        high = view + t.nbytes;
      }
      EXPECT_EQ(static_cast<uint64_t>(high - low), s.header.index.data_bytes());
      EXPECT_EQ(s.content.bytes_owned(), s.header.index.data_bytes());
    }
}

// Another process changes a tensor while it is read, and a refresh meanwhile follows that: no memory has it yet.
TEST_F(BulkStoreTest, ARefreshDuringAFirstLookOrALoadIsNotLost) {
  class Changing : public testing::ReadEnv {
   public:
    ssize_t pread(int fd, void *buffer, size_t n, uint64_t offset) override {
      const ssize_t got = ReadEnv::pread(fd, buffer, n, offset);
      if (offset == at) std::exchange(then, [] {})();
      return got;
    }
    ssize_t preadv(int fd, const struct iovec *parts, int count, uint64_t offset) override {
      const ssize_t got = ReadEnv::preadv(fd, parts, count, offset);
      if (offset == at) std::exchange(then, [] {})();
      return got;
    }
    uint64_t at = UINT64_MAX;
    std::function<void()> then;
  };
  for (const bool by_load : {false, true}) {
    testing::put_bytes(where, testing::file_of(large));
    Changing env_of_handle;
    auto c = open_path(env_of_handle, where, reading(MapMode::none));
    const HeldSnapshot s = c->hold();
    const size_t i = s->header.index.find("t3").value();
    const std::string fresh = pattern(s->header.index.at(i).nbytes, 99);
    env_of_handle.then = [&] {
      testing::poke(where, env_of_handle.at, fresh);
      EXPECT_TRUE(is_ok(c->refresh()));
    };
    env_of_handle.at = s->file_offset(s->header.index.at(i));
    if (by_load) {
      ASSERT_TRUE(is_ok(c->load(*s, {i}, false, false, {})));
    }
    auto view = c->view(*s, i);
    ASSERT_TRUE(is_ok(view));
    EXPECT_EQ(std::memcmp(*view, fresh.data(), fresh.size()), 0) << by_load;
    EXPECT_EQ(&*c->hold(), &*s);
  }
}

// In the midst of a tensor, and between two.
TEST_F(BulkStoreTest, AnInterruptEndsAFirstLookAndARefreshOfMemory) {
  constexpr uint64_t block = uint64_t{16} << 20;
  large = {u8_tensor("long", block + 3000, 1), u8_tensor("next", 3000, 2)};
  testing::put_bytes(where, testing::file_of(large));
  auto c = open_large(reading(MapMode::none));
  const Snapshot &s = c->snapshot();
  const auto interrupt_at = [&](uint64_t offset) {
    watched.on_read = [&c, at = s.file_offset(s.header.index.at(0)) + offset](int, uint64_t read) {
      if (read == at) c->interrupt();
      return 0;
    };
  };
  interrupt_at(0);
  EXPECT_TRUE(fails_with(Status::interrupted, c->view(s, 0)));
  watched.on_read = nullptr;
  EXPECT_EQ(wrong_views(*c), 0);
  for (const uint64_t offset : {uint64_t{0}, block}) {
    interrupt_at(offset);
    auto refreshed = c->refresh();
    ASSERT_TRUE(fails_with(Status::interrupted, refreshed));
    EXPECT_EQ(refreshed.error().tensor, offset == 0 ? "long" : "next");
    watched.on_read = nullptr;
    EXPECT_EQ(wrong_views(*c), 0);
    EXPECT_TRUE(is_ok(c->refresh()));
    EXPECT_EQ(c->hold().get(), &s);
  }
}

TEST_F(BulkStoreTest, ASecondLoadReadsNothingAndMovesNothing) {
  auto c = open_large();
  const Snapshot &s = c->snapshot();
  ASSERT_TRUE(is_ok(c->load(s, {3, 1, 3, 2}, false, false, {})));
  const std::byte *view = c->view(s, 2).value();
  const size_t reads = watched.reads;
  ASSERT_TRUE(is_ok(c->load(s, {1, 2, 3, 0}, false, false, {})));
  EXPECT_EQ(watched.reads, reads);
  ASSERT_TRUE(is_ok(c->load(s, all_of(*c), false, false, {})));
  EXPECT_GT(watched.reads, reads);
  EXPECT_EQ(c->view(s, 2).value(), view);
  EXPECT_EQ(s.content.bytes_owned(), s.header.index.data_bytes());
  EXPECT_EQ(wrong_views(*c), 0);
}

TEST_F(BulkStoreTest, FarApartTensorsAreLoadedWithoutWhatLiesBetween) {
  auto c = open_large();
  const Snapshot &s = c->snapshot();
  const size_t first = 1, last = s.header.index.find("t39").value();
  const uint64_t before = c->counters().read_requests;
  ASSERT_TRUE(is_ok(c->load(s, {last, first}, false, false, {})));
  EXPECT_EQ(c->counters().read_requests - before, 2u + (s.header.index.at(first).nbytes > 65536 ? 2 : 0));
  EXPECT_EQ(wrong_views(*c), 0);
}

TEST_F(BulkStoreTest, ALoadThatFailsLeavesViewsAsTheyWere) {
  auto c = open_large(reading(MapMode::none));
  const Snapshot &s = c->snapshot();
  watched.on_read = [n = 0](int, uint64_t) mutable { return ++n == 20 ? -EIO : 0; };
  EXPECT_TRUE(fails_with(Status::io, c->load(s, all_of(*c), false, false, {})));
  EXPECT_EQ(s.content.bytes_owned(), 0u);
  watched.on_read = nullptr;
  EXPECT_TRUE(fails_with(Status::cancelled,
                         c->load(s, all_of(*c), false, false, [](uint64_t done, uint64_t) { return done == 0; })));
  EXPECT_EQ(s.content.bytes_owned(), 0u);
  EXPECT_EQ(wrong_views(*c), 0);
  auto truncated = open_large(reading(MapMode::none));
  std::filesystem::resize_file(where, s.file_size() - 1);
  EXPECT_TRUE(fails_with(Status::file_changed, truncated->load(truncated->snapshot(), all_of(*c), false, false, {})));
  EXPECT_EQ(truncated->snapshot().content.bytes_owned(), 0u);
}

TEST_F(BulkStoreTest, LoadsOfManyThreadsAtOnceAgree) {
  auto c = open_large();
  const Snapshot &s = c->snapshot();
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      Indices some;
      for (size_t i = static_cast<size_t>(t); i < s.header.index.size(); i += 1 + static_cast<size_t>(t) % 2)
        some.push_back(i);
      if (!c->load(s, some, false, false, {})) ++wrong;
      if (wrong_views(*c) != 0 || wrong_reads(*c) != 0) ++wrong;
      if (!c->prefetch(s, some, {})) ++wrong;
    });
  for (std::thread &t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(s.content.bytes_owned(), s.header.index.data_bytes());
}

// Two loads at once. The first one's first read waits until the second is asked whether it is to go on, or has ended.
class TwoLoads : public BulkStoreTest {
 protected:
  class Counted : public testing::ReadEnv {
   public:
    ssize_t pread(int fd, void *buffer, size_t n, uint64_t offset) override {
      return came(ReadEnv::pread(fd, buffer, n, offset));
    }
    ssize_t preadv(int fd, const struct iovec *parts, int count, uint64_t offset) override {
      if (!gate_passed.exchange(true)) {
        begun.set_value();
        if (const int failed = gate()) return failed;
      }
      return came(ReadEnv::preadv(fd, parts, count, offset));
    }
    int mmap(size_t n, int protection, int flags, int fd, void **out) override {
      mapped += n;
      return ReadEnv::mmap(n, protection, flags, fd, out);
    }
    int munmap(void *address, size_t n) override {
      mapped -= n;
      return ReadEnv::munmap(address, n);
    }
    std::atomic<bool> gate_passed = true;
    std::promise<void> begun;
    std::function<int()> gate;  // 0 or -errno
    std::atomic<uint64_t> bytes = 0, mapped = 0;

   private:
    ssize_t came(ssize_t got) {
      if (got > 0) bytes += static_cast<uint64_t>(got);
      return got;
    }
  };

  void open_counted() {
    OpenOptions options = reading(MapMode::none);
    options.bulk.direct = read::Direct::off;  // such reads take whole pages
    c = open_path(env_of_handle, where, std::move(options));
    all = all_of(*c);
    env_of_handle.bytes = env_of_handle.mapped = 0;
  }
  // What the first answers. `second` begins while that reads, and gets what to call when it is asked.
  Result<void> load_beside(Indices first, const std::function<void(const Progress &asked)> &second, int fails = 0) {
    std::promise<void> go_on;
    env_of_handle.gate = [&] {
      go_on.get_future().wait();
      return fails;
    };
    env_of_handle.gate_passed = false;
    Result<void> answer;
    std::thread loads([&] { answer = c->load(c->snapshot(), std::move(first), false, false, {}); });
    env_of_handle.begun.get_future().wait();
    std::once_flag once;
    const auto opens = [&] { std::call_once(once, [&] { go_on.set_value(); }); };
    second([&](uint64_t, uint64_t) {
      opens();
      return true;
    });
    opens();
    loads.join();
    env_of_handle.begun = {};
    return answer;
  }
  uint64_t data_bytes() const { return c->snapshot().header.index.data_bytes(); }

  Counted env_of_handle;
  std::unique_ptr<DataFile> c;
  Indices all;
};

TEST_F(TwoLoads, OfTheSameTensorsReadThemOnce) {
  for (const bool by_prefetch : {false, true}) {
    open_counted();
    EXPECT_TRUE(is_ok(load_beside(all, [&](const Progress &asked) {
      EXPECT_TRUE(is_ok(by_prefetch ? c->prefetch(c->snapshot(), all, asked)
                                    : c->load(c->snapshot(), all, false, false, asked)));
      EXPECT_EQ(c->snapshot().content.bytes_owned(), data_bytes()) << "it waits for what it asked for";
    })));
    EXPECT_EQ(env_of_handle.bytes, data_bytes());
    EXPECT_LT(env_of_handle.mapped, 2 * data_bytes());
    EXPECT_EQ(wrong_views(*c), 0);
  }
}

TEST_F(TwoLoads, InDifferentOrdersReadWhatTheyShareOnce) {
  open_counted();
  const Indices first(all.begin(), all.begin() + 30), second(all.begin() + 10, all.end());
  EXPECT_TRUE(is_ok(load_beside(first, [&](const Progress &asked) {
    uint64_t last = 0, total = 0;
    const auto told = [&](uint64_t done, uint64_t of) {
      EXPECT_GE(done, last) << "one count";
      EXPECT_TRUE(total == 0 || of == total) << "to one total";
      last = done;
      total = of;
      // Once its own part is there it waits, and is asked again.
      return c->snapshot().content.bytes_owned() == 0 || asked(done, of);
    };
    EXPECT_TRUE(is_ok(c->load(c->snapshot(), second, false, false, told)));
    EXPECT_EQ(last, total);
  })));
  EXPECT_EQ(env_of_handle.bytes, data_bytes());
  EXPECT_EQ(wrong_views(*c), 0);
}

TEST_F(TwoLoads, TheSecondReadsWhatTheFirstCouldNot) {
  open_counted();
  const auto second = [&](const Progress &asked) {
    EXPECT_TRUE(is_ok(c->load(c->snapshot(), all, false, false, asked)));
  };
  EXPECT_TRUE(fails_with(Status::io, load_beside(all, second, -EIO)));
  EXPECT_EQ(c->snapshot().content.bytes_owned(), data_bytes());
  EXPECT_EQ(wrong_views(*c), 0);
}

TEST_F(TwoLoads, TheSecondNeedNotWaitToItsEnd) {
  for (const bool interrupts : {false, true}) {
    open_counted();
    const auto second = [&](const Progress &) {
      const auto stop = [&](uint64_t, uint64_t) {
        if (interrupts) c->interrupt();
        return interrupts;
      };
      EXPECT_TRUE(fails_with(interrupts ? Status::interrupted : Status::cancelled,
                             c->load(c->snapshot(), all, false, false, stop)));
      EXPECT_EQ(c->snapshot().content.bytes_owned(), 0u);
    };
    auto first = load_beside(all, second);
    EXPECT_TRUE(interrupts ? fails_with(Status::interrupted, first) : is_ok(first));
  }
}

// A first look reads by itself.
TEST_F(TwoLoads, NoLookWaitsForALoad) {
  open_counted();
  EXPECT_TRUE(is_ok(load_beside(all, [&](const Progress &) { EXPECT_EQ(wrong_views(*c), 0); })));
  EXPECT_EQ(c->snapshot().content.bytes_owned(), data_bytes());
}

TEST_F(BulkStoreTest, AChangeShowsInLoadedViews) {
  OpenOptions options = writable();
  options.bulk = reading().bulk;
  auto c = open(std::move(options));
  ASSERT_TRUE(is_ok(c->load(c->snapshot(), {0, 1, 2}, false, false, {})));
  const std::byte *view = c->view(c->snapshot(), 1).value();
  ASSERT_TRUE(is_ok(update(*c, "b", new_b)));
  EXPECT_TRUE(same_bytes({reinterpret_cast<const char *>(view), new_b.size()}, new_b));
  EXPECT_TRUE(same_bytes(seen(*c, "a"), tensors[0].bytes));
}

// The bytes were read, and are not yet views when the change is committed.
TEST_F(BulkStoreTest, AChangeDuringALoadIsNotLost) {
  for (MapMode map : {MapMode::shared, MapMode::private_copy, MapMode::none, MapMode::copy_on_write}) {
    testing::put_bytes(path, old);
    OpenOptions options = writable();
    options.map = map;
    auto c = open(std::move(options));
    bool changed = false;
    auto change_at_the_end = [&](uint64_t done, uint64_t total) {
      if (done == total && !std::exchange(changed, true)) {
        EXPECT_TRUE(is_ok(update(*c, "b", new_b)));
      }
      return true;
    };
    ASSERT_TRUE(is_ok(c->load(c->snapshot(), {0, 1, 2}, false, false, change_at_the_end)));
    ASSERT_TRUE(changed);
    EXPECT_TRUE(same_bytes(seen(*c, "b"), new_b));
    EXPECT_TRUE(same_bytes(seen(*c, "a"), tensors[0].bytes));
  }
}

TEST_F(BulkStoreTest, WorkersPartsAreAPartition) {
  auto part = [&](uint32_t number, uint32_t count) {
    OpenOptions options = reading();
    options.worker_index = number;
    options.worker_count = count;
    auto c = open_large(std::move(options));
    return c->own_part(c->snapshot());
  };
  const Indices all = all_of(*open_large());
  for (uint32_t count : {0u, 1u, 2u, 3u, 7u, 60u}) {
    Indices together;
    for (uint32_t number = 0; number < std::max(count, 1u); ++number)
      for (size_t i : part(number, count)) together.push_back(i);
    EXPECT_EQ(together, all) << count << ": each once, in the order of the workers";
  }
  EXPECT_LE(part(UINT32_MAX - 1, UINT32_MAX).size() + part(0, UINT32_MAX).size(), all.size());
}

TEST_F(BulkStoreTest, PrefetchReadsInFileOrderAndCounts) {
  for (MapMode map : {MapMode::shared, MapMode::private_copy, MapMode::copy_on_write}) {
    auto c = open_large(reading(map));
    uint64_t last = 0;
    auto progress = [&](uint64_t done, uint64_t) { return last = done, true; };
    Indices twice = all_of(*c);
    twice.insert(twice.end(), twice.begin(), twice.end());
    ASSERT_TRUE(is_ok(c->prefetch(c->snapshot(), twice, progress)));
    EXPECT_EQ(last, c->snapshot().header.index.data_bytes());
    EXPECT_EQ(c->counters().bytes_prefetched, last);
    EXPECT_EQ(c->snapshot().content.bytes_owned(), 0u);
    EXPECT_EQ(wrong_views(*c), 0);
  }
}

TEST_F(BulkStoreTest, PrefetchWithoutAMappingFillsOwnedMemory) {
  auto c = open_large(reading(MapMode::none));
  ASSERT_TRUE(is_ok(c->prefetch(c->snapshot(), all_of(*c), {})));
  EXPECT_EQ(c->snapshot().content.bytes_owned(), c->snapshot().header.index.data_bytes());
  const size_t reads = watched.reads;
  EXPECT_EQ(wrong_views(*c), 0);
  EXPECT_EQ(watched.reads, reads);
}

TEST_F(BulkStoreTest, PrefetchStopsAtTheMemoryLimit) {
  for (MapMode map : {MapMode::shared, MapMode::none}) {
    std::vector<std::string> told;
    OpenOptions options = reading(map);
    options.memory_limit = 200000;
    options.log = [&](LogLevel, const std::string &message) { told.push_back(message); };
    auto c = open_large(std::move(options));
    ASSERT_TRUE(is_ok(c->prefetch(c->snapshot(), all_of(*c), {})));
    EXPECT_LE(c->counters().bytes_prefetched, 200000u);
    EXPECT_LE(c->snapshot().content.bytes_owned(), 200000u);
    EXPECT_GT(c->counters().bytes_prefetched + c->snapshot().content.bytes_owned(), 100000u);
    EXPECT_EQ(told.size(), 1u);
    told.clear();
    ASSERT_TRUE(is_ok(c->prefetch(c->snapshot(), {2, 3}, {})));
    EXPECT_TRUE(told.empty());
  }
}

TEST_F(BulkStoreTest, WithoutPrefetchNothingIsRead) {
  for (MapMode map : {MapMode::shared, MapMode::none}) {
    auto c = open_large(reading(map, read::Prefetch::none));
    const size_t reads = watched.reads;
    ASSERT_TRUE(is_ok(c->prefetch(c->snapshot(), all_of(*c), {})));
    EXPECT_EQ(watched.reads, reads);
    EXPECT_EQ(c->snapshot().content.bytes_owned(), 0u);
  }
}

TEST_F(BulkStoreTest, OnMemoryFilesystemsNothingIsPrefetched) {
  struct statfs s;
  if (::statfs("/dev/shm", &s) != 0 || s.f_type != 0x01021994) GTEST_SKIP() << "/dev/shm is no tmpfs";
  const std::string in_memory = "/dev/shm/libst-unit-" + std::to_string(::getpid());
  testing::put_bytes(in_memory, testing::bytes_of(where));
  auto c = open_path(watched, in_memory, reading(MapMode::automatic, read::Prefetch::automatic));
  std::filesystem::remove(in_memory);
  EXPECT_EQ(c->snapshot().filesystem.storage, os::Storage::memory);
  const size_t reads = watched.reads;
  ASSERT_TRUE(is_ok(c->prefetch(c->snapshot(), all_of(*c), {})));
  EXPECT_EQ(watched.reads, reads);
  EXPECT_EQ(wrong_reads(*c), 0);
  EXPECT_TRUE(is_ok(c->load(c->snapshot(), all_of(*c), false, true, {})));  // O_DIRECT may be refused there
  EXPECT_EQ(wrong_views(*c), 0);
}

// Where a daemon bypasses the page cache a shared mapping is refused, and the
// private one is filled by itself.
class PopulateEnv : public testing::ReadEnv {
 public:
  int mmap(size_t n, int protection, int flags, int fd, void **out) override {
    if (fd >= 0 && flags == MAP_SHARED) return -ENODEV;
    return ReadEnv::mmap(n, protection, flags, fd, out);
  }
  int madvise(void *address, size_t n, int advice) override {
    if (advice == 22 /* MADV_POPULATE_READ */) {
      ++populated;
      if (populate_error) return -populate_error;
    }
    if (advice == MADV_WILLNEED) ++willneed;
    return ReadEnv::madvise(address, n, advice);
  }
  int populate_error = 0, populated = 0, willneed = 0;
};

TEST_F(BulkStoreTest, AMappingThatFetchesItsOwnPagesIsPopulated) {
  PopulateEnv stubborn;
  auto c = open_path(stubborn, where, reading());
  ASSERT_EQ(c->snapshot().content.map(), MapMode::private_copy);
  const size_t reads = stubborn.reads;
  uint64_t last = 0;
  ASSERT_TRUE(
      is_ok(c->prefetch(c->snapshot(), all_of(*c), [&](uint64_t done, uint64_t) { return last = done, true; })));
  EXPECT_EQ(stubborn.reads, reads);
  EXPECT_GT(stubborn.populated, 1);
  EXPECT_EQ(last, c->snapshot().header.index.data_bytes());
  EXPECT_EQ(wrong_views(*c), 0);
  EXPECT_TRUE(
      fails_with(Status::cancelled, c->prefetch(c->snapshot(), all_of(*c), [](uint64_t, uint64_t) { return false; })));

  stubborn.populate_error = EINVAL;  // Linux before 5.14
  EXPECT_TRUE(is_ok(c->prefetch(c->snapshot(), all_of(*c), {})));
  EXPECT_GT(stubborn.willneed, 0);
  stubborn.populate_error = EFAULT;  // a disk that fails, or a file that ends before
  auto failed = c->prefetch(c->snapshot(), all_of(*c), {});
  EXPECT_TRUE(fails_with(Status::io, failed));
  EXPECT_EQ(failed.error().os_errno, EIO);
  stubborn.populate_error = 0;
  std::filesystem::resize_file(where, 20000);
  EXPECT_TRUE(fails_with(Status::file_changed, c->prefetch(c->snapshot(), all_of(*c), {})));
}

TEST_F(BulkStoreTest, AChildHasADescriptorAndAMappingOfItsOwn) {
  for (MapMode map : {MapMode::shared, MapMode::private_copy, MapMode::none, MapMode::copy_on_write}) {
    auto c = open_path(env, where, reading(map));
    const Snapshot &s = c->snapshot();
    const std::byte *view = c->view(s, 1).value();
    EXPECT_EQ(in_child([&] {
                auto here = s.here();
                if (!here) return 10;
                if (here->file.fd() == s.file.fd()) return 11;
                if (map != MapMode::none && here->content.bytes() == s.content.bytes()) return 12;
                if (here->content.map() != map || here->content.reason() != s.content.reason()) return 13;
                if (std::memcmp(view, tensor("t0").bytes.data(), 150000) != 0) return 14;
                if (map == MapMode::none && c->view(s, 1).value() != view) return 15;  // inherited
                if (s.reopens() != 1) return 16;
                if (int wrong = wrong_views(*c)) return wrong;
                return wrong_reads(*c);
              }),
              0);
    EXPECT_EQ(s.reopens(), 0u);
    EXPECT_EQ(wrong_views(*c), 0);
  }
}

TEST_F(BulkStoreTest, LoadedMemoryIsInheritedAndNotReadAgain) {
  auto c = open_path(env, where, reading());
  const Snapshot &s = c->snapshot();
  ASSERT_TRUE(is_ok(c->load(s, all_of(*c), false, false, {})));
  const std::byte *view = c->view(s, 1).value();
  EXPECT_EQ(in_child([&] {
              if (c->view(s, 1).value() != view) return 10;
              const uint64_t requests = c->counters().read_requests;
              if (!c->load(s, all_of(*c), false, false, {})) return 11;
              if (c->counters().read_requests != requests) return 12;
              return in_child([&] { return c->view(s, 1).value() == view && s.reopens() == 2 ? wrong_views(*c) : 13; });
            }),
            0);
}

// Generations without processes, so that many threads can be the child's.
TEST_F(BulkStoreTest, ThreadsOfAChildAgreeOnOneWayToTheFile) {
  for (MapMode map : {MapMode::shared, MapMode::none}) {
    watched.generation = 0;
    auto c = open_large(reading(map));
    const Snapshot &s = c->snapshot();
    const std::byte *before = c->view(s, 1).value();
    for (uint64_t generation = 1; generation <= 3; ++generation) {
      watched.generation = generation;
      std::atomic<int> wrong = 0;
      std::mutex mutex;
      std::set<const void *> ways;
      std::vector<std::thread> threads;
      for (int t = 0; t < 6; ++t)
        threads.emplace_back([&] {
          auto here = s.here();
          if (!here || wrong_views(*c)) ++wrong;
          std::lock_guard lock(mutex);
          ways.insert(&here->file);
        });
      for (std::thread &t : threads) t.join();
      EXPECT_EQ(wrong, 0);
      EXPECT_EQ(ways.size(), 1u);
      EXPECT_EQ(s.reopens(), generation);
      EXPECT_EQ(std::memcmp(before, tensor("t0").bytes.data(), 150000), 0) << "views of the parent stay";
    }
  }
}

TEST_F(BulkStoreTest, AChildThatFindsAnotherFileIsTold) {
  auto c = open_large();
  watched.generation = 1;
  watched.on_open = [](const char *file, int) { return std::string_view(file).starts_with("/proc") ? -ENOENT : 0; };
  std::filesystem::rename(where, dir / "moved");
  testing::put_bytes(where, testing::bytes_of(dir / "moved"));
  EXPECT_TRUE(fails_with(Status::file_changed, c->view(c->snapshot(), 1)));
  watched.on_open = nullptr;
  EXPECT_EQ(wrong_views(*c), 0);
}

TEST_F(BulkStoreTest, AChildsChangeShowsInViewsFromBeforeTheFork) {
  for (MapMode map : {MapMode::shared, MapMode::private_copy, MapMode::none, MapMode::copy_on_write}) {
    testing::put_bytes(path, old);
    OpenOptions options = writable();
    options.map = map;
    auto c = open(std::move(options));
    const std::byte *view = c->view(c->snapshot(), 1).value();
    EXPECT_EQ(std::memcmp(view, tensors[1].bytes.data(), 100), 0);
    EXPECT_EQ(in_child([&] {
                if (!update(*c, "b", new_b)) return 10;
                const std::string &shown = map == MapMode::copy_on_write ? tensors[1].bytes : new_b;
                if (std::memcmp(view, shown.data(), shown.size()) != 0) return 11;
                return seen(*c, "b") == new_b ? 0 : 12;
              }),
              0)
        << static_cast<int>(map);
  }
}

// Their pages may be copies, where a mapping is private to a daemon's file.
TEST_F(BulkStoreTest, AChangeForgetsThePagesOfEveryGeneration) {
  class Forgetful : public testing::ReadEnv {
   public:
    int madvise(void *address, size_t n, int advice) override {
      if (advice == MADV_DONTNEED) forgotten.insert(reinterpret_cast<uintptr_t>(address));
      return ReadEnv::madvise(address, n, advice);
    }
    std::set<uintptr_t> forgotten;
  } forgetful;
  OpenOptions options = writable();
  options.map = MapMode::private_copy;
  auto c = open(forgetful, std::move(options));
  for (uint64_t generation : {1, 2}) {
    forgetful.generation = generation;
    ASSERT_TRUE(is_ok(c->snapshot().here()));
  }
  ASSERT_TRUE(is_ok(update(*c, "b", new_b)));
  EXPECT_EQ(forgetful.forgotten.size(), 3u);
}

// The other threads are not in the child, and what they held locked stays so.
TEST_F(BulkStoreTest, AForkWhileOtherThreadsReadLeavesTheChildAbleTo) {
  for (MapMode map : {MapMode::shared, MapMode::none}) {
    std::atomic<bool> stop = false;
    std::unique_ptr<DataFile> c = open_path(env, where, reading(map));
    std::vector<std::thread> readers;
    std::atomic<int> rounds = 0;
    for (int t = 0; t < 2; ++t)
      readers.emplace_back([&, t] {
        for (size_t i = static_cast<size_t>(t); !stop; ++i) {
          static_cast<void>(c->load(c->snapshot(), {i % 40}, false, t == 1, {}));
          static_cast<void>(wrong_views(*c));
          ++rounds;
        }
      });
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(in_child([&] {
                  if (int wrong = wrong_views(*c)) return wrong;
                  if (!c->load(c->snapshot(), all_of(*c), false, false, {})) return 10;
                  return wrong_views(*c);
                }),
                0);
    }
    while (rounds < 4) std::this_thread::yield();
    stop = true;
    for (std::thread &t : readers) t.join();
  }
}

}  // namespace
}  // namespace st::store
