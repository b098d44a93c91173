// Something removes the journal folder while a transaction goes on, as a cleaner's
// rm -rf does; then the power may fail. Until the first byte of the data is written
// nothing is lost by it: the change is made whole, or fails and has changed nothing.
#include <gtest/gtest.h>

#include <optional>

#include "bound.h"
#include "cuts.h"
#include "engine/recover_all.h"
#include "failing_call.h"
#include "file/transaction.h"
#include "shards_workload.h"
#include "test_files.h"

namespace st::testing {
namespace {

void remove_folder(SimEnv &env, const std::string &folder) {
  for (const std::string &name : env.names(folder)) ASSERT_EQ(env.remove(folder + "/" + name), 0);
  if (!env.exists(folder)) return;
  ASSERT_EQ(env.remove(folder), 0);
}

// A commit, before whose n-th change of the disk the folder goes; and all that a cut after that may leave.
struct Trial {
  Result<void> answer;
  std::vector<SimDisk> moments;
};
Trial commit_without(SimEnv &env, store::AnyTransaction &transaction, const std::string &folder, size_t n) {
  Trial trial;
  size_t changes = 0;
  bool removing = false;
  env.before_change = [&] {
    if (removing) return;
    removing = true;
    if (changes++ == n) remove_folder(env, folder);
    removing = false;
    if (changes > n) trial.moments.push_back(env.disk());
  };
  trial.answer = transaction.commit();
  env.before_change = nullptr;
  trial.moments.push_back(env.disk());
  return trial;
}

// Before which change of the disk the first byte of `path` is written, where nothing disturbs the commit.
size_t first_write(SimEnv &env, store::AnyTransaction &transaction, const std::string &path) {
  const std::string old = env.contents(path);
  size_t changes = 0, same = 0;
  env.before_change = [&] {
    ++changes;
    if (env.contents(path) == old) same = changes;
  };
  EXPECT_TRUE(is_ok(transaction.commit()));
  env.before_change = nullptr;
  return same - 1;
}

store::NewBytes u8(const std::string &bytes, const uint64_t &n) {
  return {static_cast<uint32_t>(Dtype::U8), {&n, 1}, bytes.data(), bytes.size()};
}

class JournalGone : public ::testing::TestWithParam<Patches> {
 protected:
  const uint64_t n = 5000;
  const std::string path = "/models/m.safetensors", folder = path + ".st-journal";
  const std::string old = st::testing::file_of(std::vector{u8_tensor("a", n, 1), u8_tensor("b", n, 2)});
  const std::string a = pattern(n, 3), b = pattern(n, 4);

  struct Scene {
    SimEnv env;
    FaultEnv faulty{env};
    std::unique_ptr<store::DataFile> file;
    std::unique_ptr<store::Transaction> transaction;
  };
  std::unique_ptr<Scene> staged(bool all = true) const {
    auto scene = std::make_unique<Scene>();
    scene->env = empty_disk(disks[0]);
    scene->env.set_patches(GetParam());
    scene->env.reflink = GetParam() == Patches::undo;
    scene->env.add_file(path, old);
    scene->file = std::move(*store::DataFile::open(scene->faulty, path, {.writable = true}));
    store::TransactionOptions options;
    options.copy = GetParam() != Patches::undo;
    scene->transaction = std::move(*store::Transaction::begin(*scene->file, options));
    EXPECT_TRUE(is_ok(scene->transaction->update("a", u8(a, n))));
    if (all) {
      EXPECT_TRUE(is_ok(scene->transaction->update("b", u8(b, n))));
    }
    return scene;
  }
  std::string fresh() const {
    std::string bytes = old;
    bytes.replace(old.size() - 2 * n, n, a);
    bytes.replace(old.size() - n, n, b);
    return bytes;
  }
  std::string recovered(const SimDisk &disk) const {
    SimEnv env(disk);
    auto done = store::recover_all(env, path, {}, {});
    if (!done) return done.error().message;
    if (done->aside > 0) return done->why_aside;
    const std::string now = env.contents(path);
    return now == old ? "old" : now == fresh() ? "new" : "a mix";
  }
  void judge(const Trial &trial, const std::string &when) const {
    for (const SimDisk &moment : trial.moments)
      for (const SimDisk &left : Cuts(6, 24).of(moment, 0)) {
        const std::string found = recovered(left);
        const bool is_last = &moment == &trial.moments.back();
        if (!is_last)
          ASSERT_TRUE(found == "old" || found == "new") << when << ": " << found;
        else
          ASSERT_EQ(found, trial.answer ? "new" : "old") << when;
      }
  }
};
INSTANTIATE_TEST_SUITE_P(Journals, JournalGone, ::testing::ValuesIn(every_patches),
                         [](const auto &patches) { return name_of(patches.param); });

TEST_P(JournalGone, BeforeTheCommitItIsStagedAnew) {
  auto scene = staged();
  remove_folder(scene->env, folder);
  const Trial trial = commit_without(scene->env, *scene->transaction, folder, SIZE_MAX);
  ASSERT_TRUE(is_ok(trial.answer));
  EXPECT_TRUE(same_bytes(scene->env.contents(path), fresh()));
  judge(trial, "staged");
  // And the transaction's change is as safe as any while it is made.
  scene = staged();
  remove_folder(scene->env, folder);
  for (const SimDisk &moment : moments_of(scene->env, [&] { ASSERT_TRUE(is_ok(scene->transaction->commit())); }))
    for (const SimDisk &left : Cuts(6, 24).of(moment, 0)) {
      const std::string found = recovered(left);
      ASSERT_TRUE(found == "old" || found == "new") << found;
    }
}

// Another writer makes a folder in its place, and has there what it syncs later, of the same bytes and of others.
TEST_P(JournalGone, WhatAnotherHasCommittedInAFolderOfItsOwnIsFinishedFirst) {
  auto scene = staged(false);
  remove_folder(scene->env, folder);
  auto other = std::move(*store::DataFile::open(scene->env, path, {.writable = true}));
  store::TransactionOptions later;
  later.journal_only = true;
  auto begun = store::Transaction::begin(*other, later);
  ASSERT_TRUE(is_ok(begun));
  const std::string others_a = pattern(n, 5), others_b = pattern(n, 6);
  ASSERT_TRUE(is_ok((*begun)->update("a", u8(others_a, n))));
  ASSERT_TRUE(is_ok((*begun)->update("b", u8(others_b, n))));
  ASSERT_TRUE(is_ok((*begun)->commit()));
  ASSERT_TRUE(is_ok(scene->transaction->commit()));
  std::string wanted = old;
  wanted.replace(old.size() - 2 * n, n, a);
  wanted.replace(old.size() - n, n, others_b);
  for (const SimDisk &left : Cuts(6, 24).of(scene->env.disk(), 0)) {
    SimEnv crashed(left);
    auto done = store::recover_all(crashed, path, {}, {});
    ASSERT_TRUE(is_ok(done));
    ASSERT_EQ(done->aside, 0u) << done->why_aside;
    ASSERT_TRUE(same_bytes(crashed.contents(path), wanted));
  }
}

TEST_P(JournalGone, WhatCannotBeStagedAnewChangesNothing) {
  for (size_t call = 0;; ++call) {
    auto scene = staged();
    remove_folder(scene->env, folder);
    FailingCall failing(scene->faulty, scene->env, call, {-EIO, false});
    const auto answer = scene->transaction->commit();
    failing.end();
    const bool decided = answer || answer.error().status == Status::needs_recovery;
    scene->transaction.reset();
    scene->file.reset();
    const std::string found = recovered(scene->env.disk());
    ASSERT_TRUE(found == (answer ? "new" : "old") || (decided && found == "new")) << "call " << call << ": " << found;
    if (!failing.hit()) break;
  }
}

TEST_P(JournalGone, WhatIsNoLongerWhatWasStagedIsNotStagedAnew) {
  auto scene = staged();
  const auto journals = scene->env.names(folder);
  ASSERT_EQ(journals.size(), 1u);
  const int journal = scene->env.openat(AT_FDCWD, (folder + "/" + journals[0]).c_str(), O_RDWR, 0);
  ASSERT_GE(journal, 0);
  remove_folder(scene->env, folder);
  scene->faulty.before = [&](Call call) {  // whatever is read, was damaged before
    const std::string other(3 * n, 'x');
    if (call == Call::pread) scene->env.pwrite(journal, other.data(), other.size(), 4096);
    return 0;
  };
  const auto answer = scene->transaction->commit();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().status, Status::io);
  EXPECT_TRUE(same_bytes(scene->env.contents(path), old));
  scene->env.close(journal);
}

TEST_P(JournalGone, BeforeTheFirstByteIsWrittenNothingIsHalfDone) {
  auto undisturbed = staged();
  const size_t last = first_write(undisturbed->env, *undisturbed->transaction, path);
  ASSERT_GT(last, 2u);
  size_t refused = 0;
  for (size_t at = 0; at < last; ++at) {
    auto scene = staged();
    const Trial trial = commit_without(scene->env, *scene->transaction, folder, at);
    refused += !trial.answer;
    if (!trial.answer) {
      EXPECT_EQ(trial.answer.error().status, Status::io) << at;
      EXPECT_NE(trial.answer.error().message.find("nothing was changed"), std::string::npos);
    }
    ASSERT_NO_FATAL_FAILURE(judge(trial, text("removed before change ", at)));
  }
  EXPECT_GT(refused, 0u);
}

// With shards any of the folders may go.
class JournalGoneOfShards : public ::testing::TestWithParam<size_t> {};

TEST_P(JournalGoneOfShards, BeforeTheFirstByteIsWrittenNothingIsHalfDone) {
  const ShardOperation &operation = shard_operations()[GetParam()];
  const Model old = first_whole();
  const auto begin = [&](store::Shards &shards, Model *fresh, std::vector<std::string> *keep) {
    auto begun = shards.begin({});
    EXPECT_TRUE(is_ok(begun));
    keep->reserve(8);
    EXPECT_TRUE(is_ok(operation.stage(**begun, *fresh, *keep)));
    return std::move(*begun);
  };
  const std::string first = shards_folder + "/" + shard_names[0], other = shards_folder + "/" + shard_names[2];
  size_t last = 0;
  {
    SimEnv env = shards_disk(disks[0]);
    Model fresh = old;
    std::vector<std::string> keep;
    auto shards = std::move(*store::Shards::open(env, index_path, {.writable = true}));
    auto transaction = begin(*shards, &fresh, &keep);
    last = first_write(env, *transaction, first);
  }
  EveryNth change(5, 1);
  for (const std::string &of : {first, other, index_path})
    for (size_t at = change.first(); at < last; at += change.step) {
      SimEnv env = shards_disk(disks[0]);
      Model fresh = old;
      std::vector<std::string> keep;
      auto shards = std::move(*store::Shards::open(env, index_path, {.writable = true}));
      auto transaction = begin(*shards, &fresh, &keep);
      const Trial trial = commit_without(env, *transaction, of + ".st-journal", at);
      transaction.reset();
      const std::string where =
          text(of, " before change ", at, trial.answer ? "" : ": " + trial.answer.error().message);
      if (!trial.answer) {
        EXPECT_EQ(trial.answer.error().status, Status::io) << where;
      }
      for (const SimDisk &moment : trial.moments)
        for (const SimDisk &left : Cuts(4, 12).of(moment, 0)) {
          SimEnv crashed(left);
          auto done = store::recover_all(crashed, index_path, {}, {});
          ASSERT_TRUE(is_ok(done)) << where;
          const Seen seen = follow_index(crashed);
          ASSERT_EQ(seen.wrong, "") << where;
          // A decision that was taken back, but not yet durably, is told of; nothing of it is done.
          const bool is_old = seen.whole == old, is_new = seen.whole == fresh;
          if (&moment != &trial.moments.back())
            ASSERT_TRUE(is_old || is_new) << where;
          else
            ASSERT_TRUE(trial.answer ? is_new : is_old && done->aside == 0) << where;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(UpdatesOrElements, JournalGoneOfShards, ::testing::Values(0, 11));

// The writer had taken back its decision, and died before that was durable. Then a shard is opened alone.
TEST(DecisionTakenBack, DoesNotComeBackWithoutThePartThatWasDropped) {
  const Model old = first_whole();
  const std::string first = shards_folder + "/" + shard_names[0], decides = index_path + ".st-journal";
  SimEnv writer = shards_disk(disks[0]);
  auto shards = std::move(*store::Shards::open(writer, index_path, {.writable = true}));
  auto begun = shards->begin({});
  ASSERT_TRUE(is_ok(begun));
  Model fresh = old;
  std::vector<std::string> keep;
  keep.reserve(8);
  ASSERT_TRUE(is_ok(shard_operations()[0].stage(**begun, fresh, keep)));
  SimDisk decided;
  for (const SimDisk &moment : moments_of(writer, [&] { ASSERT_TRUE(is_ok((*begun)->commit())); })) {
    SimEnv env(moment);
    const auto supers = env.names(decides);
    if (supers.size() == 1 && env.contents(decides + "/" + supers[0]).starts_with("libst journal") &&
        follow_index(env).whole == old)
      decided = moment;  // at last the record is durable, and no data is written
  }
  SimEnv env(decided);
  const auto supers = env.names(decides);
  ASSERT_EQ(supers.size(), 1u);
  const int super = env.openat(AT_FDCWD, (decides + "/" + supers[0]).c_str(), O_RDWR, 0);
  const std::string zeros(sim_sector, '\0');
  ASSERT_EQ(env.pwrite(super, zeros.data(), zeros.size(), 0), static_cast<ssize_t>(zeros.size()));
  env.close(super);
  ASSERT_TRUE(is_ok(store::recover_all(env, first, {}, {})));
  for (const SimDisk &left : Cuts(8, 64).of(env.disk(), 0)) {
    SimEnv crashed(left);
    const auto done = store::recover_all(crashed, index_path, {}, {});
    ASSERT_TRUE(is_ok(done));
    ASSERT_EQ(done->aside, 0u) << done->why_aside;
    ASSERT_TRUE(follow_index(crashed).whole == old);
  }
}

}  // namespace
}  // namespace st::testing
