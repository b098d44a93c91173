// Commits that answer when their journal is durable: what they cost, what makes the file durable after them, and what
// is left when that fails, or when somebody else is faster.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>

#include "engine/recover_all.h"
#include "fault_env.h"
#include "file/deferred.h"
#include "file/transaction.h"
#include "sim_env.h"
#include "test_files.h"

namespace st::store {
namespace {

using namespace testing;

class Deferred : public ::testing::Test {
 protected:
  static constexpr uint64_t n = 1100;
  const std::string path = "/models/m.safetensors", folder = path + ".st-journal";
  const std::string old_a = pattern(n, 1), old_b = pattern(n, 2), new_a = pattern(n, 3), new_b = pattern(n, 4),
                    other_a = pattern(n, 5);

  void SetUp() override {
    disk.make_folder("/models");
    const int root = disk.openat(AT_FDCWD, "/", O_RDONLY, 0);
    disk.fsync(root);
    disk.close(root);
    disk.add_file(path, file(old_a, old_b));
  }
  static std::string file(const std::string &a, const std::string &b) {
    return file_of({{"a", Dtype::U8, {n}, a}, {"b", Dtype::U8, {n}, b}}, {}, 8);
  }
  std::unique_ptr<DataFile> open(os::Env &with) const {
    auto opened = DataFile::open(with, path, {.writable = true, .lock_timeout_ms = 50});
    EXPECT_TRUE(is_ok(opened));
    return opened ? std::move(*opened) : nullptr;
  }
  static Result<void> commit(DataFile &to, std::string_view name, const std::string &bytes,
                             TransactionOptions options = later()) {
    options.lock_timeout_ms = 50;
    auto begun = Transaction::begin(to, std::move(options));
    if (!begun) return Failure(std::move(begun.error()));
    ST_TRY((*begun)->update(name, {static_cast<uint32_t>(Dtype::U8), {&n, 1}, bytes.data(), bytes.size()}));
    return (*begun)->commit();
  }
  static TransactionOptions later() {
    TransactionOptions options;
    options.journal_only = true;
    return options;
  }
  static TransactionOptions at_once() { return {}; }
  static TransactionOptions publish() {
    TransactionOptions options = later();
    options.publish = true;
    return options;
  }
  // Syncs of this work.
  template <class Work>
  auto syncs_of(Work work) {
    env.calls.clear();
    work();
    return std::count_if(env.calls.begin(), env.calls.end(),
                         [](Call call) { return call == Call::fsync || call == Call::fdatasync; });
  }
  // What a cut leaves of all that nobody has synced: nothing, or everything. Then the file is recovered.
  void expect_after_a_cut(const std::string &wanted) const {
    for (const bool keep_all : {false, true}) {
      SimEnv left(after_cut(disk.disk(), keep_all));
      auto done = recover_all(left, path, {}, {});
      ASSERT_TRUE(is_ok(done));
      EXPECT_EQ(done->aside, 0u) << done->why_aside;
      EXPECT_TRUE(left.contents(path) == wanted) << "kept: " << keep_all;
    }
  }

  SimEnv disk;
  FaultEnv env{disk};
};

TEST_F(Deferred, CostsOneSyncAndShowsAtOnceWhatSurvivesACut) {
  auto handle = open(env);
  ASSERT_TRUE(is_ok(commit(*handle, "b", old_b)));  // makes the journal
  ASSERT_TRUE(is_ok(handle->sync()));
  EXPECT_EQ(syncs_of([&] { ASSERT_TRUE(is_ok(commit(*handle, "a", new_a))); }), 1);
  EXPECT_EQ(disk.contents(path), file(new_a, old_b));
  expect_after_a_cut(file(new_a, old_b));
  EXPECT_EQ(syncs_of([&] { ASSERT_TRUE(is_ok(handle->sync())); }), 1);
  EXPECT_EQ(syncs_of([&] { ASSERT_TRUE(is_ok(handle->sync())); }), 0);
  expect_after_a_cut(file(new_a, old_b));
}

TEST_F(Deferred, TheNextCommitOfTheSameBytesSyncsTheFileFirst) {
  auto handle = open(env);
  ASSERT_TRUE(is_ok(commit(*handle, "a", new_a)));
  EXPECT_EQ(syncs_of([&] { ASSERT_TRUE(is_ok(commit(*handle, "b", new_b))); }), 2) << "a journal, and its name";
  EXPECT_EQ(syncs_of([&] { ASSERT_TRUE(is_ok(commit(*handle, "a", other_a))); }), 3) << "and the file";
  EXPECT_EQ(syncs_of([&] { ASSERT_TRUE(is_ok(commit(*handle, "a", new_a))); }), 2) << "the file, and a known journal";
  expect_after_a_cut(file(new_a, new_b));
}

// The old bytes come back: neither record may take that for its own change that was not made.
TEST_F(Deferred, OldBytesThatComeBackStay) {
  auto handle = open(env);
  for (const std::string *a : {&new_a, &old_a, &new_a, &new_a, &old_a}) {
    ASSERT_TRUE(is_ok(commit(*handle, "a", *a)));
    expect_after_a_cut(file(*a, old_b));
  }
}

TEST_F(Deferred, ATransactionOfNothingHasAPlanAndCommits) {
  auto handle = open(env);
  auto begun = Transaction::begin(*handle, later());
  auto plan = (*begun)->plan();
  ASSERT_TRUE(is_ok(plan));
  EXPECT_EQ(plan->kind, CommitPlan::nothing);
  EXPECT_TRUE(is_ok((*begun)->commit()));
  EXPECT_TRUE(is_ok(handle->sync()));
}

// A thread begins a commit, and before it ends another thread begins one and ends it. The descriptor of the second does
// not know what happened to the bytes of the first.
TEST_F(Deferred, ACommitThatWasBegunBeforeAnotherWaitedIsSyncedByItself) {
  auto handle = open(env);
  ASSERT_TRUE(is_ok(commit(*handle, "b", old_b)));
  ASSERT_TRUE(is_ok(commit(*handle, "a", old_a)));
  ASSERT_TRUE(is_ok(handle->sync()));
  bool between = false;
  env.before = [&](Call call) {
    if (call != Call::fdatasync || std::exchange(between, true)) return 0;
    EXPECT_TRUE(is_ok(commit(*handle, "b", new_b)));
    return 0;
  };
  ASSERT_TRUE(is_ok(commit(*handle, "a", new_a)));
  env.before = nullptr;
  EXPECT_EQ(syncs_of([&] { ASSERT_TRUE(is_ok(handle->sync())); }), 2);
  ASSERT_TRUE(is_ok(commit(*handle, "b", old_b)));
  ASSERT_TRUE(is_ok(commit(*handle, "a", old_a)));
  EXPECT_EQ(syncs_of([&] { ASSERT_TRUE(is_ok(handle->sync())); }), 1);
  expect_after_a_cut(file(old_a, old_b));
}

TEST_F(Deferred, CloseSyncsTheFileAndLeavesNothing) {
  auto handle = open(env);
  ASSERT_TRUE(is_ok(commit(*handle, "a", new_a)));
  EXPECT_TRUE(disk.exists(folder));
  EXPECT_EQ(syncs_of([&] { handle.reset(); }), 1);
  EXPECT_FALSE(disk.exists(folder));
  expect_after_a_cut(file(new_a, old_b));
}

TEST_F(Deferred, NoMoreThanSixteenWait) {
  auto handle = open(env);
  for (int i = 0; i < 16; ++i) {
    const std::string bytes = pattern(1, 20 + static_cast<unsigned>(i));
    auto begun = Transaction::begin(*handle, later());
    const int64_t row = 2 * i;  // a byte each, which nobody else changes
    const uint64_t one = 1;
    const Range range{row, row + 1, 1};
    ASSERT_TRUE(is_ok((*begun)->update_slice("a", TensorPart{{&range, 1}, {}},
                                             {static_cast<uint32_t>(Dtype::U8), {&one, 1}, bytes.data(), 1})));
    ASSERT_TRUE(is_ok((*begun)->commit()));
    EXPECT_EQ(handle->deferred().has_room(), i < 15);
  }
  const std::string sixteen = disk.contents(path);
  expect_after_a_cut(sixteen);
  ASSERT_TRUE(is_ok(commit(*handle, "b", new_b)));
  EXPECT_TRUE(handle->deferred().has_room());
  expect_after_a_cut(disk.contents(path));
}

// Another writer comes to the same bytes: it finishes what it finds, and its own change stays.
TEST_F(Deferred, AnotherWriterOfTheSameBytesComesAfterIt) {
  for (const auto &options : {later(), at_once(), publish()}) {
    auto first = open(env), second = open(env);
    ASSERT_TRUE(is_ok(commit(*first, "a", new_a)));
    ASSERT_TRUE(is_ok(commit(*second, "a", old_a, options)));
    expect_after_a_cut(file(old_a, old_b));
    ASSERT_TRUE(is_ok(first->sync()));
    expect_after_a_cut(file(old_a, old_b));
    ASSERT_TRUE(is_ok(commit(*first, "a", other_a)));
    expect_after_a_cut(file(other_a, old_b));
    ASSERT_TRUE(is_ok(commit(*first, "a", old_a)));
    first.reset();
    second.reset();
    expect_after_a_cut(file(old_a, old_b));
    EXPECT_FALSE(disk.exists(folder));
  }
}

TEST_F(Deferred, AnotherWriterOfOtherBytesLeavesItAlone) {
  auto first = open(env), second = open(env);
  ASSERT_TRUE(is_ok(commit(*first, "a", new_a)));
  ASSERT_TRUE(is_ok(commit(*second, "b", new_b, at_once())));
  EXPECT_EQ(second->counters().recoveries, 0u);
  expect_after_a_cut(file(new_a, new_b));
  EXPECT_EQ(syncs_of([&] { ASSERT_TRUE(is_ok(first->sync())); }), 1);
}

TEST_F(Deferred, AReaderTakesItForALivingWriters) {
  auto handle = open(env);
  ASSERT_TRUE(is_ok(commit(*handle, "a", new_a)));
  for (const bool writable : {false, true}) {
    auto reader = DataFile::open(disk, path, {.writable = writable, .lock_timeout_ms = 0});
    ASSERT_TRUE(is_ok(reader));
    EXPECT_EQ((*reader)->counters().recoveries, 0u);
  }
}

TEST_F(Deferred, APublishOfTheSameHandleComesAfterIt) {
  auto handle = open(env);
  ASSERT_TRUE(is_ok(commit(*handle, "a", new_a)));
  ASSERT_TRUE(is_ok(commit(*handle, "b", new_b, publish())));
  EXPECT_EQ(handle->counters().recoveries, 0u);
  expect_after_a_cut(file(new_a, new_b));
  ASSERT_TRUE(is_ok(commit(*handle, "a", old_a)));
  expect_after_a_cut(file(old_a, new_b));
}

TEST_F(Deferred, ASyncThatFailsLeavesItToTheNextOpener) {
  for (const bool by_close : {false, true}) {
    auto handle = open(env);
    ASSERT_TRUE(is_ok(commit(*handle, "a", new_a)));
    disk.sync_fault = [] { return -EIO; };
    if (!by_close) {
      ASSERT_TRUE(fails_with(Status::needs_recovery, handle->sync()));
      disk.sync_fault = nullptr;
      EXPECT_TRUE(fails_with(Status::poisoned, handle->sync()));
      EXPECT_TRUE(fails_with(Status::poisoned, commit(*handle, "a", other_a)));
    }
    handle.reset();
    disk.sync_fault = nullptr;
    expect_after_a_cut(file(new_a, old_b));
    auto next = open(env);
    EXPECT_EQ(next->counters().recoveries, 1u);
    ASSERT_TRUE(is_ok(commit(*next, "a", old_a, at_once())));
  }
}

// A backup has linked the journal. It stays its writer's, and nobody else writes to it.
class LinkedJournals : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  int fstatat(int at, const char *name, struct stat *out, int flags) override {
    const int r = FaultEnv::fstatat(at, name, out, flags);
    const bool is_journal = std::string_view(name).find('.') == std::string_view::npos;
    if (r == 0 && S_ISREG(out->st_mode) && (only.empty() ? is_journal : name == only)) out->st_nlink = 2;
    return r;
  }
  int openat(int at, const char *name, int flags, mode_t mode) override {
    const std::string_view n = name;
    const bool is_journal = n.size() == 16 && n.find('.') == n.npos && (flags & O_CREAT) == 0;
    return is_journal && refusal != 0 ? refusal : FaultEnv::openat(at, name, flags, mode);
  }
  int refusal = 0;
  std::string only;  // this one, where it is not every journal
};

TEST_F(Deferred, ABackupThatLinksItsJournalTakesItFromNobody) {
  LinkedJournals linked(disk);
  auto first = open(env);
  ASSERT_TRUE(is_ok(commit(*first, "a", new_a)));
  const auto names = disk.names(folder);
  ASSERT_EQ(names.size(), 1u);
  const std::string journal = disk.contents(folder + "/" + names[0]);
  auto second = open(linked);
  ASSERT_TRUE(second);
  ASSERT_TRUE(is_ok(commit(*second, "b", new_b)));
  linked.calls.clear();
  EXPECT_TRUE(fails_with(Status::busy, commit(*second, "a", other_a)));
  EXPECT_LT(linked.calls.size(), 300u);
  const auto recovered = recover_all(linked, path, {}, {});
  ASSERT_TRUE(fails_with(Status::busy, recovered));
  EXPECT_NE(recovered.error().message.find(names[0] + "', which has a second link"), std::string::npos)
      << recovered.error().message;
  EXPECT_EQ(second->counters().recoveries, 0u);
  EXPECT_TRUE(disk.contents(folder + "/" + names[0]) == journal);
  expect_after_a_cut(file(new_a, new_b));
  ASSERT_TRUE(is_ok(first->sync()));
  ASSERT_TRUE(is_ok(commit(*second, "a", other_a)));
  first.reset();
  second.reset();
  expect_after_a_cut(file(other_a, new_b));
}

TEST_F(Deferred, ALinkedJournalKeepsNobodyFromWhatIsRecoveredBesideIt) {
  LinkedJournals linked(disk);
  auto first = open(env);
  ASSERT_TRUE(is_ok(commit(*first, "a", new_a)));
  linked.only = disk.names(folder).at(0);
  auto dying = open(env);
  ASSERT_TRUE(is_ok(commit(*dying, "b", new_b)));
  disk.sync_fault = [] { return -EIO; };
  dying.reset();
  disk.sync_fault = nullptr;
  auto next = open(linked);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->counters().recoveries, 1u);
  ASSERT_TRUE(is_ok(commit(*next, "b", old_b)));
  EXPECT_TRUE(fails_with(Status::busy, recover_all(linked, path, {}, {})));
}

TEST_F(Deferred, ALinkedJournalThatCannotBeOpenedNowIsNotTakenFromItsHolder) {
  LinkedJournals linked(disk);
  auto first = open(env);
  ASSERT_TRUE(is_ok(commit(*first, "a", new_a)));
  const auto names = disk.names(folder);
  linked.refusal = -EMFILE;
  const auto refused = recover_all(linked, path, {}, {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().os_errno, EMFILE);
  EXPECT_EQ(disk.names(folder), names);
  linked.refusal = 0;
  linked.before = [](Call call) { return call == Call::lock ? -ENOLCK : 0; };
  EXPECT_FALSE(DataFile::open(linked, path, {.writable = true}));
  EXPECT_EQ(disk.names(folder), names);
  linked.before = nullptr;
  linked.refusal = -EACCES;  // it lets nobody in, and is no journal of its holder's
  const auto aside = recover_all(linked, path, {}, {});
  ASSERT_TRUE(is_ok(aside));
  EXPECT_EQ(aside->aside, 1u);
}

// The journal is not emptied while somebody may read it.
TEST_F(Deferred, WaitsForARecoveryAndForAPublish) {
  auto handle = open(env);
  ASSERT_TRUE(is_ok(commit(*handle, "a", new_a)));
  auto other = os::File::open(disk, AT_FDCWD, path, O_RDWR, 0, path);
  {
    auto whole = os::RangeLock::acquire(*other, {os::whole_file(true)}, {});
    ASSERT_TRUE(is_ok(whole));
    EXPECT_EQ(syncs_of([&] { EXPECT_TRUE(fails_with(Status::busy, handle->sync())); }), 0);
  }
  EXPECT_EQ(syncs_of([&] { ASSERT_TRUE(is_ok(handle->sync())); }), 1);
}

// Another thread is at it, and waits: each has its own time, and may be stopped.
TEST_F(Deferred, WaitsForAnotherThreadNoLongerThanItsCallerAllows) {
  auto handle = open(env);
  ASSERT_TRUE(is_ok(commit(*handle, "a", new_a)));
  auto other = os::File::open(disk, AT_FDCWD, path, O_RDWR, 0, path);
  auto whole = os::RangeLock::acquire(*other, {os::whole_file(true)}, {});
  ASSERT_TRUE(is_ok(whole));
  std::atomic<uint64_t> interrupts = 0;
  const Control stopped({}, &interrupts), cancelled([](uint64_t, uint64_t) { return false; }, nullptr);
  ++interrupts;
  std::future<void> second;
  size_t looks = 0;  // of the first, for the lock
  env.before = [&](Call call) {
    if (call != Call::lock || ++looks != 2) return 0;
    second = std::async(std::launch::async, [&] {
      for (const int32_t ms : {0, 50})
        EXPECT_TRUE(fails_with(Status::busy, handle->settle_deferred({ms, nullptr, nullptr})));
      EXPECT_TRUE(fails_with(Status::interrupted, handle->settle_deferred({-1, &stopped, nullptr})));
      EXPECT_TRUE(fails_with(Status::cancelled, handle->settle_deferred({-1, &cancelled, nullptr})));
    });
    EXPECT_EQ(second.wait_for(std::chrono::seconds(20)), std::future_status::ready) << "it waits for the first";
    whole->release();
    return 0;
  };
  auto settled = handle->settle_deferred({-1, nullptr, nullptr});
  second.wait();
  env.before = nullptr;
  ASSERT_TRUE(is_ok(settled));
  EXPECT_TRUE(*settled);
  expect_after_a_cut(file(new_a, old_b));
}

// A commit that first makes room for its journal waits for locks twice.
TEST_F(Deferred, ACommitThatMakesRoomWaitsNoLongerThanAnyOther) {
  constexpr int most = 16;
  const std::string many = "/models/many.safetensors";
  std::vector<TestTensor> tensors;
  for (int i = 0; i <= most; ++i) tensors.push_back({text("t", i), Dtype::U8, {n}, old_a});
  disk.add_file(many, file_of(tensors, {}, 8));
  auto handle = DataFile::open(env, many, {.writable = true});
  for (int i = 0; i < most; ++i) ASSERT_TRUE(is_ok(commit(**handle, tensors[i].name, new_a)));
  auto one = os::File::open(disk, AT_FDCWD, many, O_RDWR, 0, many);
  auto other = os::File::open(disk, AT_FDCWD, many, O_RDWR, 0, many);
  auto begun = os::RangeLock::acquire(*one, {{0, 8, true}}, {});
  auto last = os::RangeLock::acquire(*other, {{disk.contents(many).size() - 1, 1, true}}, {});
  TransactionOptions options = later();
  options.lock_timeout_ms = 1000;
  const uint64_t begin = disk.monotonic_ms();
  options.progress = [&](uint64_t, uint64_t) {
    if (disk.monotonic_ms() >= begin + 700) begun->release();
    return true;
  };
  auto t = Transaction::begin(**handle, std::move(options));
  ASSERT_TRUE(
      is_ok((*t)->update(tensors[most].name, {static_cast<uint32_t>(Dtype::U8), {&n, 1}, new_b.data(), new_b.size()})));
  EXPECT_TRUE(fails_with(Status::busy, (*t)->commit()));
  EXPECT_GE(disk.monotonic_ms(), begin + 999);
  EXPECT_LT(disk.monotonic_ms(), begin + 1100);
  last->release();
  EXPECT_TRUE(is_ok((*t)->commit()));
}

TEST_F(Deferred, AFolderThatWasRemovedTakesNothingWithIt) {
  auto handle = open(env);
  ASSERT_TRUE(is_ok(commit(*handle, "a", new_a)));
  for (const std::string &name : disk.names(folder)) disk.remove(folder + "/" + name);
  ASSERT_TRUE(is_ok(handle->sync()));
  expect_after_a_cut(file(new_a, old_b));
  ASSERT_TRUE(is_ok(commit(*handle, "a", other_a)));
  expect_after_a_cut(file(other_a, old_b));
}

// Where the emptiness of a journal is made durable by a sync of its own, the flag changes nothing.
TEST_F(Deferred, WithFourFlushesAllSyncsAreMade) {
  disk.set_patches(Patches::four_flushes);
  auto handle = open(env);
  ASSERT_TRUE(is_ok(commit(*handle, "a", old_a)));
  EXPECT_EQ(syncs_of([&] { ASSERT_TRUE(is_ok(commit(*handle, "a", new_a))); }), 4);
  EXPECT_EQ(syncs_of([&] { ASSERT_TRUE(is_ok(handle->sync())); }), 0);
  expect_after_a_cut(file(new_a, old_b));
}

// Where old bytes could be saved by sharing, the new ones go to the journal all the same.
TEST_F(Deferred, TakesARedoRecordWhereItCouldHaveAnUndoRecord) {
  disk.set_patches(Patches::undo);
  auto handle = open(env);
  ASSERT_TRUE(is_ok(commit(*handle, "a", new_a)));
  EXPECT_EQ(disk.clones(), 0u);
  expect_after_a_cut(file(new_a, old_b));
  ASSERT_TRUE(is_ok(commit(*handle, "b", new_b, at_once())));
  expect_after_a_cut(file(new_a, new_b));
}

}  // namespace
}  // namespace st::store
