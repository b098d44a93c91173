// st_save and the writer on a simulated disk. A cut or a failing call at any point
// leaves the old file or the new one. The next writer removes all leftovers.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <optional>

#include "cuts.h"
#include "engine/recover_all.h"
#include "engine/reshape.h"
#include "failing_call.h"
#include "file/transaction.h"
#include "file/writer.h"
#include "journal/recover.h"
#include "located.h"
#include "mortal_env.h"

namespace st::testing {
namespace {

const std::string path = "/models/m.safetensors";

enum class Way { as_they_come, declared, at_once };

struct Case {
  std::string name;
  bool exists = false;
  Way way = Way::as_they_come;
  write::Layout layout = write::Layout::keep;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (bool exists : {false, true})
    for (const auto &[way, told] :
         {std::pair{Way::as_they_come, ", as they come"}, {Way::declared, ", declared"}, {Way::at_once, ", at once"}})
      for (auto layout : {write::Layout::keep, write::Layout::stock})
        all.push_back(
            {text(exists ? "over a file" : "a new file", told, layout == write::Layout::stock ? ", stock" : ""), exists,
             way, layout});
  return all;
}

std::vector<write::NewTensor> tensors(const std::string &bytes) {
  return {{"a", Dtype::U8, {200}, 200, bytes.data()},
          {"b", Dtype::F32, {5, 130}, 2600, bytes.data() + 200},
          {"empty", Dtype::I64, {0}, 0, nullptr}};
}

Result<void> run(os::Env &env, const Case &c, const std::string &bytes) {
  write::SaveOptions options;
  options.layout = c.layout;
  const auto given = tensors(bytes);
  if (c.way == Way::at_once) return write::save(env, path, given, {{"k", "v"}}, options);
  auto writer = write::Writer::open(env, path, c.way == Way::declared ? given : std::vector<write::NewTensor>{},
                                    {{"k", "v"}}, options);
  if (!writer) return Failure(std::move(writer.error()));
  for (const auto &t : given)
    if (auto put = (*writer)->put(t); !put) return put;
  return (*writer)->finish();
}

SimEnv fresh_disk(const Case &c, const std::string &old) {
  SimEnv env;
  env.make_folder("/models", 0755);
  const int root = env.openat(AT_FDCWD, "/", O_RDONLY, 0);
  env.fsync(root);
  env.close(root);
  if (c.exists) env.add_file(path, old);
  return env;
}

// What is wrong with a disk on which the target must be one of the two. No `old`: there was no file.
std::string wrong_with(const SimDisk &disk, const std::optional<std::string> &old, const std::string &fresh,
                       bool may_be_old, bool may_be_new) {
  SimEnv env(disk);
  std::optional<std::string> found;
  if (env.exists(path)) found = env.contents(path);
  if (!(may_be_old && found == old) && !(may_be_new && found == fresh))
    return found ? text("the file has ", found->size(), " bytes of neither state") : "there is no file";
  write::TemporaryFile::remove_stale(located(env, path));
  const auto names = env.names("/models");
  if (names.size() > 1 || (names.size() == 1 && names[0] != "m.safetensors"))
    return text("rubbish is left: ", names.back());
  if (env.open_files() != 0) return "descriptors are left open";
  return {};
}

class Saving : public ::testing::Test {
 protected:
  const std::string old = "an old file, whatever it was", bytes = [] {
    std::string out(2800, '\0');
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>(i * 7 + i / 250);
    return out;
  }();
  std::string new_file(const Case &c) {
    SimEnv env = fresh_disk(c, old);
    EXPECT_TRUE(run(env, c, bytes));
    return env.contents(path);
  }
};

TEST_F(Saving, EveryCutLeavesTheOldFileOrTheNew) {
  size_t points = 0;
  for (const Case &c : cases()) {
    const auto was = c.exists ? std::optional(old) : std::nullopt;
    const std::string fresh = new_file(c);
    Cuts cuts(8, 256);
    auto cut = [&](const SimDisk &disk, bool may_be_old) {
      for (const SimDisk &left : cuts.of(disk, may_be_old)) {
        ++points;
        ASSERT_EQ(wrong_with(left, was, fresh, may_be_old, true), "") << c.name;
      }
    };
    SimEnv env = fresh_disk(c, old);
    env.before_change = [&] { cut(env.disk(), true); };
    ASSERT_TRUE(run(env, c, bytes)) << c.name;
    env.before_change = nullptr;
    cut(env.disk(), false);
  }
  std::printf("saving: %zu distinct disks after a cut\n", points);
  EXPECT_GT(points, 190u);
}

// A writer has died, its file was removed, and one that has the header and some of its bytes is saved under the name.
class SavingWhereAFileIsGone : public Saving {
 protected:
  const Case c{"a new file", false, Way::at_once, write::Layout::keep};
  const std::string a{bytes.rbegin(), bytes.rbegin() + 200}, b{bytes.rbegin(), bytes.rbegin() + 2600},
      half = a + bytes.substr(200), fresh = [&] {
        SimEnv env = fresh_disk(c, old);
        EXPECT_TRUE(run(env, c, half));
        return env.contents(path);
      }();
  size_t points = 0;

  // It died at that call. False: it lived to its end.
  bool leave(SimEnv &env, size_t call) const {
    EXPECT_TRUE(run(env, c, bytes));
    MortalEnv mortal(env);
    {
      auto file = store::DataFile::open(mortal, path, {.writable = true});
      auto t = store::Transaction::begin(**file, {});
      const uint64_t n = 200, shape[] = {5, 130};
      mortal.die_at(call, Death::killed);
      if ((*t)->update("a", {static_cast<uint32_t>(Dtype::U8), {&n, 1}, a.data(), a.size()}) &&
          (*t)->update("b", {static_cast<uint32_t>(Dtype::F32), shape, b.data(), b.size()}))
        static_cast<void>((*t)->commit());
    }
    const int folder = env.openat(AT_FDCWD, "/models", O_RDONLY, 0);
    env.unlinkat(folder, "m.safetensors", 0);
    env.fsync(folder);
    env.close(folder);
    return mortal.died();
  }
  void cut(const SimDisk &disk, bool may_be_none) {
    for (const SimDisk &left : Cuts(8, 256).of(disk, may_be_none)) {
      ++points;
      SimEnv env(left);
      if (may_be_none && !env.exists(path)) continue;
      ASSERT_TRUE(store::recover_all(env, path, {}, {}));
      ASSERT_TRUE(env.contents(path) == fresh);
    }
  }
};

TEST_F(SavingWhereAFileIsGone, EveryCutIsSafeFromItsJournal) {
  bool died = true;
  for (size_t call = 0; died && !HasFailure(); ++call) {
    SCOPED_TRACE(call);
    SimEnv env = fresh_disk(c, old);
    died = leave(env, call);
    for (const SimDisk &disk : moments_of(env, [&] { ASSERT_TRUE(run(env, c, half)); })) cut(disk, true);
    cut(env.disk(), false);
  }
  std::printf("saving where a file is gone: %zu disks after a cut\n", points);
  EXPECT_GT(points, 1'200u);
}

// The second goes on from what the first has left in memory alone.
TEST_F(SavingWhereAFileIsGone, SoIsASecondSaveWhenTheFirstDied) {
  bool died = true, first_died = true;
  for (size_t call = 0; died && !HasFailure(); ++call) {
    first_died = true;
    for (size_t at = 0; first_died && !HasFailure(); ++at) {
      SCOPED_TRACE(text(call, ", ", at));
      SimEnv env = fresh_disk(c, old);
      died = leave(env, call);
      {
        MortalEnv mortal(env);
        mortal.die_at(at, Death::killed);
        static_cast<void>(run(mortal, c, half));
        first_died = mortal.died();
      }
      ASSERT_TRUE(run(env, c, half));
      cut(env.disk(), false);
    }
  }
  std::printf("saving after a save where a file is gone: %zu disks after a cut\n", points);
  EXPECT_GT(points, 270u);
}

// Syncing what is in a folder does not sync the folder's name.
TEST_F(Saving, AFolderThatIsMadeForShardsStays) {
  const Case c{"a new file", false, Way::at_once, write::Layout::keep};
  SimEnv env = fresh_disk(c, old);
  ASSERT_TRUE(run(env, c, bytes));
  ASSERT_TRUE(store::reshard(env, path, "/models/shards", 1000, {}));
  EXPECT_EQ(env.names("/models/shards").size(), 3u);
  SimEnv left(after_cut(env.disk(), false));
  EXPECT_EQ(left.names("/models/shards"), env.names("/models/shards"));
}

// Somebody changes a tensor of the file that is to be replaced.
TEST_F(Saving, WaitsForWhoeverChangesTheOldFile) {
  const Case c{"over a file", true, Way::declared, write::Layout::keep};
  SimEnv env = fresh_disk(c, old);
  auto file = os::File::open(env, AT_FDCWD, path, O_RDWR, 0, path);
  ASSERT_TRUE(file);
  auto lock = os::RangeLock::acquire(*file, {{10, 1, true}}, {});
  ASSERT_TRUE(lock);
  write::SaveOptions options;
  options.lock_timeout_ms = 0;
  auto writer = write::Writer::open(env, path, {}, {}, options);
  ASSERT_TRUE(writer);
  auto answer = (*writer)->finish();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().status, Status::busy);
  EXPECT_EQ(env.contents(path), old);
  lock->release();
  EXPECT_TRUE((*writer)->finish());
  EXPECT_NE(env.contents(path), old);
}

TEST_F(Saving, EveryFailingCallLeavesTheOldFileOrTheNew) {
  size_t trials = 0;
  for (const Case &c : cases()) {
    const auto was = c.exists ? std::optional(old) : std::nullopt;
    const std::string fresh = new_file(c);
    for (const int error : {-EIO, -ENOSPC, -EINTR, -EACCES, FaultEnv::short_io + 0})
      for (bool sticky : {false, true})
        for (size_t n = 0;; ++n, ++trials) {
          SimEnv disk = fresh_disk(c, old);
          FaultEnv env(disk);
          FailingCall failing(env, disk, n, {error, sticky});
          auto answer = run(env, c, bytes);
          failing.end();
          const std::string where = text(c.name, ", call ", n, ", errno ", -error, sticky ? " for good: " : ": ",
                                         answer ? "ok" : answer.error().message);
          if (!answer) {
            EXPECT_NE(answer.error().message, "") << where;
          }
          for (const std::string &name : disk.names("/models"))
            EXPECT_TRUE(sticky || failing.failed() == Call::unlinkat || !name.starts_with("."))
                << where << ": " << name << " is left";
          const bool open = !answer && answer.error().status == Status::needs_recovery;
          EXPECT_EQ(wrong_with(disk.disk(), was, fresh, !answer, answer || open), "") << where;
          for (const bool keep : {false, true}) {
            EXPECT_EQ(wrong_with(after_cut(disk.disk(), keep), was, fresh, !answer, answer || open), "")
                << where << ", then a cut keeping " << keep;
          }
          if (!failing.hit() || HasFailure()) break;
        }
  }
  std::printf("saving: %zu trials of failing calls\n", trials);
  EXPECT_GT(trials, 2'600u);
}

}  // namespace
}  // namespace st::testing
