// Publishes on a simulated disk: the power cut before every change of it and
// after every acknowledgement, and every system call made to fail; on disks that
// share blocks, that copy in the kernel, and that can do neither. The parser is
// run on every state, before recovery and after. What was seen makes the table
// of promises, and core/README.md must have that very table.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>

#include "bound.h"
#include "cuts.h"
#include "failing_call.h"
#include "file/data_file.h"
#include "journal/recover.h"
#include "layout_workload.h"
#include "located.h"
#include "newfile/temporary_file.h"

namespace st::testing {
namespace {

using store::DataFile;
using store::Transaction;

Result<std::unique_ptr<DataFile>> open_file(os::Env &env) {
  store::OpenOptions options;
  options.writable = true;
  options.lock_timeout_ms = 50;
  return DataFile::open(env, layout_path, options);
}

// Does one operation, and changes the model by it.
Result<void> run(DataFile &data_file, const LayoutOperation &operation, Model &model) {
  auto txn = Transaction::begin(data_file, operation.options);
  if (!txn) return Failure(std::move(txn.error()));
  return run(**txn, operation.stage, model);
}

// What readers saw of an operation: before a recovery and after.
struct Seen {
  std::set<std::string> under_way, crashed, recovered, acknowledged;
};
std::map<std::string, Seen> seen_of_group;
uint64_t states = 0;

// "old", "new", "mix", "invalid".
std::string classify(const std::string &file, const Model &old, const Model &fresh) {
  const auto found = model_of(file);
  if (!found) return "invalid";
  if (*found == old) return "old";
  if (*found == fresh) return "new";
  return "mix";
}

// Recovers a disk and says what it then holds.
std::string after_recovery(const SimDisk &disk, const Model &old, const Model &fresh) {
  SimEnv env(disk);
  {
    auto opened = open_file(env);
    if (!opened) return "does not open: " + opened.error().message;
  }
  write::TemporaryFile::remove_stale(located(env, layout_path));
  if (env.names("/models").size() != 1) return "rubbish is left: " + env.names("/models")[0];
  if (env.open_files() != 0) return "descriptors are left open";
  return classify(env.contents(layout_path), old, fresh);
}

class Judge {
 public:
  explicit Judge(Seen *seen) : seen_(seen) {}

  // Every disk, or many, that a cut at this moment may leave.
  void cut(const SimDisk &disk, const Model &old, const Model &fresh, bool acknowledged, const std::string &where) {
    if (::testing::Test::HasFailure()) return;
    for (const SimDisk &left : cuts_.of(disk, acknowledged)) {
      ++states;
      const std::string crashed = classify(SimEnv(left).contents(layout_path), old, fresh);
      const std::string recovered = after_recovery(left, old, fresh);
      seen_->crashed.insert(crashed);
      (acknowledged ? seen_->acknowledged : seen_->recovered).insert(recovered);
      EXPECT_NE(crashed, "invalid") << where;
      if (acknowledged) {
        EXPECT_EQ(recovered, "new") << where;
      } else {
        EXPECT_TRUE(recovered == "old" || recovered == "new") << where << ": " << recovered;
      }
    }
  }

 private:
  Seen *seen_;
  Cuts cuts_{7, 128};
};

TEST(LayoutCuts, EveryCutOfEveryOperationLeavesTheOldFileOrTheNew) {
  for (const Disk &disk : disks)
    for (const LayoutOperation &operation : layout_operations()) {
      SimEnv env = layout_disk(disk);
      Seen &seen = seen_of_group[std::string(operation.group)];
      Judge judge(&seen);
      const std::string where = text(operation.name, ", ", disk.name);
      auto data_file = open_file(env);
      ASSERT_TRUE(data_file);
      const Model old = first_model();
      Model fresh = old;
      // The model is changed while staging, before the first change of the file.
      Result<void> done;
      const auto moments = moments_of(env, [&] { done = run(**data_file, operation, fresh); });
      ASSERT_TRUE(done) << where << ": " << done.error().message;
      for (const SimDisk &m : moments) {
        seen.under_way.insert(classify(SimEnv(m).contents(layout_path), old, fresh));
        judge.cut(m, old, fresh, false, where);
      }
      judge.cut(env.disk(), old, fresh, true, where + ", acknowledged");
      data_file->reset();
      judge.cut(env.disk(), old, fresh, true, where + ", closed");
      if (HasFailure()) return;
    }
  std::printf("operations on the layout: %lu distinct disks after a cut\n", static_cast<unsigned long>(states));
  EXPECT_GT(states, 3'500u);
}

// Two handles, one after the other: what the first did must not come back, and
// what the second does must not be lost on the file that was replaced.
TEST(LayoutCuts, EveryCutOfTwoOperationsOfTwoHandlesLeavesOldOrNew) {
  const uint64_t before = states;
  const auto &operations = layout_operations();
  const size_t chosen[] = {0, 1, 2, 4, 10, 11};
  for (size_t a : chosen)
    for (size_t b : chosen) {
      if (a == b) continue;  // would change nothing, or rename what is gone
      SimEnv env = layout_disk(disks[0]);
      auto one = open_file(env), two = open_file(env);
      ASSERT_TRUE(one && two);
      Model model = first_model();
      ASSERT_TRUE(run(**one, operations[a], model));
      const Model old = model;
      Model fresh = old;
      Result<void> done;
      const auto moments = moments_of(env, [&] { done = run(**two, operations[b], fresh); });
      const std::string where = text(operations[a].name, ", then ", operations[b].name);
      ASSERT_TRUE(done) << where << ": " << done.error().message;
      Seen unused;
      Judge judge(&unused);
      for (const SimDisk &m : moments) judge.cut(m, old, fresh, false, where);
      judge.cut(env.disk(), old, fresh, true, where);
      if (HasFailure()) return;
    }
  std::printf("two operations of two handles: %lu distinct disks after a cut\n",
              static_cast<unsigned long>(states - before));
  EXPECT_GT(states - before, 1'000u);
}

TEST(LayoutFaults, EveryFailingCallOfEveryOperationFailsCleanly) {
  constexpr Fault faults[] = {{-EIO, false},
                              {-EIO, true},
                              {-ENOSPC, false},
                              {-ENOSPC, true},
                              {-EINTR, false},
                              {-EINTR, true},
                              {-EACCES, false},
                              {FaultEnv::short_io, false},
                              {FaultEnv::short_io, true}};
  size_t trials = 0;
  EveryNth call(11, 4);
  for (const Disk &kind : disks)
    for (const LayoutOperation &operation : layout_operations())
      for (const Fault &fault : faults)
        for (size_t n = call.first();; n += call.step) {
          ++trials;
          SimEnv disk = layout_disk(kind);
          FaultEnv env(disk);
          auto data_file = open_file(env);
          ASSERT_TRUE(data_file);
          FailingCall failing(env, disk, n, fault);
          const Model old = first_model();
          Model fresh = old;
          auto answer = run(**data_file, operation, fresh);
          if (!answer) {  // staging may have stopped half-way; the whole of it is what a commit would have done
            SimEnv other = layout_disk(kind);
            auto whole = open_file(other);
            fresh = old;
            ASSERT_TRUE(run(**whole, operation, fresh));
          }
          failing.end();
          const std::string where = text(operation.name, ", ", kind.name, ", call ", n, ", errno ", -fault.error,
                                         fault.sticky ? " for good: " : ": ", answer ? "ok" : answer.error().message);
          const bool open_outcome = !answer && answer.error().status == Status::needs_recovery;
          if (!answer) {
            EXPECT_NE(answer.error().status, Status::internal) << where;
            EXPECT_NE(answer.error().message, "") << where;
            if (!open_outcome) {
              EXPECT_EQ(classify(disk.contents(layout_path), old, fresh), "old") << where;
            }
          }
          for (const std::string &name : disk.names("/models"))
            EXPECT_TRUE(fault.sticky || failing.failed() == Call::unlinkat || !name.starts_with("."))
                << where << ": " << name << " is left";
          const SimDisk crashed = disk.disk();
          data_file->reset();
          EXPECT_EQ(disk.open_files(), 0u) << where;
          for (const bool keep : {false, true}) {
            const SimDisk left = after_cut(crashed, keep);
            EXPECT_NE(classify(SimEnv(left).contents(layout_path), old, fresh), "invalid") << where;
            const std::string found = after_recovery(left, old, fresh);
            EXPECT_TRUE(answer         ? found == "new"
                        : open_outcome ? found == "old" || found == "new"
                                       : found == "old")
                << where << ", then a cut keeping " << keep << ": " << found;
          }
          if (!failing.hit() || HasFailure()) break;
        }
  std::printf("failing calls of operations on the layout: %zu trials\n", trials);
  EXPECT_GT(trials, bounded(1'600, 4'100, 16'000));
}

std::string joined(const std::set<std::string> &seen) {
  const bool was_old = seen.count("old"), is_new = seen.count("new"), mixed = seen.count("mix");
  if (seen.count("invalid")) return "INVALID";
  if (mixed) return "old, new, or a mix of the tensors' bytes";
  return was_old && is_new ? "old or new" : was_old ? "old" : is_new ? "new" : "-";
}

std::string table_of_promises() {
  std::ostringstream out;
  out << "| operation | while it runs | after ST_OK | after a crash, before recovery | after recovery |\n| --- | --- | "
         "--- | --- | --- |\n";
  for (const auto &[group, seen] : seen_of_group)
    out << "| " << group << " | " << joined(seen.under_way) << " | " << joined(seen.acknowledged) << " | "
        << joined(seen.crashed) << " | " << joined(seen.recovered) << " |\n";
  return out.str();
}

// Runs last, on what the first test saw.
TEST(LayoutPromises, ReadmeHasTheTableThatWasSeen) {
  if (seen_of_group.empty()) GTEST_SKIP() << "the test that fills the table was not run";
  std::ifstream in(ST_CORE_README);
  std::stringstream readme;
  readme << in.rdbuf();
  EXPECT_NE(readme.str().find(table_of_promises()), std::string::npos) << "core/README.md is to have this table:\n"
                                                                       << table_of_promises();
}

}  // namespace
}  // namespace st::testing
