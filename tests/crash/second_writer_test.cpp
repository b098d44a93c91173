// One writer dies, at any of its calls, and loses nothing of what it has written,
// synced or not. Another goes on from what it finds, and is told ST_OK. Then the
// power fails. What the first left unsynced may go by that, what it had emptied may
// come back; what the second was promised stays, and nothing is wrong with the file.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "bound.h"
#include "cuts.h"
#include "engine/recover_all.h"
#include "file/transaction.h"
#include "file/writer.h"
#include "layout_workload.h"
#include "mortal_env.h"
#include "test_files.h"

namespace st::testing {
namespace {

store::NewBytes u8(const std::string &bytes, const uint64_t &n) {
  return {static_cast<uint32_t>(Dtype::U8), {&n, 1}, bytes.data(), bytes.size()};
}

enum class How { patch, later, publish, save, recovery };
enum class Second { was_open, had_staged, was_open_and_another_comes_between, opens, finds_the_file_gone };
std::string_view name_of(How how) {
  return std::array{"patch", "patch that is synced later", "publish", "save", "recovery"}[static_cast<size_t>(how)];
}
std::string_view name_of(Second second) {
  return std::array{"was open", "had staged", "was open, and another comes between", "opens",
                    "finds the file gone"}[static_cast<size_t>(second)];
}
class SecondWriter : public ::testing::TestWithParam<Patches> {
 protected:
  const uint64_t n = 1100;
  const std::string path = "/models/m.safetensors";
  const std::string old_a = pattern(n, 1), old_b = pattern(n, 2), first_a = pattern(n, 3), first_b = pattern(n, 4),
                    other_a = pattern(n, 5), between = pattern(8, 6);

  SimEnv disk() const {
    SimEnv env = empty_disk(disks[0]);
    env.set_patches(GetParam());
    env.reflink = GetParam() == Patches::undo;
    env.add_file(path, file(old_a, old_b));
    return env;
  }
  std::string file(const std::string &a, const std::string &b) const {
    // With one between them that stays, as tensors without a gap are written at once.
    return file_of({{{"a", {Dtype::U8, {n}, a}}, {"ab", {Dtype::U8, {8}, between}}, {"b", {Dtype::U8, {n}, b}}}, {}},
                   8);
  }
  static std::unique_ptr<store::DataFile> open(os::Env &env, const std::string &path) {
    auto opened = store::DataFile::open(env, path, {.writable = true, .lock_timeout_ms = 50});
    EXPECT_TRUE(is_ok(opened));
    return opened ? std::move(*opened) : nullptr;
  }
  std::unique_ptr<store::Transaction> staged(store::DataFile &file, How how, const std::string &a,
                                             const std::string *b = nullptr) const {
    auto begun = store::Transaction::begin(
        file, {.lock_timeout_ms = 50, .journal_only = how == How::later, .publish = how == How::publish});
    if (!begun) return nullptr;
    if (!(*begun)->update("a", u8(a, n))) return nullptr;
    if (b && !(*begun)->update("b", u8(*b, n))) return nullptr;
    return std::move(*begun);
  }
  Result<void> save(os::Env &env, const std::string &a, const std::string &b) const {
    auto writer =
        write::Writer::open(env, path, {}, {}, {.layout = write::Layout::stock, .alignment = 8, .lock_timeout_ms = 50});
    if (!writer) return Failure(std::move(writer.error()));
    for (const auto &[name, bytes] : {std::pair("a", &a), std::pair("ab", &between), std::pair("b", &b)})
      if (auto put = (*writer)->put({name, Dtype::U8, {bytes->size()}, bytes->size(), bytes->data()}); !put) return put;
    return (*writer)->finish();
  }

  void remove_file(SimEnv &env) const {
    const int folder = env.openat(AT_FDCWD, "/models", O_RDONLY, 0);
    env.unlinkat(folder, "m.safetensors", 0);
    env.close(folder);
  }

  // At which call to kill a patch, so that it has written one tensor and not yet the other.
  size_t half_way() const {
    for (size_t at = 0;; ++at) {
      SimEnv env = disk();
      MortalEnv mortal(env);
      EXPECT_TRUE(first(mortal, How::patch, at, Death::killed));
      if (env.contents(path) == file(first_a, old_b)) return at;
    }
  }

  // The first writer, to its death. False: it lived to its end. (A recovery: of what one has left that died before.)
  bool first(MortalEnv &env, How how, size_t at, Death death) const {
    if (how == How::recovery) {
      {
        MortalEnv before(env.disk());
        first(before, How::patch, half_way(), Death::killed);
      }
      env.die_at(at, death);
      static_cast<void>(store::recover_all(env, path, {}, {}));
      return env.died();
    }
    auto file = open(env, path);
    env.die_at(at, death);
    if (how == How::save) {
      static_cast<void>(save(env, first_a, first_b));
    } else if (auto transaction = staged(*file, how, first_a, &first_b)) {
      static_cast<void>(transaction->commit());
    }
    file.reset();
    return env.died();
  }

  // What is wrong with what a cut leaves. Empty: what was acknowledged is there.
  std::string wrong_after_a_cut(const SimDisk &disk, const std::string &acknowledged) {
    for (const SimDisk &left : Cuts(6, 64).of(disk, 0)) {
      ++states;
      SimEnv env(left);
      auto done = store::recover_all(env, path, {}, {});
      if (!done) return "it does not recover: " + done.error().message;
      if (done->aside > 0) return "moved aside: " + done->why_aside;
      if (env.contents(path) != acknowledged) return "what was acknowledged is lost";
    }
    return {};
  }

  // The first writer dies at its call `at`, unless it has `ended` before, and the second goes on. What is wrong?
  std::string trial(How one, Death death, size_t at, How two, Second second, const std::string &a, bool *ended) {
    SimEnv env = disk();
    AskingEnv second_env(env);
    std::unique_ptr<store::DataFile> file;
    std::unique_ptr<store::Transaction> transaction;
    if (second < Second::opens) {
      file = open(second_env, path);
      auto parks = store::Transaction::begin(*file, {});
      EXPECT_TRUE(is_ok((*parks)->update("b", u8(old_b, n))));
      EXPECT_TRUE(is_ok((*parks)->commit()));
    }
    if (second == Second::had_staged) transaction = staged(*file, two, a);

    MortalEnv mortal(env);
    *ended = !first(mortal, one, at, death);

    if (second == Second::was_open_and_another_comes_between) open(env, path).reset();
    if (second == Second::finds_the_file_gone)
      remove_file(env);
    else if (!file)
      file = open(second_env, path);
    if (two != How::save && !transaction) transaction = staged(*file, two, a);
    if (death == Death::killed_and_its_lock_goes_meanwhile) second_env.asked = [&] { mortal.lose_locks(); };
    auto answer = two == How::save ? save(second_env, a, old_b) : transaction->commit();
    second_env.asked = nullptr;
    if (second == Second::finds_the_file_gone && !answer && answer.error().status == Status::busy) {
      mortal.lose_locks();  // until then nobody can tell that it is dead
      answer = save(second_env, a, old_b);
    }
    if (!answer) return "the second writer fails: " + answer.error().message;
    const std::string acknowledged = env.contents(path);
    if (acknowledged != this->file(a, old_b) && acknowledged != this->file(a, first_b)) return "it is neither of both";
    std::string wrong = wrong_after_a_cut(env.disk(), acknowledged);
    if (!wrong.empty()) return wrong;
    transaction.reset();
    file.reset();
    wrong = wrong_after_a_cut(env.disk(), acknowledged);
    return wrong.empty() ? wrong : wrong + ", when it was closed";
  }

  void all_after(How one) {
    const std::pair<const char *, std::string> values[] = {
        {"the old bytes", old_a}, {"the first one's bytes", first_a}, {"other bytes", other_a}};
    EveryNth call(13, 5);
    for (const Death death : every_death)
      for (const How two : {How::patch, How::later, How::publish, How::save})
        for (const Second second : {Second::was_open, Second::had_staged, Second::was_open_and_another_comes_between,
                                    Second::opens, Second::finds_the_file_gone})
          for (const auto &[which, a] : values) {
            if (two == How::save ? second < Second::opens : second == Second::finds_the_file_gone) continue;
            bool ended = false;
            for (size_t at = call.first(); !ended; at += call.step)
              EXPECT_EQ(trial(one, death, at, two, second, a, &ended), "")
                  << "a " << name_of(one) << ", " << name_of(death) << " at " << at << ", then a " << name_of(two)
                  << " by one that " << name_of(second) << ", of " << which;
          }
    std::printf("%zu distinct disks after a death and a cut\n", states);
    EXPECT_GT(states, bounded(1'100, 2'000, 9'000));
  }
  size_t states = 0;
};
INSTANTIATE_TEST_SUITE_P(Journals, SecondWriter, ::testing::ValuesIn(every_patches),
                         [](const auto &patches) { return name_of(patches.param); });

TEST_P(SecondWriter, KeepsWhatItWasPromisedAfterAPatchThatDied) {
  all_after(How::patch);
}
TEST_P(SecondWriter, KeepsWhatItWasPromisedAfterAPatchThatIsSyncedLaterAndDied) {
  all_after(How::later);
}
TEST_P(SecondWriter, KeepsWhatItWasPromisedAfterAPublishThatDied) {
  all_after(How::publish);
}
TEST_P(SecondWriter, KeepsWhatItWasPromisedAfterASaveThatDied) {
  all_after(How::save);
}

TEST_P(SecondWriter, KeepsWhatItWasPromisedAfterARecoveryThatDied) {
  all_after(How::recovery);
}

// What is made durable for the dead costs the living nothing: of two that take turns each syncs its payload and its
// record, the file and the emptied journal, and nothing else. With two flushes payload and record share a sync, and the
// emptied journal has none. When the file was replaced each syncs its name, once.
TEST_P(SecondWriter, SyncsNothingForWritersThatLive) {
  SimEnv env = disk();
  FaultEnv one(env), two(env);
  auto first = open(one, path), second = open(two, path);
  const auto syncs_of = [&](store::DataFile &file, FaultEnv &counts, const std::string &a) {
    counts.calls.clear();
    EXPECT_TRUE(is_ok(staged(file, How::patch, a)->commit()));
    return std::count_if(counts.calls.begin(), counts.calls.end(),
                         [](Call call) { return call == Call::fsync || call == Call::fdatasync; });
  };
  const std::pair<store::DataFile *, FaultEnv *> both[] = {{first.get(), &one}, {second.get(), &two}};
  for (const auto &[file, counts] : both) syncs_of(*file, *counts, old_a);  // makes the journals
  const int syncs = GetParam() == Patches::two_flushes ? 2 : 4;
  for (const int in_the_first_turn : {syncs, syncs + 1})
    for (int turn = 0; turn < 3; ++turn) {
      for (const auto &[file, counts] : both) {
        EXPECT_EQ(syncs_of(*file, *counts, old_a), turn == 0 ? in_the_first_turn : syncs);
        EXPECT_EQ(syncs_of(*file, *counts, first_a), syncs);
      }
      if (turn == 2) {
        EXPECT_TRUE(is_ok(staged(*first, How::publish, other_a)->commit()));
      }
    }
}

// Nor does it when the other is at work on another tensor, whatever he is about to do.
TEST_P(SecondWriter, SyncsNothingForWritersOfOtherTensors) {
  SimEnv env = disk();
  FaultEnv one(env), two(env);
  auto first = open(one, path), second = open(two, path);
  ASSERT_TRUE(is_ok(staged(*first, How::patch, old_a)->commit()));
  const auto commit_b = [&] {
    auto begun = store::Transaction::begin(*second, {.lock_timeout_ms = 50});
    EXPECT_TRUE(is_ok((*begun)->update("b", u8(first_b, n))));
    EXPECT_TRUE(is_ok((*begun)->commit()));
  };
  commit_b();
  size_t tried = 0;
  auto transaction = staged(*first, How::patch, first_a);
  one.before = [&](Call call) {
    if (call != Call::pwrite && call != Call::fsync && call != Call::fdatasync) return 0;
    ++tried;
    two.calls.clear();
    commit_b();
    EXPECT_EQ(std::count_if(two.calls.begin(), two.calls.end(),
                            [](Call c) { return c == Call::fsync || c == Call::fdatasync; }),
              GetParam() == Patches::two_flushes ? 2 : 4)
        << "before its " << tried << "th write or sync";
    return 0;
  };
  ASSERT_TRUE(is_ok(transaction->commit()));
  one.before = nullptr;
  EXPECT_GT(tried, 5u);
}

// Something else has written into the file, so the first one's record is moved aside. It stays there, also when the
// second has brought back the very bytes that it was made for.
TEST_P(SecondWriter, IsNotUndoneByARecordThatWasMovedAside) {
  for (const std::string *a : {&old_a, &first_a, &other_a}) {
    SimEnv env = disk();
    auto file = open(env, path);
    ASSERT_TRUE(is_ok(staged(*file, How::patch, old_a, &old_b)->commit()));
    {
      MortalEnv mortal(env);
      first(mortal, How::patch, half_way(), Death::killed);
    }
    const int fd = env.openat(AT_FDCWD, path.c_str(), O_RDWR, 0);
    env.pwrite(fd, other_a.data(), n, env.contents(path).size() - 2 * n - between.size());
    env.close(fd);
    ASSERT_TRUE(fails_with(Status::journal, staged(*file, How::patch, *a, &old_b)->commit()));
    ASSERT_TRUE(is_ok(staged(*file, How::patch, *a, &old_b)->commit()));
    EXPECT_EQ(wrong_after_a_cut(env.disk(), this->file(*a, old_b)), "");
  }
}

}  // namespace
}  // namespace st::testing
