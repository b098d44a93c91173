// Transactions that change the layout, on a real file: what they leave in it, what they refuse and what they foretell.
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "lock_of_file.h"
#include "store_scene.h"

namespace st::store {
namespace {

using namespace testing;

class PublishTest : public testing::StoreScene {
 protected:
  // One dimension of U8.
  struct U8 {
    explicit U8(std::string b) : bytes(std::move(b)), shape{bytes.size()} {}
    operator NewBytes() const { return {static_cast<uint32_t>(Dtype::U8), shape, bytes.data(), bytes.size()}; }
    const std::string bytes;
    const uint64_t shape[1];
  };
  std::vector<std::string> names() {
    std::vector<std::string> out;
    auto c = open();
    for (size_t i = 0; i < c->snapshot().header.index.size(); ++i)
      out.emplace_back(c->snapshot().header.index.at(i).name);
    return out;
  }
  using Names = std::vector<std::string>;
};

TEST_F(PublishTest, PutsRenamesRemovesAndUpdatesAsOne) {
  const U8 added(pattern(500, 91)), replaced(pattern(123, 92));
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));  // staged for a patch, until a layout changes
  ASSERT_TRUE(is_ok(t->put("new", added)));
  ASSERT_TRUE(is_ok(t->put("b", replaced)));
  ASSERT_TRUE(is_ok(t->rename("a", "z")));
  ASSERT_TRUE(is_ok(t->remove("c")));
  ASSERT_TRUE(is_ok(t->set_metadata("k", "v")));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(seen(*c, "z"), new_a);
  EXPECT_EQ(seen(*c, "b"), replaced.bytes);
  EXPECT_EQ(seen(*c, "new"), added.bytes);
  EXPECT_EQ(names(), (Names{"z", "b", "new"}));
  EXPECT_EQ(c->snapshot().header.index.metadata_find("k"), "v");
}

// What dead writers have left goes by it: temporaries of a publish, and of a transaction on several files.
TEST_F(PublishTest, LooksIntoTheFolderOnce) {
  const std::string left[] = {dir / ".model.safetensors.st-tmp-0123456789abcdef",
                              dir / ".model.safetensors.st-new-0123456789abcdef"};
  for (const std::string &temporary : left) put_bytes(temporary, "half");
  testing::FaultEnv counted(env);
  auto c = StoreScene::open(counted);
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->rename("a", "z")));
  counted.calls.clear();
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(std::count(counted.calls.begin(), counted.calls.end(), testing::Call::list), 1);
  for (const std::string &temporary : left) EXPECT_FALSE(std::filesystem::exists(temporary)) << temporary;
}

// With ST_TXN_COPY each payload has one place in the journal, however often it is put.
TEST_F(PublishTest, APayloadThatIsPutAgainTakesThePlaceOfTheFirst) {
  auto c = open();
  TransactionOptions copying;
  copying.copy = true;
  auto t = begin(*c, copying);
  const auto journal_bytes = [&] {
    uint64_t n = 0;
    for (const std::string &name : names_in(folder())) n += std::filesystem::file_size(folder() + "/" + name);
    return n;
  };
  constexpr size_t n = 1 << 20;
  const U8 last(pattern(n, 3)), shorter(pattern(n / 2, 4)), moved(pattern(n, 5));
  ASSERT_TRUE(is_ok(t->put("new", U8(pattern(n, 1)))));
  const uint64_t once = journal_bytes();
  for (unsigned i = 0; i < 9; ++i) ASSERT_TRUE(is_ok(t->put("new", U8(pattern(n, 10 + i)))));
  EXPECT_GE(once, n);
  EXPECT_LT(journal_bytes(), once + n);
  ASSERT_TRUE(is_ok(t->put("new", moved)));
  ASSERT_TRUE(is_ok(t->rename("new", "moved")));
  ASSERT_TRUE(is_ok(t->put("new", last)));
  ASSERT_TRUE(is_ok(t->put("a", moved)));
  ASSERT_TRUE(is_ok(t->put("a", shorter)));
  const Range first{0, 2, 1};
  ASSERT_TRUE(is_ok(t->update_slice("new", TensorPart{{&first, 1}, {}}, U8("xy"))));
  ASSERT_TRUE(is_ok(t->put("b", last)));
  ASSERT_TRUE(is_ok(t->update_slice("b", TensorPart{{&first, 1}, {}}, U8("xy"))));
  ASSERT_TRUE(is_ok(t->put("b", moved)));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_TRUE(same_bytes(seen(*c, "moved"), moved.bytes));
  EXPECT_TRUE(same_bytes(seen(*c, "new"), "xy" + last.bytes.substr(2)));
  EXPECT_TRUE(same_bytes(seen(*c, "a"), shorter.bytes));
  EXPECT_TRUE(same_bytes(seen(*c, "b"), moved.bytes));
}

TEST_F(PublishTest, AMappingThatFallsBackIsToldWhenNothingIsLocked) {
  testing::FaultEnv faulty(env);
  OpenOptions options = writable();
  size_t told = 0;
  options.log = [&](LogLevel, const std::string &) {
    ++told;
    const testing::LockOfFile free(path);
  };
  const auto c = StoreScene::open(faulty, options);
  faulty.before = [&](testing::Call call) { return call == testing::Call::mmap ? -ENODEV : 0; };
  TransactionOptions publish;
  publish.publish = true;
  EXPECT_TRUE(is_ok(update(*c, "a", new_a, publish)));
  EXPECT_GT(told, 0u);
  faulty.before = nullptr;
}

// It is told last, of a file that could not be given to its owner, as here. Nothing is locked then.
TEST_F(PublishTest, TheLogMayUseTheFileByAnotherHandle) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root gives files away";
  for (const bool fails : {false, true}) {
    SCOPED_TRACE(fails);
    put_bytes(path, old);
    ASSERT_EQ(::chown(path.c_str(), testing::somebody, static_cast<gid_t>(-1)), 0);
    testing::FaultEnv faulty(env);
    OpenOptions options = writable();
    std::vector<std::string> told;
    options.log = [&](LogLevel, const std::string &message) {
      told.push_back(message);
      options.log = {};
      options.lock_timeout_ms = 0;
      const auto other = StoreScene::open(options);
      EXPECT_TRUE(same_bytes(seen(*other, "a"), new_a));
      TransactionOptions how;
      how.lock_timeout_ms = 0;
      EXPECT_TRUE(is_ok(update(*other, "b", new_b, how)));
      how.publish = true;
      EXPECT_TRUE(is_ok(update(*other, "c", new_c, how)));
    };
    bool renamed = false;
    const auto c = StoreScene::open(faulty, options);
    faulty.before = [&](testing::Call call) {
      if (call == testing::Call::fchown) return -EPERM;
      renamed |= call == testing::Call::renameat;
      return fails && renamed && call == testing::Call::fsync ? -EIO : 0;
    };
    TransactionOptions publish;
    publish.publish = true;
    const auto done = update(*c, "a", new_a, publish);
    EXPECT_TRUE(fails ? fails_with(Status::needs_recovery, done) : is_ok(done));
    EXPECT_EQ(told.size(), 1u);
    const auto now = open();
    EXPECT_TRUE(same_bytes(seen(*now, "a") + seen(*now, "b") + seen(*now, "c"), new_a + new_b + new_c));
  }
}

TEST_F(PublishTest, OfNothingMakesNoNewFile) {
  put_bytes(path, file_of({u8_tensor("none", 0, 1), u8_tensor("a", 10, 1)}));
  auto c = open();
  const uint64_t inode = c->snapshot().identity.st_ino;
  TransactionOptions options;
  options.publish = true;
  auto t = begin(*c, options);
  const U8 empty("");
  ASSERT_TRUE(is_ok(t->update("none", empty)));
  const Range nothing{3, 3, 1};
  ASSERT_TRUE(is_ok(t->update_slice("a", TensorPart{{&nothing, 1}, {}}, empty)));
  auto plan = t->plan();
  ASSERT_TRUE(is_ok(plan));
  EXPECT_EQ(plan->kind, CommitPlan::nothing);
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(open()->snapshot().identity.st_ino, inode);
}

TEST_F(PublishTest, RefusalsLeaveTheTransactionAsItWas) {
  const U8 some(pattern(10, 1));
  const uint64_t shape[] = {10}, huge[] = {UINT64_MAX, 2}, odd[] = {3};
  auto c = open();
  auto t = begin(*c);
  EXPECT_TRUE(fails_with(Status::dtype, t->put("x", {99, shape, "", 10})));
  EXPECT_TRUE(fails_with(Status::shape_overflow, t->put("x", {static_cast<uint32_t>(Dtype::U8), huge, "", 10})));
  EXPECT_TRUE(fails_with(Status::subbyte, t->put("x", {static_cast<uint32_t>(Dtype::F4), odd, "", 2})));
  EXPECT_TRUE(fails_with(Status::nbytes_mismatch, t->put("x", {static_cast<uint32_t>(Dtype::U8), shape, "", 9})));
  EXPECT_TRUE(fails_with(Status::invalid_argument, t->put("__metadata__", some)));
  EXPECT_TRUE(fails_with(Status::invalid_argument, t->rename("a", "__metadata__")));
  EXPECT_TRUE(fails_with(Status::not_found, t->remove("x")));
  EXPECT_TRUE(fails_with(Status::not_found, t->rename("x", "y")));
  EXPECT_TRUE(fails_with(Status::duplicate_name, t->rename("a", "b")));
  EXPECT_TRUE(fails_with(Status::not_found, t->set_metadata("x", std::nullopt)));
  ASSERT_TRUE(is_ok(t->remove("c")));
  EXPECT_TRUE(fails_with(Status::not_found, t->update("c", value(*c, "c", new_c))));  // no longer
  EXPECT_TRUE(fails_with(Status::shape_mismatch, t->update("a", some)));
  auto not_found = t->remove("c");
  EXPECT_TRUE(not_found.error().has_tensor);
  ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(names(), (Names{"a", "b"}));
  EXPECT_EQ(seen(*c, "a"), new_a);
}

TEST_F(PublishTest, PayloadsMayBeFreedAtOnceIfTheyAreCopied) {
  auto c = open();
  auto t = begin(*c, {.copy = true});
  std::string bytes = pattern(70000, 4);
  const std::string kept = bytes;
  const uint64_t shape[] = {70000}, none[] = {0};
  ASSERT_TRUE(is_ok(t->put("x", {static_cast<uint32_t>(Dtype::U8), shape, bytes.data(), bytes.size()})));
  bytes.assign(bytes.size(), '!');
  ASSERT_TRUE(is_ok(t->put("empty", {static_cast<uint32_t>(Dtype::U8), none, nullptr, 0})));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_TRUE(same_bytes(seen(*c, "x"), kept));
}

TEST_F(PublishTest, ACopyThatFailsDoomsTheTransaction) {
  testing::FaultEnv faulty(env);
  auto c = open(faulty);
  auto t = begin(*c, {.copy = true});
  const U8 large(pattern(8 << 20, 5));
  faulty.before = [](testing::Call call) { return call == testing::Call::pwrite ? -EIO : 0; };
  EXPECT_TRUE(fails_with(Status::io, t->put("x", large)));
  faulty.before = nullptr;
  EXPECT_TRUE(fails_with(Status::txn_failed, t->put("y", U8("y"))));
  EXPECT_TRUE(fails_with(Status::txn_failed, t->remove("a")));
  EXPECT_FALSE(t->plan());
  EXPECT_TRUE(fails_with(Status::txn_failed, t->commit()));
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
}

TEST_F(PublishTest, ACopyWithoutAPlaceForAJournalDoomsTheTransaction) {
  testing::FaultEnv faulty(env);
  auto c = open(faulty);
  auto t = begin(*c, {.copy = true});
  faulty.before = [](testing::Call call) { return call == testing::Call::mkdirat ? -EACCES : 0; };
  auto refused = t->put("x", U8("x"));
  EXPECT_TRUE(fails_with(Status::permission, refused));
  EXPECT_EQ(refused.error().tensor, "x");
  EXPECT_TRUE(fails_with(Status::txn_failed, t->commit()));
}

TEST_F(PublishTest, CopyingCanBeCancelled) {
  auto c = open();
  auto t = begin(*c, {.copy = true, .progress = [](uint64_t, uint64_t) { return false; }});
  EXPECT_TRUE(fails_with(Status::cancelled, t->put("x", U8(pattern(9 << 20, 6)))));
  t.reset();
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
}

// Cancelled at its first word, its second, and so on, until it is done.
TEST_F(PublishTest, CommitCanBeCancelledUntilTheNewFileStands) {
  const U8 added(pattern(9 << 20, 7));
  size_t cancelled = 0;
  for (int n = 0;; ++n) {
    int told = 0;
    auto c = open();
    auto t = begin(*c, {.progress = [&](uint64_t, uint64_t) { return told++ != n; }});
    ASSERT_TRUE(is_ok(t->put("new", added)));
    auto done = t->commit();
    if (done) break;
    ASSERT_TRUE(fails_with(Status::cancelled, done));
    ASSERT_TRUE(same_bytes(bytes_of(path), old));
    ASSERT_LT(n, 10000);
    ++cancelled;
  }
  EXPECT_GT(cancelled, 3u);
  EXPECT_EQ(names().size(), 4u);
}

TEST_F(PublishTest, PlansSayWhatACommitWouldDo) {
  auto c = open();
  auto t = begin(*c);
  EXPECT_EQ(t->plan()->kind, CommitPlan::nothing);
  ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
  auto patch = t->plan();
  ASSERT_TRUE(is_ok(patch));
  EXPECT_EQ(patch->kind, CommitPlan::patch);
  EXPECT_GT(patch->cost.written, 2 * new_a.size());  // to the journal and the file: see plan_test.cpp
  EXPECT_EQ(patch->file_size, old.size());
  EXPECT_LT(patch->space_free, UINT64_MAX);
  ASSERT_TRUE(is_ok(t->remove("c")));
  auto publish = t->plan();
  ASSERT_TRUE(is_ok(publish));
  EXPECT_EQ(publish->kind, CommitPlan::publish);
  EXPECT_LT(publish->file_size, old.size());
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(std::filesystem::file_size(path), publish->file_size);
  // A layout of its own makes a publish of nothing.
  auto relaid = begin(*c, {.compact = true});
  EXPECT_EQ(relaid->plan()->kind, CommitPlan::publish);
  EXPECT_TRUE(is_ok(relaid->commit()));
}

TEST_F(PublishTest, PlansAndCommitsRefuseALayoutThatNoReaderTakes) {
  auto c = open();
  for (const auto &[alignment, reserve] : {std::pair<uint64_t, uint64_t>{12, 0}, {uint64_t{1} << 21, 0}}) {
    auto t = begin(*c, {.alignment = alignment, .reserve = reserve});
    EXPECT_TRUE(fails_with(Status::invalid_argument, t->plan()));
    EXPECT_TRUE(fails_with(Status::invalid_argument, t->commit()));
  }
  auto t = begin(*c, {.reserve = max_header_bytes + 1});
  EXPECT_TRUE(fails_with(Status::header_too_large, t->plan()));
  EXPECT_TRUE(fails_with(Status::header_too_large, t->commit()));
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
}

TEST_F(PublishTest, WithoutFreeSpaceKnownThePlanSaysSo) {
  testing::FaultEnv faulty(env);
  auto c = open(faulty);
  auto t = begin(*c);
  faulty.before = [](testing::Call call) { return call == testing::Call::fstatfs ? -EIO : 0; };
  EXPECT_EQ(t->plan()->space_free, UINT64_MAX);
}

TEST_F(PublishTest, AFileOfOtherNamesIsRefusedUnlessTheyMayKeepTheOldBytes) {
  const std::string other = dir / "other.safetensors";
  ASSERT_EQ(::link(path.c_str(), other.c_str()), 0);
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->remove("a")));
  EXPECT_TRUE(fails_with(Status::hard_links, t->plan()));
  EXPECT_TRUE(fails_with(Status::hard_links, t->commit()));
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  t = begin(*c, {.break_links = true});
  ASSERT_TRUE(is_ok(t->remove("a")));
  EXPECT_TRUE(is_ok(t->plan()));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(names(), (Names{"b", "c"}));
  EXPECT_TRUE(same_bytes(bytes_of(other), old));
}

TEST_F(PublishTest, StagedChangesFollowAFileThatWasReplacedIfTheyFitIt) {
  auto c = open();
  auto fits = begin(*c), does_not = begin(*c), form = begin(*c);
  ASSERT_TRUE(is_ok(fits->remove("a")));
  ASSERT_TRUE(is_ok(does_not->rename("c", "d")));
  ASSERT_TRUE(is_ok(form->remove("a")));
  ASSERT_TRUE(is_ok(form->update("b", value(*c, "b", new_b))));
  auto other = open();
  auto t = begin(*other);
  ASSERT_TRUE(is_ok(t->remove("c")));
  const U8 another("another form");
  ASSERT_TRUE(is_ok(t->put("b", another)));
  ASSERT_TRUE(is_ok(t->commit()));
  auto refused = does_not->commit();
  EXPECT_TRUE(fails_with(Status::file_changed, refused));
  EXPECT_TRUE(fails_with(Status::file_changed, form->commit()));
  ASSERT_TRUE(is_ok(fits->commit()));
  EXPECT_EQ(names(), (Names{"b"}));
}

// Also those that were staged for a patch, before another call made a publish of it.
TEST_F(PublishTest, UpdatesStagedForAPatchFollowAFileThatWasReplaced) {
  const U8 added(pattern(500, 91)), theirs(pattern(77, 93));
  auto c = open(), other = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->update("a", value(*c, "a", new_a))));
  ASSERT_TRUE(is_ok(t->put("new", added)));
  auto first = begin(*other);
  ASSERT_TRUE(is_ok(first->put("theirs", theirs)));
  ASSERT_TRUE(is_ok(first->commit()));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(seen(*c, "a"), new_a);
  EXPECT_EQ(seen(*c, "new"), added.bytes);
  EXPECT_EQ(seen(*c, "theirs"), theirs.bytes);
}

TEST_F(PublishTest, CompactingBringsTheCanonicalOrder) {
  const U8 added(pattern(7, 9));
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->rename("a", "x")));
  ASSERT_TRUE(is_ok(t->remove("b")));
  ASSERT_TRUE(is_ok(t->put("a", added)));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(names(), (Names{"x", "c", "a"}));
  t = begin(*c, {.compact = true, .layout = write::Layout::canonical});
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_EQ(names(), (Names{"a", "c", "x"}));
  EXPECT_EQ(seen(*c, "a"), added.bytes);
}

// A tensor without bytes is aligned wherever it lies.
TEST_F(PublishTest, WhatIsAlignedStaysSo) {
  const U8 longer("long");
  for (const bool aligns : {true, false}) {
    put_bytes(path, testing::file_of(std::vector<testing::TestTensor>{{"odd", Dtype::U8, {3}, "odd"},
                                                                      {"none", Dtype::F64, {0}, ""},
                                                                      {"even", Dtype::U8, {5}, "evens"},
                                                                      {"wide", Dtype::F64, {2}, pattern(16, 1)}}));
    auto c = open();
    auto t = begin(*c, {.align = aligns});
    ASSERT_TRUE(is_ok(t->put("odd", longer)));
    ASSERT_TRUE(is_ok(t->commit()));
    EXPECT_EQ(names(), aligns ? (Names{"none", "wide", "odd", "even"}) : (Names{"odd", "none", "even", "wide"}));
    EXPECT_EQ(seen(*c, "wide"), pattern(16, 1));
  }
}

TEST_F(PublishTest, AChildMayNotGoOnWithItsParentsTransaction) {
  auto c = open();
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->remove("a")));
  FaultEnv child(env);
  auto theirs = open(child);
  auto begun = begin(*theirs);
  child.forks = 1;
  EXPECT_TRUE(fails_with(Status::forked, begun->remove("b")));
  EXPECT_TRUE(fails_with(Status::forked, begun->put("x", U8("x"))));
  EXPECT_TRUE(fails_with(Status::forked, begun->plan()));
  EXPECT_TRUE(fails_with(Status::forked, begun->commit()));
  child.forks = 0;
}

TEST_F(PublishTest, SmallTensorsOfAPublishShareAWrite) {
  testing::FaultEnv counting(env);
  auto c = open(counting);
  auto t = begin(*c);
  std::vector<U8> added;
  for (unsigned i = 0; i < 100; ++i) added.emplace_back(pattern(i == 50 ? 40000 : 100 + i, i));
  for (size_t i = 0; i < added.size(); ++i) ASSERT_TRUE(is_ok(t->put(text("new ", i), added[i])));
  counting.calls.clear();
  ASSERT_TRUE(is_ok(t->commit()));
  // Those before the large one, that, those behind it, and the header; perhaps the old ones, if the kernel copies none.
  EXPECT_LE(std::count(counting.calls.begin(), counting.calls.end(), testing::Call::pwrite), 10);
  for (size_t i = 0; i < added.size(); ++i) EXPECT_TRUE(same_bytes(seen(*c, text("new ", i)), added[i].bytes)) << i;
}

// A descriptor that is kept is taken from files that are read. One of a file that can be opened again needs no keeping.
TEST_F(PublishTest, AFileIsKeptOpenOnlyIfItHasLostItsName) {
  testing::FaultEnv faulty(env);
  OpenOptions options = writable();
  options.descriptors = std::make_shared<os::Descriptors>(faulty);
  auto c = StoreScene::open(faulty, options);
  const auto old = c->hold();
  const auto publish = [&](int answer, const std::function<void()> &then = {}) {
    auto t = begin(*c);
    EXPECT_TRUE(is_ok(t->set_metadata("k", "v")));
    faulty.before = [&](testing::Call call) {
      if (call != testing::Call::renameat) return 0;
      if (then) then();
      return answer;
    };
    const bool done = t->commit().has_value();
    faulty.before = nullptr;
    return done;
  };
  EXPECT_FALSE(publish(-EPERM));  // as in a sticky folder
  EXPECT_EQ(old->kept_open(), nullptr);
  EXPECT_TRUE(publish(0));
  EXPECT_NE(old->kept_open(), nullptr);
  const auto next = c->hold();
  EXPECT_EQ(next->kept_open(), nullptr);
  EXPECT_FALSE(publish(-EPERM, [&] { replace_by(path, CrashScene::old); }));
  EXPECT_NE(next->kept_open(), nullptr);
}

// As under chattr +a. The new file could not be removed either: a whole copy would lie there after each attempt.
TEST_F(PublishTest, NoNewFileIsMadeInAFolderFromWhichNothingGoes) {
  FaultEnv keeps(env);
  keeps.before = [](Call call) { return call == Call::unlinkat || call == Call::renameat ? -EPERM : 0; };
  auto c = open(keeps);
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->rename("a", "z")));
  EXPECT_TRUE(fails_with(Status::permission, t->commit()));
  for (const auto &entry : std::filesystem::directory_iterator(dir.path()))
    EXPECT_EQ(entry.path().string().find(".st-tmp-"), std::string::npos) << entry.path();
}

// As of a file of somebody else's, of mode 0444, whose ACL lets us write.
TEST_F(PublishTest, TheRightsOfTheOldFileMayForbidToWriteTheNewOne) {
  class Forbids : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    int openat(int dir_fd, const char *name, int flags, mode_t mode) override {
      const bool is_temporary = std::string_view(name).find(".st-tmp-") != std::string_view::npos;
      if (is_temporary && has_rights) return -EACCES;
      const int fd = FaultEnv::openat(dir_fd, name, flags, mode);
      if (is_temporary && fd >= 0) made = fd;
      return fd;
    }
    int fchmod(int fd, mode_t mode) override {
      has_rights = has_rights || made >= 0;
      return FaultEnv::fchmod(fd, mode);
    }
    int made = -1;
    bool has_rights = false;
  } forbids(env);
  auto c = open(forbids);
  const U8 added(pattern(500, 91));
  auto t = begin(*c);
  ASSERT_TRUE(is_ok(t->put("new", added)));
  ASSERT_TRUE(is_ok(t->commit()));
  EXPECT_TRUE(forbids.has_rights);
  EXPECT_EQ(seen(*c, "new"), added.bytes);
}

}  // namespace
}  // namespace st::store
