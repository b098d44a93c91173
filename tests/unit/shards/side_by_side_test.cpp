// Shards whose opens wait for a server are opened side by side, where more than one is needed.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/interrupt.h"
#include "format/shard_index.h"
#include "model/model_view.h"
#include "shards/shards.h"
#include "test_files.h"

namespace st::store {
namespace {

using namespace testing;
using ::testing::HasSubstr;

constexpr unsigned at_once = 4;

class Memory final : public os::Source {
 public:
  explicit Memory(std::string bytes) : Source("a server", bytes.size(), at_once), bytes_(std::move(bytes)) {}
  int read(std::span<const Range> ranges) override {
    for (const Range &r : ranges) std::memcpy(r.to, bytes_.data() + r.offset, r.nbytes);
    return 0;
  }

 private:
  const std::string bytes_;
};

std::shared_ptr<os::SourceEnv> source_of(std::string bytes) {
  return std::make_shared<os::SourceEnv>(std::make_unique<Memory>(std::move(bytes)));
}

class SideBySideTest : public ::testing::Test {
 protected:
  static constexpr unsigned shards = 9;

  static std::string name(unsigned i) { return text("m-", i); }
  void SetUp() override {
    std::vector<std::string> names;
    for (unsigned i = 0; i < shards; ++i) names.push_back(name(i));
    ShardIndex index = ShardIndex::of(names, 0);
    for (unsigned i = 0; i < shards; ++i) index.assign(text("t", i), names[i]);
    OpenOptions options;
    options.progress = [this](uint64_t, uint64_t) {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      const std::lock_guard lock(mutex);
      ++asked;
      return goes_on;
    };
    index_source = source_of(index.spell());
    const auto open_shard = [this](const std::string &shard) -> Result<std::shared_ptr<os::SourceEnv>> {
      const auto i = static_cast<unsigned>(shard.back() - '0');
      Done done(*this);
      if (each) ST_TRY(each(i));
      return source_of(file_of({u8_tensor(text("t", i), 8, i)}));
    };
    auto opened = Shards::open_sources(os::Env::posix(), *index_source, "https://a/index", open_shard, options);
    ASSERT_TRUE(is_ok(opened));
    model = std::move(*opened);
  }
  // An open is under way as long as it lives.
  struct Done {
    explicit Done(SideBySideTest &test) : of(test) {
      const std::lock_guard lock(of.mutex);
      ++of.begun;
      of.most = std::max(of.most, ++of.under_way);
      of.news.notify_all();
    }
    ~Done() {
      const std::lock_guard lock(of.mutex);
      --of.under_way;
      of.news.notify_all();
    }
    SideBySideTest &of;
  };
  // False: it did not come so in a minute.
  template <class Condition>
  bool await(Condition condition) {
    std::unique_lock lock(mutex);
    return news.wait_for(lock, std::chrono::minutes(1), condition);
  }

  const std::thread::id caller = std::this_thread::get_id();
  std::mutex mutex;  // of what follows
  std::condition_variable news;
  unsigned begun = 0, under_way = 0, most = 0, asked = 0;
  bool goes_on = true;

  std::function<Result<void>(unsigned)> each;  // called as shard i is opened
  std::shared_ptr<os::SourceEnv> index_source;
  std::unique_ptr<Shards> model;
};

TEST_F(SideBySideTest, AllThatAreNeeded) {
  each = [&](unsigned i) -> Result<void> {
    EXPECT_TRUE(i >= at_once || await([&] { return begun >= at_once; })) << i << " waits alone";
    return {};
  };
  const auto all = model->catalogue().all();
  ASSERT_TRUE(is_ok(all));
  ASSERT_EQ(all->size(), shards);
  for (unsigned i = 0; i < shards; ++i) EXPECT_EQ((*all)[i].tensor().name, text("t", i));
  EXPECT_EQ(begun, shards);
  EXPECT_LE(most, at_once);
  ASSERT_TRUE(is_ok(ModelView::of(*model)));
  EXPECT_EQ(begun, shards);
}

TEST_F(SideBySideTest, NoneThatIsNotNeeded) {
  const Catalogue catalogue = model->catalogue();
  ASSERT_TRUE(is_ok(catalogue.range(2, 3)));
  EXPECT_EQ(begun, 3u);
  Wanted wanted(catalogue);
  EXPECT_TRUE(wanted.add(uint64_t{3}));
  EXPECT_TRUE(wanted.add("t8"));
  EXPECT_FALSE(wanted.add("t9"));
  EXPECT_FALSE(wanted.add(uint64_t{shards}));
  ASSERT_TRUE(is_ok(wanted.open()));
  EXPECT_EQ(begun, 4u);
  ASSERT_TRUE(is_ok(catalogue.find("t8")));
  EXPECT_EQ(begun, 4u);
}

// Whichever fails first.
TEST_F(SideBySideTest, TheErrorIsThatOfTheFirstInTheirOrder) {
  bool third_has_failed = false;
  each = [&](unsigned i) -> Result<void> {
    if (i != 1 && i != 3) return {};
    EXPECT_TRUE(i == 3 || await([&] { return third_has_failed && under_way == 1; }));
    const std::lock_guard lock(mutex);
    third_has_failed |= i == 3;
    return fail(Status::io, "no answer for ", i);
  };
  const auto all = model->catalogue().all();
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().message, "no answer for 1");
  EXPECT_EQ(all.error().shard, 1);
}

// Those behind it need not wait for their answers.
TEST_F(SideBySideTest, AFailureEndsThoseBehindIt) {
  each = [&](unsigned i) -> Result<void> {
    if (i == 0) {
      EXPECT_TRUE(await([&] { return begun >= at_once; }));
      return fail(Status::io, "no answer");
    }
    while (!InterruptCheck::stops()) std::this_thread::yield();
    return Failure(*InterruptCheck::stopped());
  };
  const auto all = model->catalogue().all();
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().message, "no answer");
  EXPECT_EQ(begun, at_once);
}

TEST_F(SideBySideTest, ItsCallerEndsThem) {
  for (const bool by_interrupt : {false, true}) {
    const unsigned before = begun;
    each = [&, before](unsigned i) -> Result<void> {
      EXPECT_TRUE(await([&] { return begun >= before + at_once; }));
      if (i == 3 && by_interrupt) model->interrupt();
      const std::lock_guard lock(mutex);
      goes_on = by_interrupt;
      return {};
    };
    const auto waits = [&, inner = each](unsigned i) -> Result<void> {
      ST_TRY(inner(i));
      while (!InterruptCheck::stops()) std::this_thread::yield();
      return Failure(*InterruptCheck::stopped());
    };
    each = waits;
    const auto all = model->catalogue().all();
    ASSERT_FALSE(all);
    EXPECT_EQ(all.error().status, by_interrupt ? Status::interrupted : Status::cancelled);
    EXPECT_THAT(all.error().message, HasSubstr(by_interrupt ? "was interrupted" : "progress callback cancelled"));
  }
  each = nullptr;
  goes_on = true;
  EXPECT_TRUE(is_ok(model->catalogue().all()));
  EXPECT_GT(asked, 0u);
}

// A call of its own progress asks no other.
TEST_F(SideBySideTest, TheProgressOfACallEndsThem) {
  each = [&](unsigned) -> Result<void> {
    while (!InterruptCheck::stops()) std::this_thread::yield();
    return Failure(*InterruptCheck::stopped());
  };
  const Catalogue catalogue = model->catalogue();
  Wanted wanted(catalogue);
  EXPECT_TRUE(wanted.add("t8"));
  const Progress stops = [](uint64_t, uint64_t) { return false; };
  goes_on = false;  // or it would wait for ever if the handle's is asked
  EXPECT_TRUE(fails_with(Status::cancelled, wanted.open(stops)));
  EXPECT_TRUE(fails_with(Status::cancelled, model->load(catalogue, {}, false, false, stops)));
  EXPECT_TRUE(fails_with(Status::cancelled, model->prefetch(catalogue, {}, stops)));
  EXPECT_EQ(asked, 0u);
}

}  // namespace
}  // namespace st::store
