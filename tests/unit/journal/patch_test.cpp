// The patch protocol: the order of its writes and syncs, and what it says when
// one of them fails.
#include <sys/mman.h>

#include "crash_scene.h"
#include "fault_env.h"
#include "journal/old_bytes.h"
#include "journal/patch.h"
#include "located.h"

namespace st::write {
namespace {

using namespace testing;
using testing::Call;
using testing::Change;

// Writes down what is done to which file: d the data file, j the journal, f the folder.
class Recorder : public FaultEnv {
 public:
  using FaultEnv::FaultEnv;
  ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override {
    if (const int error = note(fd == data_fd ? "d:write"
                               : offset == 0 ? is_zero(buffer, n) ? "j:empty" : "j:commit"
                                             : "j:write");
        error)
      return error;
    return FaultEnv::pwrite(fd, buffer, n, offset);
  }
  int fdatasync(int fd) override {
    if (const int error = note(fd == data_fd ? "d:sync" : "j:sync"); error) return error;
    return FaultEnv::fdatasync(fd);
  }
  int wait_range(int fd, uint64_t offset, uint64_t n) override {
    if (const int error = note("j:out"); error) return error;
    return FaultEnv::wait_range(fd, offset, n);
  }
  int fsync(int fd) override {
    if (const int error = note("f:sync"); error) return error;
    return FaultEnv::fsync(fd);
  }
  int data_fd = -1;
  std::vector<std::string> steps;
  std::function<int(const std::string &)> fails;

 private:
  int note(const std::string &step) {
    if (steps.empty() || steps.back() != step) steps.push_back(step);
    return fails ? fails(step) : 0;
  }
  static bool is_zero(const void *buffer, size_t n) {
    const auto *bytes = static_cast<const char *>(buffer);
    return std::all_of(bytes, bytes + n, [](char c) { return c == 0; });
  }
};

class PatchTest : public testing::CrashScene {
 protected:
  // Patches `changes`, by memory or by what the journal holds.
  tl::expected<void, PatchFailure> patch(bool from_memory, const Control &control = {}) {
    auto data = os::File::open(recorder, AT_FDCWD, path, O_RDWR, 0, path);
    JournalFolder journals(testing::located(recorder, path), *data->stat());
    auto taken = journals.take();
    EXPECT_TRUE(is_ok(taken));
    std::vector<Piece> pieces;
    for (const Change &c : changes) {
      auto payload = taken->journal->append(c.bytes.data(), c.bytes.size(), {});
      EXPECT_TRUE(is_ok(payload));
      pieces.push_back({c.offset, *payload, from_memory ? c.bytes.data() : nullptr});
    }
    auto identity = identify(*data);
    recorder.data_fd = data->fd();
    recorder.steps.clear();
    recorder.fails = fails;
    auto done = apply_redo(*data, taken->folder->dir(), *taken->journal, pieces, *identity, flushes, FileSync::now,
                           control, questions);
    recorder.fails = nullptr;
    return done;  // the journal is kept, as after a crash
  }
  size_t journals() const { return testing::names_in(folder()).size(); }

  static constexpr auto yes = [] { return Result<void>(); };
  const PatchQuestions questions{yes, yes};
  Recorder recorder{env};
  std::function<int(const std::string &)> fails;
  Flushes flushes = Flushes::four;
  // With a gap between them: each is a write of its own.
  const std::vector<Change> changes = {{a_at, pattern(3000, 51)}, {b_at, pattern(10007, 52)}};
};

TEST_F(PatchTest, WritesTheBytesFromMemoryOrFromTheJournal) {
  for (bool from_memory : {true, false}) {
    testing::put_bytes(path, old);
    ASSERT_TRUE(patch(from_memory));
    EXPECT_TRUE(same_bytes(bytes_of(path), with(changes)));
  }
}

TEST_F(PatchTest, DoesEverythingInItsOrder) {
  ASSERT_TRUE(patch(true));
  EXPECT_EQ(recorder.steps, (std::vector<std::string>{"j:write", "j:sync", "f:sync", "j:commit", "j:sync", "d:write",
                                                      "d:sync", "j:empty", "j:sync"}));
}

TEST_F(PatchTest, WithTwoFlushesDoesEverythingInItsOrder) {
  flushes = Flushes::two;
  ASSERT_TRUE(patch(true));
  EXPECT_EQ(recorder.steps, (std::vector<std::string>{"j:write", "f:sync", "j:commit", "j:sync", "d:write", "d:sync",
                                                      "j:empty", "j:out"}));
}

// A kernel, or a sandbox, without sync_file_range.
TEST_F(PatchTest, WhatCannotBeWrittenOutIsSynced) {
  flushes = Flushes::two;
  for (const int error : {ENOSYS, EINVAL, EOPNOTSUPP}) {
    fails = [&](const std::string &step) { return step == "j:out" ? -error : 0; };
    ASSERT_TRUE(patch(true));
    EXPECT_EQ(recorder.steps.back(), "j:sync");
  }
}

struct FailedStep {
  const char *step;
  int which;  // of equal steps
  bool open_outcome, sync_failed;
  uint32_t applied;  // by recovery afterwards
  bool is_new;       // the file, in the end
  Flushes flushes = Flushes::four;
};
void PrintTo(const FailedStep &f, std::ostream *out) {
  *out << f.step << " " << f.which;
}

class PatchFailsAt : public PatchTest, public ::testing::WithParamInterface<FailedStep> {};

// Before the commit record is written nothing has changed; from then on recovery decides.
TEST_P(PatchFailsAt, AndSaysWhatThatMeans) {
  const FailedStep &p = GetParam();
  for (int error : {EIO, ENOSPC}) {
    testing::put_bytes(path, old);
    flushes = p.flushes;
    int seen = 0;
    fails = [&](const std::string &step) { return step == p.step && seen++ >= p.which ? -error : 0; };
    auto r = patch(true);
    ASSERT_FALSE(r);
    EXPECT_EQ(r.error().open_outcome, p.open_outcome);
    EXPECT_EQ(r.error().sync_failed, p.sync_failed);
    EXPECT_EQ(r.error().error.os_errno, error);
    if (!p.open_outcome) {
      EXPECT_TRUE(same_bytes(bytes_of(path), old));
    }
    auto recovered = recover();
    ASSERT_TRUE(is_ok(recovered));
    EXPECT_EQ(recovered->aside, 0u) << recovered->why_aside;
    EXPECT_EQ(recovered->applied, p.applied);
    EXPECT_TRUE(same_bytes(bytes_of(path), p.is_new ? with(changes) : old));
  }
}

INSTANTIATE_TEST_SUITE_P(Steps, PatchFailsAt,
                         ::testing::Values(FailedStep{"j:write", 0, false, false, 0, false},  // the manifest
                                           FailedStep{"j:sync", 0, false, true, 0, false},    // the payload
                                           FailedStep{"f:sync", 0, false, true, 0, false},    // its name
                                           FailedStep{"j:commit", 0, true, true, 0,
                                                      false},  // not a byte of it was written
                                           FailedStep{"j:sync", 1, true, true, 1, true},    // the commit record
                                           FailedStep{"d:write", 0, true, true, 1, true},   // the first piece
                                           FailedStep{"d:write", 1, true, true, 1, true},   // the second
                                           FailedStep{"d:sync", 0, true, true, 1, true},    // the file
                                           FailedStep{"j:empty", 0, true, true, 1, true},   // to retire
                                           FailedStep{"j:sync", 2, true, true, 0, true}));  // that

INSTANTIATE_TEST_SUITE_P(StepsOfTwoFlushes, PatchFailsAt,
                         ::testing::Values(FailedStep{"j:write", 0, false, false, 0, false, Flushes::two},
                                           FailedStep{"f:sync", 0, false, true, 0, false, Flushes::two},
                                           FailedStep{"j:commit", 0, true, true, 0, false, Flushes::two},
                                           FailedStep{"j:sync", 0, true, true, 1, true, Flushes::two},
                                           FailedStep{"d:write", 1, true, true, 1, true, Flushes::two},
                                           FailedStep{"d:sync", 0, true, true, 1, true, Flushes::two},
                                           FailedStep{"j:empty", 0, true, true, 1, true, Flushes::two},
                                           FailedStep{"j:out", 0, true, true, 0, true, Flushes::two}));

// The caller's memory may be a mapping of a file that was truncated. The journal
// has the same bytes.
TEST_F(PatchTest, MemoryThatCannotBeReadAnyMoreIsMadeUpForByTheJournal) {
  auto data = os::File::open(env, AT_FDCWD, path, O_RDWR, 0, path);
  JournalFolder journals(testing::located(env, path), *data->stat());
  auto taken = journals.take();
  ASSERT_TRUE(is_ok(taken));
  auto payload = taken->journal->append(changes[1].bytes.data(), changes[1].bytes.size(), {});
  void *gone = ::mmap(nullptr, 16384, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(gone, MAP_FAILED);
  const Piece piece{b_at, *payload, gone};
  ASSERT_TRUE(apply_redo(*data, taken->folder->dir(), *taken->journal, std::span(&piece, 1), *identify(*data), flushes,
                         FileSync::now, {}, questions));
  ::munmap(gone, 16384);
  EXPECT_TRUE(same_bytes(bytes_of(path), with({changes[1]})));
}

TEST_F(PatchTest, CanBeCancelledBeforeThePointOfNoReturn) {
  int calls = 0;
  const Control cancel([&](uint64_t, uint64_t) { return ++calls < 2; }, nullptr);
  auto r = patch(true, cancel);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().error.status, Status::cancelled);
  EXPECT_FALSE(r.error().open_outcome);
  EXPECT_FALSE(r.error().sync_failed);
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
}

TEST_F(PatchTest, AFileTruncatedMeanwhileIsFoundBeforeTheCommit) {
  recorder.before = [this](Call call) {
    if (call == Call::pread) std::filesystem::resize_file(path, b_at + 10);
    return 0;
  };
  auto data = os::File::open(recorder, AT_FDCWD, path, O_RDWR, 0, path);
  auto journal = make_journal({}, false);
  ASSERT_TRUE(journal);
  journal->begin();
  auto payload = journal->append(changes[1].bytes.data(), changes[1].bytes.size(), {});
  OldBytes old_bytes(*data);
  auto range = journal->record_old(old_bytes, b_at, *payload);
  EXPECT_TRUE(testing::fails_with(Status::file_changed, range));
}

}  // namespace
}  // namespace st::write
