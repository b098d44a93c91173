// How bulk reads go, by storage, by wish and by environment.
#include "read/strategy.h"
#include "read_scene.h"

namespace st::read {
namespace {

using os::Storage;
using namespace testing;

class StrategyTest : public ::testing::Test {
 protected:
  Result<Strategy> choose(Storage storage, const ReadOptions &wanted = {}) {
    return choose_strategy(env, wanted, {storage, "testfs"});
  }
  testing::ReadEnv env;
};

TEST_F(StrategyTest, EachStorageHasItsHabitAndSaysWhy) {
  const struct {
    Storage storage;
    Prefetch prefetch;
    uint32_t threads;
    bool own_range;
  } table[] = {
      {Storage::local, Prefetch::parallel, 2, false},    {Storage::memory, Prefetch::none, 2, false},
      {Storage::network, Prefetch::parallel, 2, true},   {Storage::parallel, Prefetch::parallel, 4, true},
      {Storage::fuse, Prefetch::sequential, 1, true},    {Storage::object_store, Prefetch::parallel, 2, true},
      {Storage::unknown, Prefetch::sequential, 1, true},
  };
  for (const auto &row : table) {
    SCOPED_TRACE(os::storage_name(row.storage));
    auto s = choose(row.storage);
    ASSERT_TRUE(is_ok(s));
    EXPECT_EQ(s->prefetch, row.prefetch);
    EXPECT_EQ(s->threads, row.threads);
    EXPECT_EQ(s->own_range, row.own_range);
    EXPECT_EQ(s->direct, row.storage == Storage::local ? Direct::automatic : Direct::off);
    EXPECT_GE(s->block, 1u << 20);
    EXPECT_EQ(s->block % 4096, 0u);
    EXPECT_LE(s->memory_gap, s->gap);
    EXPECT_LE(s->gap, s->block);
    EXPECT_NE(s->reason.find("testfs"), std::string::npos);
    EXPECT_NE(s->reason.find(os::storage_name(row.storage)), std::string::npos);
    EXPECT_EQ(s->reason.find("changed by"), std::string::npos) << s->reason;
    EXPECT_LT(s->reason.size(), 256u) << "what st_io_info can hold";
  }
}

TEST_F(StrategyTest, ADiskHasAReaderAProcessorButNoMoreThanFour) {
  for (const auto &[processors, threads] : {std::pair{1u, 1u}, {3u, 3u}, {128u, 4u}}) {
    env.processors = processors;
    EXPECT_EQ(choose(Storage::local)->threads, threads);
  }
}

TEST_F(StrategyTest, WishesGoOverTheStorage) {
  auto s = choose(Storage::network, {Prefetch::parallel, Direct::on, 7, 1 << 20});
  ASSERT_TRUE(is_ok(s));
  EXPECT_EQ(s->prefetch, Prefetch::parallel);
  EXPECT_EQ(s->direct, Direct::on);
  EXPECT_EQ(s->threads, 7u);
  EXPECT_EQ(s->block, 1u << 20);
  EXPECT_NE(s->reason.find("changed by"), std::string::npos) << s->reason;
  EXPECT_NE(s->reason.find("7 readers of ranges"), std::string::npos) << s->reason;
  EXPECT_NE(s->reason.find("past the page cache"), std::string::npos) << s->reason;
  EXPECT_EQ(choose(Storage::fuse, {Prefetch::parallel})->threads, 4u);
  EXPECT_EQ(choose(Storage::parallel, {Prefetch::sequential})->threads, 1u);
  EXPECT_EQ(choose(Storage::local, {Prefetch::none})->prefetch, Prefetch::none);
}

TEST_F(StrategyTest, WhoSaysHowManyReadersThereAreReadsThroughThePageCache) {
  for (const ReadOptions &wanted :
       {ReadOptions{.threads = 2}, ReadOptions{.prefetch = Prefetch::parallel}, ReadOptions{.workers = 2}})
    EXPECT_EQ(choose(Storage::local, wanted)->direct, Direct::off);
  EXPECT_EQ(choose(Storage::local, {.block = 1 << 20})->direct, Direct::automatic);
}

TEST_F(StrategyTest, ThreadsPastThePageCacheAreNoMoreThanTheCallerSays) {
  EXPECT_EQ(choose(Storage::local)->direct_threads, 8u);
  EXPECT_EQ(choose(Storage::local, {.direct = Direct::on})->direct_threads, 8u);
  EXPECT_EQ(choose(Storage::network, {.prefetch = Prefetch::parallel})->direct_threads, 8u);
  EXPECT_EQ(choose(Storage::local, {.direct = Direct::on, .threads = 3})->direct_threads, 3u);
  EXPECT_EQ(choose(Storage::fuse, {.prefetch = Prefetch::sequential})->direct_threads, 1u);
  EXPECT_EQ(choose(Storage::local, {.workers = 4})->direct_threads, 2u);
  EXPECT_EQ(choose(Storage::network, {.workers = 100})->direct_threads, 1u);
}

TEST_F(StrategyTest, NumbersAreBroughtIntoTheirBounds) {
  EXPECT_EQ(choose(Storage::local, {.threads = 1000})->threads, 64u);
  EXPECT_EQ(choose(Storage::local, {.block = 1})->block, 64u << 10);
  EXPECT_EQ(choose(Storage::local, {.block = UINT32_MAX})->block, 256u << 20);
  EXPECT_EQ(choose(Storage::local, {.block = (1 << 20) + 4095})->block, 1u << 20);
}

TEST_F(StrategyTest, TheEnvironmentStandsInForWhatIsNotAsked) {
  env.environment = {
      {"ST_PREFETCH", "parallel"}, {"ST_DIRECT", "1"}, {"ST_IO_THREADS", "3"}, {"ST_BLOCK_SIZE", "131072"}};
  auto s = choose(Storage::fuse);
  ASSERT_TRUE(is_ok(s));
  EXPECT_EQ(s->prefetch, Prefetch::parallel);
  EXPECT_EQ(s->direct, Direct::on);
  EXPECT_EQ(s->threads, 3u);
  EXPECT_EQ(s->block, 131072u);
  auto asked = choose(Storage::fuse, {Prefetch::none, Direct::off, 5, 1 << 20});
  ASSERT_TRUE(is_ok(asked));
  EXPECT_EQ(asked->prefetch, Prefetch::none);
  EXPECT_EQ(asked->direct, Direct::off);
  EXPECT_EQ(asked->threads, 5u);
  EXPECT_EQ(asked->block, 1u << 20);
}

TEST_F(StrategyTest, EveryNameOfTheEnvironmentIsKnown) {
  const std::pair<const char *, Prefetch> names[] = {{"none", Prefetch::none},
                                                     {"sequential", Prefetch::sequential},
                                                     {"parallel", Prefetch::parallel},
                                                     {"auto", Prefetch::parallel},
                                                     {"", Prefetch::parallel}};
  for (const auto &[name, prefetch] : names) {
    env.environment = {{"ST_PREFETCH", name}, {"ST_DIRECT", "0"}, {"ST_IO_THREADS", "0"}, {"ST_BLOCK_SIZE", ""}};
    auto s = choose(Storage::local);
    ASSERT_TRUE(is_ok(s)) << name;
    EXPECT_EQ(s->prefetch, prefetch) << name;
    EXPECT_EQ(s->direct, Direct::off);
  }
}

TEST_F(StrategyTest, ValuesThatAreNoneAreErrorsThatNameTheVariable) {
  const std::pair<const char *, const char *> table[] = {
      {"ST_PREFETCH", "Parallel"}, {"ST_PREFETCH", "1"},     {"ST_DIRECT", "yes"},    {"ST_DIRECT", "2"},
      {"ST_IO_THREADS", "four"},   {"ST_IO_THREADS", "-1"},  {"ST_IO_THREADS", "4 "}, {"ST_IO_THREADS", "4294967296"},
      {"ST_BLOCK_SIZE", "1M"},     {"ST_BLOCK_SIZE", "0x1"},
  };
  for (const auto &[name, value] : table) {
    env.environment = {{name, value}};
    auto s = choose(Storage::local);
    ASSERT_TRUE(fails_with(Status::invalid_argument, s)) << name << "=" << value;
    EXPECT_NE(s.error().message.find(name), std::string::npos);
    EXPECT_NE(s.error().message.find(value), std::string::npos);
  }
}

}  // namespace
}  // namespace st::read
