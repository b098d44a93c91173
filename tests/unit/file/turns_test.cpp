// Publishes among patches, and patches among publishes: nobody starves. On a clock that only passes while somebody
// waits or syncs (timed_env.h).
#include "bound.h"
#include "os/turnstile.h"
#include "shards/shard_transaction.h"
#include "shards/shards.h"
#include "store_scene.h"
#include "timed_env.h"

namespace st::store {
namespace {

using namespace testing;

constexpr uint64_t size = 3000;
constexpr uint64_t shape[] = {size};
const uint64_t seeds = testing::small_bound() ? 1 : 4;

// When a change began to wait for its locks, had them, and was durable.
struct Times {
  uint64_t began, held, ended;
};

class Turns : public ::testing::Test {
 protected:
  static constexpr const char *path = "/model.safetensors";

  static void make_file(TimedEnv &env) {
    env.add_file(path, testing::file_of({u8_tensor("a", size, 1), u8_tensor("b", size, 2), u8_tensor("c", size, 3),
                                         u8_tensor("d", size, 4), u8_tensor("p", size, 5)}));
  }
  static NewBytes u8(const std::string &bytes) {
    return {static_cast<uint32_t>(Dtype::U8), shape, bytes.data(), bytes.size()};
  }
  static std::unique_ptr<DataFile> open(TimedEnv &env) {
    OpenOptions options;
    options.writable = true;
    return DataFile::open(env, path, std::move(options)).value();
  }
  static Result<Times> change(TimedEnv &env, DataFile &c, const std::string &name, bool publish,
                              int32_t timeout_ms = 10000) {
    TransactionOptions options;
    options.publish = publish;
    options.lock_timeout_ms = timeout_ms;
    auto t = Transaction::begin(c, std::move(options)).value();
    const std::string bytes = pattern(size, static_cast<unsigned>(env.now_us()));
    if (auto staged = t->update(name, u8(bytes)); !staged) return Failure(std::move(staged.error()));
    Times times{env.now_us(), 0, 0};
    t->before_change([&](auto) {
      times.held = env.now_us();
      return Result<void>();
    });
    if (auto done = t->commit(); !done) return Failure(std::move(done.error()));
    times.ended = env.now_us();
    return times;
  }
  // Changes one after the other until `until`.
  static std::function<void()> going_on(TimedEnv &env, std::string name, bool publish, std::vector<Times> *log,
                                        const bool &until) {
    return [&env, name = std::move(name), publish, log, &until] {
      const auto c = open(env);
      while (!until) {
        auto times = change(env, *c, name, publish);
        if (!times && until) return;  // starved by those who went on
        ASSERT_TRUE(is_ok(times)) << name;
        log->push_back(*times);
      }
    };
  }
  static uint64_t longest(const std::vector<Times> &log) {
    uint64_t longest = 0;
    for (const Times &t : log) longest = std::max(longest, t.ended - t.held);
    return longest;
  }
  // How many had their locks while this one waited.
  static size_t overtook(const std::vector<Times> &log, const Times &waited) {
    return static_cast<size_t>(std::count_if(
        log.begin(), log.end(), [&](const Times &t) { return t.held > waited.began && t.held < waited.held; }));
  }
};

struct Neighbours {
  const char *what;
  std::vector<std::string> names;  // what the neighbours change, one each
};

const Neighbours apart = {"each its own tensor", {"a", "b", "c", "d"}},
                 together = {"all the same tensor", {"a", "a", "a", "a"}};

TEST_F(Turns, APublishGetsInWithinTwiceTheLongestPatchOfFourWhoGoOn) {
  for (const Neighbours &neighbours : {apart, together})
    for (const uint32_t sync_us : {200u, 3000u})
      for (uint64_t seed = 1; seed <= seeds; ++seed) {
        TimedEnv env(seed);
        env.sync_us = sync_us;
        make_file(env);
        bool over = false;
        std::vector<Times> patches, publishes;
        std::vector<std::function<void()>> workers;
        for (const std::string &name : neighbours.names) workers.push_back(going_on(env, name, false, &patches, over));
        workers.push_back([&] {
          const auto c = open(env);
          for (int i = 0; i < 3; ++i) {
            env.sleep_us(20'000);
            auto times = change(env, *c, "p", true);
            EXPECT_TRUE(is_ok(times));
            if (times) publishes.push_back(*times);
          }
          over = true;
        });
        env.run(workers);
        ASSERT_EQ(publishes.size(), 3u) << neighbours.what << ", sync " << sync_us << ", seed " << seed << ", "
                                        << patches.size() << " patches";
        for (const Times &p : publishes) {
          EXPECT_LE(p.held - p.began, 2 * longest(patches))
              << neighbours.what << ", sync " << sync_us << ", seed " << seed;
          EXPECT_LE(overtook(patches, p), neighbours.names.size());
        }
      }
}

TEST_F(Turns, APatchGetsInAmongThosePublishingWithoutAPause) {
  for (const size_t publishers : {1u, 2u, 4u})
    for (const uint32_t sync_us : {200u, 3000u})
      for (uint64_t seed = 1; seed <= seeds; ++seed) {
        TimedEnv env(seed);
        env.sync_us = sync_us;
        make_file(env);
        bool over = false;
        std::vector<Times> publishes, patches;
        std::vector<std::function<void()>> workers;
        for (size_t i = 0; i < publishers; ++i) workers.push_back(going_on(env, "p", true, &publishes, over));
        workers.push_back([&] {
          const auto c = open(env);
          for (int i = 0; i < 5; ++i) {
            env.sleep_us(7000);
            auto times = change(env, *c, "a", false);
            EXPECT_TRUE(is_ok(times));
            if (times) patches.push_back(*times);
          }
          over = true;
        });
        env.run(workers);
        ASSERT_EQ(patches.size(), 5u) << publishers << " publishers, sync " << sync_us << ", seed " << seed << ", "
                                      << publishes.size() << " publishes";
        for (const Times &p : patches)
          EXPECT_LE(overtook(publishes, p), 3u) << publishers << " publishers, sync " << sync_us << ", seed " << seed;
      }
}

// Chance says which of several waiters is next, so not each time, but on the whole.
TEST_F(Turns, APublishGetsInAmongOthersPublishingWithoutAPause) {
  for (const size_t publishers : {1u, 2u, 3u}) {
    size_t overtaken = 0, publishes = 0;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      TimedEnv env(seed);
      make_file(env);
      bool over = false;
      std::vector<Times> others;
      std::vector<std::function<void()>> workers;
      for (size_t i = 0; i < publishers; ++i) workers.push_back(going_on(env, "p", true, &others, over));
      workers.push_back([&] {
        const auto c = open(env);
        for (int i = 0; i < 5; ++i) {
          env.sleep_us(7000);
          auto times = change(env, *c, "a", true);
          EXPECT_TRUE(is_ok(times)) << publishers << " others, seed " << seed;
          if (!times) continue;
          overtaken += overtook(others, *times);
          ++publishes;
        }
        over = true;
      });
      env.run(workers);
    }
    EXPECT_EQ(publishes, 5 * seeds) << publishers << " others";
    EXPECT_LE(overtaken, publishes * 2 * publishers) << publishers << " others";
  }
}

// The same across shards, which are locked one after the other, behind their index.
class TurnsAcrossShards : public Turns {
 protected:
  static constexpr const char *index = "/m.safetensors.index.json";

  static void make_shards(TimedEnv &env) {
    ShardIndex shards = ShardIndex::of({"m-1.safetensors", "m-2.safetensors", "m-3.safetensors"}, 0);
    for (const std::string shard : {"1", "2", "3"}) {
      const std::string file = "m-" + shard + ".safetensors";
      env.add_file("/" + file, testing::file_of({u8_tensor("a" + shard, size, 1), u8_tensor("p" + shard, size, 2)}));
      for (const char *name : {"a", "p"}) shards.assign(name + shard, file);
    }
    env.add_file(index, shards.spell());
  }
  // One tensor of each shard, in one transaction, and a new index if nobody else makes one; until it is `over`.
  static std::function<void()> going_on(TimedEnv &env, std::string name, bool publish, bool alone,
                                        std::vector<Times> *log, const std::function<bool()> &over) {
    return [&env, name = std::move(name), publish, alone, log, over] {
      OpenOptions writable;
      writable.writable = true;
      const auto shards = Shards::open(env, index, writable).value();
      for (int i = 0; !over(); ++i) {
        TransactionOptions options;
        options.publish = publish;
        const auto t = shards->begin(std::move(options)).value();
        const std::string bytes = pattern(size, static_cast<unsigned>(env.now_us()));
        for (const char *shard : {"3", "1", "2"}) ASSERT_TRUE(is_ok(t->update(name + shard, u8(bytes))));
        if (publish && alone) {
          ASSERT_TRUE(is_ok(t->set_metadata("round", std::to_string(i))));
        }
        const uint64_t began = env.now_us();
        const auto done = t->commit();
        if (!done && over()) return;
        ASSERT_TRUE(is_ok(done)) << name;
        log->push_back({began, env.now_us(), env.now_us()});
      }
    };
  }
  // `many` of one kind go on while one of the other kind makes five changes: how many of theirs came between, at most?
  static size_t most_between(uint64_t seed, size_t many, bool many_publish) {
    TimedEnv env(seed);
    make_shards(env);
    std::vector<Times> theirs, mine;
    const auto over = [&] { return mine.size() == 5; };
    std::vector<std::function<void()>> workers;
    for (size_t i = 0; i < many; ++i) workers.push_back(going_on(env, "a", many_publish, false, &theirs, over));
    workers.push_back(going_on(env, "p", !many_publish, true, &mine, over));
    env.run(workers);
    EXPECT_EQ(mine.size(), 5u) << theirs.size() << " of the others";
    size_t most = 0;
    for (const Times &t : mine) most = std::max(most, overtook(theirs, t));
    return most;
  }
};

TEST_F(TurnsAcrossShards, APublishGetsInAmongPatches) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) EXPECT_LE(most_between(seed, 4, false), 8u) << seed;
}

TEST_F(TurnsAcrossShards, APatchGetsInAmongPublishes) {
  for (uint64_t seed = 1; seed <= seeds; ++seed) EXPECT_LE(most_between(seed, 2, true), 4u) << seed;
}

}  // namespace
}  // namespace st::store
