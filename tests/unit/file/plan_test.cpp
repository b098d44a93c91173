// A plan says to the byte what its commit then writes, shares and has copied. No commit begins without the room that
// its plan names.
#include "bound.h"
#include "counting_env.h"
#include "engine/open.h"
#include "engine/recover_all.h"
#include "random_model.h"
#include "test_files.h"

namespace st::store {
namespace {

using namespace testing;

struct Case {
  const char *name;
  size_t shards;
  bool reflink;
  bool new_names = false;
};
void PrintTo(const Case &c, std::ostream *out) {
  *out << c.name;
}

class PlanTest : public ::testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<Model> open(const std::string &path) {
    OpenOptions options;
    options.writable = true;
    options.lock_timeout_ms = 0;
    auto opened = open_path(env(), path, options);
    EXPECT_TRUE(is_ok(opened));
    return std::move(*opened);
  }
  RandomModel random_model(uint64_t seed, uint64_t scale) {
    RandomModel model(dir_.path(), seed, GetParam().shards, scale);
    model.new_names = GetParam().new_names;
    return model;
  }
  CountingEnv &env() { return GetParam().reflink ? xfs_ : plain_; }

  const testing::TempDir dir_;
  CountingEnv plain_{os::Env::posix()};
  CountingXfs xfs_{os::Env::posix()};
};

TEST_P(PlanTest, SaysToTheByteWhatIsWrittenSharedAndCopied) {
  constexpr uint64_t scale = uint64_t{3} << 20;
  const size_t trials = bounded(40, 60, 2000);
  RandomModel model = random_model(7, scale);
  auto c = open(model.path);
  size_t patches = 0, publishes = 0;
  for (size_t i = 0; i < trials && !HasFailure(); ++i) {
    SCOPED_TRACE(text("transaction ", i));
    if (model.one_in(8)) c = open(model.path);
    auto begun = c->begin(model.options());
    ASSERT_TRUE(is_ok(begun));
    auto &t = **begun;
    ASSERT_TRUE(is_ok(model.stage(t)));
    const auto plan = t.plan();
    ASSERT_TRUE(is_ok(plan));
    env().forget();
    ASSERT_TRUE(is_ok(t.commit()));
    model.accept();
    if (GetParam().new_names) {
      ASSERT_TRUE(is_ok(recover_all(os::Env::posix(), model.path, {}, {})));  // or old shards fill the disk
    }
    EXPECT_EQ(plan->cost.written, env().written) << plan->how;
    EXPECT_EQ(plan->cost.shared, env().shared) << plan->how;
    EXPECT_EQ(plan->cost.copied, env().copied) << plan->how;
    patches += plan->kind == CommitPlan::patch;
    publishes += plan->kind == CommitPlan::publish;
  }
  EXPECT_GT(patches, 10u);
  EXPECT_GT(publishes, 10u);
}

TEST_P(PlanTest, NoCommitBeginsWithoutTheRoomThatItsPlanNames) {
  if (!GetParam().reflink) GTEST_SKIP() << "the other one tells its free space as it is";
  RandomModel model = random_model(8, uint64_t{2} << 20);
  size_t refused = 0;
  for (int i = 0; i < 60 && !HasFailure(); ++i) {
    SCOPED_TRACE(text("transaction ", i));
    auto c = open(model.path);
    auto begun = c->begin(model.options());
    ASSERT_TRUE(is_ok(begun));
    ASSERT_TRUE(is_ok(model.stage(**begun)));
    auto plan = (*begun)->plan();
    ASSERT_TRUE(is_ok(plan));
    const bool less = plan->space_needed > 0 && model.one_in(2);
    // Blocks of this filesystem may be of any size: free are whole ones.
    constexpr uint64_t largest_block = uint64_t{1} << 20;
    xfs_.free_bytes = less ? plan->space_needed - 1 : plan->space_needed + largest_block;
    plan = (*begun)->plan();  // with less it may be done by another journal
    ASSERT_TRUE(is_ok(plan));
    const bool too_little = plan->space_free < plan->space_needed;
    env().forget();
    auto done = (*begun)->commit();
    xfs_.free_bytes.reset();
    if (!too_little) {
      ASSERT_TRUE(is_ok(done));
      model.accept();
      continue;
    }
    EXPECT_TRUE(fails_with(Status::no_space, done));
    EXPECT_EQ(env().written + env().shared + env().copied, 0u);
    ++refused;
  }
  EXPECT_GT(refused, 10u);
}

INSTANTIATE_TEST_SUITE_P(All, PlanTest,
                         ::testing::Values(Case{"file", 0, false}, Case{"file_that_shares", 0, true},
                                           Case{"shards", 4, false}, Case{"shards_that_share", 4, true},
                                           Case{"new_names", 4, false, true},
                                           Case{"new_names_that_share", 4, true, true}),
                         [](const auto &of) { return std::string(of.param.name); });

}  // namespace
}  // namespace st::store
