// Transactions when all goes well, and when the caller asks for what cannot be.
#include <climits>

#include "store_scene.h"

namespace st::store {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class TransactionTest : public testing::StoreScene {};

TEST_F(TransactionTest, AnUpdateChangesItsTensorAndNothingElse) {
  for (read::MapMode mode : {read::MapMode::shared, read::MapMode::private_copy, read::MapMode::none}) {
    testing::put_bytes(path, old);
    OpenOptions options = writable();
    options.map = mode;
    auto c = open(std::move(options));
    ASSERT_TRUE(same_bytes(seen(*c, "b"), tensors[1].bytes));
    ASSERT_TRUE(is_ok(update(*c, "b", new_b)));
    EXPECT_TRUE(same_bytes(bytes_of(path), with({{b_at, new_b}})));
    EXPECT_TRUE(same_bytes(seen(*c, "b"), new_b));  // in a view taken before, too
    EXPECT_TRUE(same_bytes(seen(*c, "a"), tensors[0].bytes));
  }
}

TEST_F(TransactionTest, SeveralTensorsChangeTogether) {
  auto c = open();
  auto t = begin(*c);
  for (const auto &[name, bytes] : {std::pair{"c", &new_c}, {"a", &new_a}, {"b", &new_b}})
    ASSERT_TRUE(is_ok(t->update(name, value(*c, name, *bytes))));
  EXPECT_TRUE(same_bytes(bytes_of(path), old));  // nothing before commit
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{a_at, new_a}, {b_at, new_b}, {c_at, new_c}})));
}

TEST_F(TransactionTest, WhatIsNotCommittedNeverWas) {
  {
    auto c = open();
    auto t = begin(*c);
    ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
    t.reset();
    EXPECT_TRUE(same_bytes(bytes_of(path), old));
    ASSERT_TRUE(is_ok(update(*c, "c", new_c)));  // its journal is used again
    EXPECT_TRUE(same_bytes(bytes_of(path), with({{c_at, new_c}})));
  }
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(TransactionTest, ATensorStagedTwiceTakesTheLastValue) {
  const std::string big_file =
      testing::file_of({testing::u8_tensor("small", 100, 1), testing::u8_tensor("big", 700'000, 2)});
  for (bool copy : {false, true}) {
    testing::put_bytes(path, big_file);
    auto c = open();
    TransactionOptions options;
    options.copy = copy;
    auto t = begin(*c, std::move(options));
    const std::string small[] = {pattern(100, 5), pattern(100, 6), pattern(100, 7)},
                      big[] = {pattern(700'000, 8), pattern(700'000, 9)};
    for (int i : {0, 1, 2}) {
      ASSERT_TRUE(is_ok(t->update("small", value(*c, "small", small[i]))));
      ASSERT_TRUE(is_ok(t->update("big", value(*c, "big", big[i % 2]))));
    }
    ASSERT_TRUE(is_ok(t->commit()));
    EXPECT_TRUE(same_bytes(seen(*c, "small"), small[2]));
    EXPECT_TRUE(seen(*c, "big") == big[0]);
    EXPECT_EQ(c->counters().bytes_written, 700'100u);
  }
}

TEST_F(TransactionTest, CopyTakesTheValueAtOnce) {
  const std::string big_file =
      testing::file_of({testing::u8_tensor("small", 100, 1), testing::u8_tensor("big", 2'000'003, 2)});
  testing::put_bytes(path, big_file);
  auto c = open();
  TransactionOptions options;
  options.copy = true;
  auto t = begin(*c, std::move(options));
  for (const auto &[name, n] : {std::pair<const char *, size_t>{"small", 100}, {"big", 2'000'003}}) {
    auto temporary = std::make_unique<std::string>(pattern(n, 42));
    ASSERT_TRUE(is_ok(t->update(name, value(*c, name, *temporary))));
    std::fill(temporary->begin(), temporary->end(), 'X');
  }
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_TRUE(same_bytes(seen(*c, "small"), pattern(100, 42)));
  EXPECT_TRUE(seen(*c, "big") == pattern(2'000'003, 42));
}

TEST_F(TransactionTest, AValueOfAnotherFormIsRefusedAndTheTransactionGoesOn) {
  auto c = open();
  auto t = begin(*c);
  const NewBytes good = value(*c, "a", new_a);
  auto with_value = [&](auto change) {
    NewBytes v = good;
    change(v);
    return t->update("a", v);
  };
  const uint64_t flat[] = {3999}, deep[] = {1, 4000}, deeper[] = {4000, 1};
  auto missing = t->update("x", good);
  ASSERT_TRUE(fails_with(Status::not_found, missing));
  EXPECT_EQ(missing.error().tensor, "x");
  EXPECT_TRUE(fails_with(Status::not_found, t->update(std::string_view("a\0", 2), good)));
  for (uint32_t dtype : {0u, 6u, 18u, 23u, UINT32_MAX})
    EXPECT_TRUE(fails_with(Status::dtype_mismatch, with_value([&](auto &v) { v.dtype = dtype; })));
  EXPECT_TRUE(fails_with(Status::shape_mismatch, with_value([&](auto &v) { v.shape = flat; })));
  EXPECT_TRUE(fails_with(Status::shape_mismatch, with_value([&](auto &v) { v.shape = deep; })));
  EXPECT_TRUE(fails_with(Status::shape_mismatch, with_value([&](auto &v) { v.shape = deeper; })));
  EXPECT_TRUE(fails_with(Status::shape_mismatch, with_value([&](auto &v) { v.shape = {}; })));
  for (uint64_t n : {uint64_t{3999}, uint64_t{4001}, uint64_t{0}, UINT64_MAX})
    EXPECT_TRUE(fails_with(Status::nbytes_mismatch, with_value([&](auto &v) { v.nbytes = n; })));
  EXPECT_FALSE(fs::exists(folder()));
  ASSERT_TRUE(is_ok(t->update("a", good)));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{a_at, new_a}})));
}

// Found by the fuzzing of operations.
TEST_F(TransactionTest, ARefusedStepLeavesAnUpdateInPlaceOne) {
  for (bool publish : {false, true}) {
    testing::put_bytes(path, old);
    auto c = open();
    TransactionOptions options;
    options.publish = publish;
    auto t = begin(*c, std::move(options));
    const auto refuse_all = [&] {
      EXPECT_TRUE(fails_with(Status::not_found, t->remove("none")));
      EXPECT_TRUE(fails_with(Status::not_found, t->rename("none", "d")));
      EXPECT_TRUE(fails_with(Status::duplicate_name, t->rename("a", "b")));
      EXPECT_TRUE(fails_with(Status::not_found, t->set_metadata("none", std::nullopt)));
      NewBytes cut = value(*c, "a", new_a);
      --cut.nbytes;
      EXPECT_TRUE(fails_with(Status::nbytes_mismatch, t->put("a", cut)));
      EXPECT_TRUE(fails_with(Status::nbytes_mismatch, t->update("a", cut)));
      EXPECT_TRUE(fails_with(Status::not_found, t->update("none", value(*c, "a", new_a))));
    };
    refuse_all();
    EXPECT_EQ(t->plan().value().kind, store::CommitPlan::nothing);
    ASSERT_TRUE(is_ok(t->update("b", value(*c, "b", new_b))));
    refuse_all();
    EXPECT_EQ(t->plan().value().kind, publish ? store::CommitPlan::publish : store::CommitPlan::patch);
    struct stat before, after;
    ASSERT_EQ(::stat(path.c_str(), &before), 0);
    ASSERT_TRUE(is_ok(t->commit()));
    ASSERT_EQ(::stat(path.c_str(), &after), 0);
    EXPECT_EQ(before.st_ino != after.st_ino, publish);
    EXPECT_TRUE(same_bytes(seen(*c, "b"), new_b));
  }
}

TEST_F(TransactionTest, TensorsWithoutBytesAndCommitsWithoutChangesAreFine) {
  testing::put_bytes(path, testing::file_of({{"z", Dtype::F32, {0}, ""}, testing::u8_tensor("a", 10, 1)}));
  auto c = open();
  EXPECT_TRUE(is_ok(update(*c, "z", "")));
  EXPECT_TRUE(is_ok(begin(*c)->commit()));
  EXPECT_EQ(c->counters().commits, 0u);
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(TransactionTest, IsOverOnceCommitted) {
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_TRUE(fails_with(Status::txn_failed, t->commit()));
  EXPECT_TRUE(fails_with(Status::txn_failed, t->update("a", value(*c, "a", new_a))));
}

TEST_F(TransactionTest, NeedsAHandleThatMayWrite) {
  auto c = open({});
  EXPECT_TRUE(fails_with(Status::read_only, Transaction::begin(*c, {})));
}

TEST_F(TransactionTest, ProgressCanCancelStagingAndCommit) {
  testing::put_bytes(path, testing::file_of({testing::u8_tensor("big", 8 << 20, 1)}));
  const std::string before = bytes_of(path), bytes = pattern(8 << 20, 2);
  auto c = open();
  int calls_allowed = 3;
  TransactionOptions options;
  options.progress = [&](uint64_t, uint64_t) { return calls_allowed-- > 0; };
  auto t = begin(*c, options);
  ASSERT_TRUE(fails_with(Status::cancelled, t->update("big", value(*c, "big", bytes))));
  EXPECT_TRUE(fails_with(Status::txn_failed, t->update("big", value(*c, "big", bytes))));
  EXPECT_TRUE(fails_with(Status::txn_failed, t->commit()));
  t.reset();

  calls_allowed = 8;  // staging has eight pieces; the next look is the commit's
  auto second = begin(*c, options);
  ASSERT_TRUE(is_ok(second->update("big", value(*c, "big", bytes))));
  ASSERT_TRUE(fails_with(Status::cancelled, second->commit()));
  EXPECT_TRUE(fails_with(Status::txn_failed, second->commit()));
  second.reset();
  EXPECT_TRUE(bytes_of(path) == before);
  calls_allowed = INT_MAX;
  EXPECT_TRUE(is_ok(update(*c, "big", bytes, options)));
}

TEST_F(TransactionTest, AFailedStagingDoomsItAndNamesTheTensor) {
  testing::FaultEnv faulty(env);
  auto c = open(faulty);
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
  testing::put_bytes(dir / "x", "");
  faulty.before = [](testing::Call call) { return call == testing::Call::fallocate ? -ENOSPC : 0; };
  auto other = begin(*c);
  auto failed = other->update("b", value(*c, "b", new_b));
  ASSERT_TRUE(fails_with(Status::no_space, failed));
  EXPECT_EQ(failed.error().tensor, "b");
  EXPECT_TRUE(fails_with(Status::txn_failed, other->commit()));
  faulty.before = nullptr;
  other.reset();
  ASSERT_TRUE(is_ok(t->commit()));  // its neighbour is none the worse
  EXPECT_TRUE(is_ok(update(*c, "b", new_b)));
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{a_at, new_a}, {b_at, new_b}})));
}

TEST_F(TransactionTest, CountsWhatItDoes) {
  auto c = open();
  ASSERT_TRUE(is_ok(update(*c, "a", new_a)));
  ASSERT_TRUE(is_ok(update(*c, "b", new_b)));
  EXPECT_EQ(c->counters().commits, 2u);
  EXPECT_EQ(c->counters().bytes_written, 14007u);
  EXPECT_GE(c->counters().journal_bytes, 14007u);
  EXPECT_LT(c->counters().journal_bytes, 14007u + 6 * 4096);
}

// An interrupt is for calls that run. One that came before does not fail the next.
TEST_F(TransactionTest, AnInterruptBetweenTwoCallsFailsNeither) {
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
  c->interrupt();
  EXPECT_TRUE(is_ok(t->commit()));
}

TEST_F(TransactionTest, ManyOnOneHandleDoNotMix) {
  auto c = open();
  auto ta = begin(*c), tb = begin(*c);
  ASSERT_TRUE(is_ok(ta->update("a", value(*c, "a", new_a))));
  ASSERT_TRUE(is_ok(tb->update("b", value(*c, "b", new_b))));
  ASSERT_TRUE(is_ok(ta->update("c", value(*c, "c", new_c))));
  ASSERT_TRUE(is_ok(tb->commit()));
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{b_at, new_b}})));
  ASSERT_TRUE(is_ok(ta->commit()));
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{a_at, new_a}, {b_at, new_b}, {c_at, new_c}})));
}

}  // namespace
}  // namespace st::store
