// Undo journals: the order of their writes and syncs, the outcome of a change that
// fails in the middle, and recovery after a crash.
#include <sys/mman.h>

#include <cstring>

#include "crash_scene.h"
#include "journal/space.h"
#include "journal/undo.h"
#include "located.h"
#include "sharing_env.h"
#include "store_scene.h"

namespace st::write {
namespace {

using namespace testing;
using testing::Change;

class UndoTest : public testing::StoreScene {
 protected:
  // As a writer that dies with its record written and `landed` in the file.
  // Answers the journal's path.
  std::string leave_undo(const std::vector<Change> &changes, const std::vector<Change> &landed) {
    auto data = os::File::open(sharing, AT_FDCWD, path, O_RDWR, 0, path);
    auto journals = Folder::create(located(sharing, path), *data->stat());
    auto journal = Journal::create(journals->dir(), *data->stat());
    (*journal)->begin();
    std::vector<RangeRecord> ranges;
    for (const Change &c : changes) {
      auto table = (*journal)->note_new(c.offset, c.bytes.data(), c.bytes.size(), {});
      if (!expect(table)) return {};
      auto range = (*journal)->save_old(*data, c.offset, c.bytes.size(), *table, 4096);
      if (!expect(range)) return {};
      ranges.push_back(*range);
    }
    if (!expect((*journal)->seal(*identify(*data), ranges, undo_record)) ||
        !expect((*journal)->sync_payload(journals->dir())) || !expect((*journal)->commit()))
      return {};
    for (const Change &c : landed) poke(path, c.offset, c.bytes);
    return folder() + "/" + (*journal)->name();
  }
  void forge(const std::string &journal, const std::function<void(RangeRecord &)> &change) {
    const std::string bytes = bytes_of(journal);
    const auto *block = reinterpret_cast<const std::byte *>(bytes.data());
    CommitRecord record;
    ASSERT_EQ(decode({block, header_bytes}, &record), JournalState::committed);
    auto ranges = decode_ranges({block + record.manifest, static_cast<size_t>(record.ranges * range_record_bytes)});
    change(ranges[0]);
    const auto manifest = encode(ranges);
    poke(journal, record.manifest, {reinterpret_cast<const char *>(manifest.data()), manifest.size()});
    record.manifest_hash = hash64(manifest.data(), manifest.size());
    const auto head = encode(record);
    poke(journal, 0, {reinterpret_cast<const char *>(head.data()), head.size()});
  }
  static RangeRecord first_range(const std::string &journal) {
    const std::string bytes = bytes_of(journal);
    const auto *block = reinterpret_cast<const std::byte *>(bytes.data());
    CommitRecord record;
    EXPECT_EQ(decode({block, header_bytes}, &record), JournalState::committed);
    return decode_ranges({block + record.manifest, static_cast<size_t>(record.ranges * range_record_bytes)}).at(0);
  }
  static void flip(const std::string &path, uint64_t at) {
    poke(path, at, std::string(1, static_cast<char>(bytes_of(path)[at] ^ 0x40)));
  }

  SharingEnv sharing{env};
  const std::vector<Change> changes = {{a_at, new_a}, {b_at, new_b}};
};

TEST_F(UndoTest, SavesTheOldBytesDurablyBeforeTheFileIsTouchedAndCommitsLast) {
  auto c = open(sharing);
  sharing.steps.clear();
  ASSERT_TRUE(is_ok(update(*c, "b", new_b)));
  EXPECT_EQ(sharing.steps,
            (std::vector<std::string>{"f:sync", "j:empty", "j:write", "j:share", "j:write", "j:sync", "f:sync",
                                      "j:commit", "j:sync", "d:write", "d:sync", "j:empty", "j:sync"}));
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{b_at, new_b}})));
  EXPECT_TRUE(same_bytes(seen(*c, "b"), new_b));
}

TEST_F(UndoTest, JournalBytesDoNotCountWhatIsShared) {
  const std::string large = pattern(3 << 20, 8);
  put_bytes(path, testing::file_of({testing::u8_tensor("x", large.size(), 1)}));
  auto c = open(sharing);
  ASSERT_TRUE(is_ok(update(*c, "x", large)));
  EXPECT_EQ(c->counters().bytes_written, large.size());
  EXPECT_LT(c->counters().journal_bytes, large.size() / 32);
  store::TransactionOptions copy;
  copy.copy = true;
  ASSERT_TRUE(is_ok(update(*c, "x", large, copy)));
  EXPECT_GT(c->counters().journal_bytes, large.size());
}

TEST_F(UndoTest, IsChosenForLargeTensorsWhereBlocksCanBeShared) {
  EXPECT_EQ(undo_from(sharing, {os::Storage::local, "xfs"}), 0u);  // asked for
  sharing.journal = "redo";
  EXPECT_EQ(undo_from(sharing, {os::Storage::local, "xfs"}), never);
  sharing.journal = nullptr;
  EXPECT_EQ(undo_from(sharing, {os::Storage::local, "xfs"}), uint64_t{1} << 20);
  EXPECT_EQ(undo_from(sharing, {os::Storage::local, "btrfs"}), uint64_t{1} << 20);
  EXPECT_EQ(undo_from(sharing, {os::Storage::local, "ext4"}), never);
  sharing.journal = "auto";
  EXPECT_EQ(undo_from(sharing, {os::Storage::local, "xfs"}), uint64_t{1} << 20);
  sharing.journal = "";
  EXPECT_EQ(undo_from(sharing, {os::Storage::local, "xfs"}), uint64_t{1} << 20);
  auto c = open(sharing);
  ASSERT_TRUE(is_ok(update(*c, "b", new_b)));
  EXPECT_EQ(std::count(sharing.steps.begin(), sharing.steps.end(), "j:share"), 0) << "for ten thousand bytes?";
}

TEST_F(UndoTest, AnUnknownWordFailsTheOpenAndNamesTheVariable) {
  sharing.journal = "Undo";
  for (const char *type : {"xfs", "ext4"}) {
    auto from = undo_from(sharing, {os::Storage::local, type});
    ASSERT_TRUE(fails_with(Status::invalid_argument, from)) << type;
    EXPECT_NE(from.error().message.find("ST_JOURNAL"), std::string::npos);
    EXPECT_NE(from.error().message.find("Undo"), std::string::npos);
  }
  put_bytes(path, testing::file_of({testing::u8_tensor("x", 8, 1)}));
  store::OpenOptions options;
  options.writable = true;
  EXPECT_TRUE(fails_with(Status::invalid_argument, store::DataFile::open(sharing, path, options)));
}

// Whatever keeps blocks from being shared, a redo record does the work; and the
// handle does not ask again where the answer cannot change.
TEST_F(UndoTest, ARefusalCostsNothing) {
  for (int error : {EOPNOTSUPP, EINVAL, EXDEV, EIO, ENOSPC}) {
    put_bytes(path, old);
    auto c = open(sharing);
    sharing.refusal = error;
    for (int i = 0; i < 2; ++i) {
      sharing.steps.clear();
      auto txn = begin(*c);
      ASSERT_TRUE(is_ok(txn->update("a", value(*c, "a", new_a))));
      ASSERT_TRUE(is_ok(txn->update("b", value(*c, "b", new_b))));
      ASSERT_TRUE(is_ok(txn->commit()));
      const bool asked = std::count(sharing.steps.begin(), sharing.steps.end(), "j:share") > 0;
      EXPECT_EQ(asked, i == 0 || error == EIO || error == ENOSPC) << error;
    }
    EXPECT_TRUE(same_bytes(bytes_of(path), with(changes)));
    EXPECT_TRUE(same_bytes(seen(*c, "b"), new_b));
  }
}

// Small ones stream to the journal as ever; if large ones join them, their old
// bytes are saved as well, and all go back together.
TEST_F(UndoTest, AMixOfStagedAndBorrowedTensorsIsChangedAsOne) {
  const std::string large = pattern(1'500'000, 8), small = pattern(3001, 9), middling = pattern(300'007, 10);
  const std::string before =
      testing::file_of({testing::u8_tensor("x", small.size(), 1), testing::u8_tensor("y", large.size(), 2),
                        testing::u8_tensor("z", middling.size(), 3)});
  put_bytes(path, before);
  sharing.journal = nullptr;
  auto c = open(sharing);
  for (const bool fails : {true, false}) {
    sharing.steps.clear();
    auto txn = begin(*c);
    ASSERT_TRUE(is_ok(txn->update("x", value(*c, "x", middling.substr(0, small.size())))));
    ASSERT_TRUE(is_ok(txn->update("y", value(*c, "y", std::string(large.size(), 'y')))));
    ASSERT_TRUE(is_ok(txn->update("z", value(*c, "z", middling))));
    ASSERT_TRUE(is_ok(txn->update("y", value(*c, "y", large))));  // the last value counts
    ASSERT_TRUE(is_ok(txn->update("x", value(*c, "x", small))));
    int writes = 0;
    sharing.fails = [&](const std::string &step) { return fails && step == "d:write" && ++writes == 4 ? -ENOSPC : 0; };
    auto done = txn->commit();
    sharing.fails = nullptr;
    EXPECT_EQ(std::count(sharing.steps.begin(), sharing.steps.end(), "j:share"), 2);
    if (fails) {
      ASSERT_TRUE(fails_with(Status::no_space, done));
      EXPECT_TRUE(same_bytes(bytes_of(path), before));
      continue;
    }
    ASSERT_TRUE(is_ok(done));
    const uint64_t at = before.size() - small.size() - large.size() - middling.size();
    EXPECT_TRUE(same_bytes(bytes_of(path), before.substr(0, at) + small + large + middling));
  }
}

// The file that the path names by now has its tensors across other sectors than
// the one that they were noted for: what was noted can be compared, but goes into
// no record.
TEST_F(UndoTest, WhatWasNotedForOtherSectorsIsStagedForAReplacedFile) {
  auto c = open(sharing);
  auto txn = begin(*c);
  ASSERT_TRUE(is_ok(txn->update("b", value(*c, "b", new_b))));
  auto moved = tensors;
  moved[0].bytes = pattern(4008, 1);
  moved[0].shape = {4008};
  const std::string replacement = testing::file_of(moved);
  testing::replace_by(path, replacement);
  sharing.fails = [](const std::string &step) { return step == "d:sync" ? -EIO : 0; };
  auto r = txn->commit();
  sharing.fails = nullptr;
  ASSERT_TRUE(fails_with(Status::needs_recovery, r));
  txn.reset();
  c.reset();
  auto recovered = recover();
  ASSERT_TRUE(is_ok(recovered));
  EXPECT_EQ(recovered->applied, 1u) << recovered->why_aside;
  EXPECT_TRUE(same_bytes(bytes_of(path), std::string(replacement).replace(b_at + 8, new_b.size(), new_b)));
}

struct FailedUndo {
  const char *step;
  int which;  // of such calls
  bool for_good;
  Status status;
  bool poisons;
  uint32_t undone;  // by recovery afterwards
};
void PrintTo(const FailedUndo &f, std::ostream *out) {
  *out << f.step << " " << f.which << (f.for_good ? " for good" : "");
}

class UndoFailsAt : public UndoTest, public ::testing::WithParamInterface<FailedUndo> {};

// Until the journal is emptied nothing is committed: a failure leaves the old
// bytes at once, or to recovery, and says which.
TEST_P(UndoFailsAt, AndTheOldBytesAreThere) {
  const FailedUndo &p = GetParam();
  auto c = open(sharing);
  ASSERT_TRUE(is_ok(update(*c, "c", tensors[2].bytes)));  // a journal is parked
  int seen_steps = 0;
  sharing.fails = [&](const std::string &step) {
    if (step != p.step) return 0;
    const int k = seen_steps++;
    return k == p.which || (p.for_good && k > p.which) ? -EIO : 0;
  };
  auto txn = begin(*c);
  ASSERT_TRUE(is_ok(txn->update("a", value(*c, "a", new_a))));
  ASSERT_TRUE(is_ok(txn->update("b", value(*c, "b", new_b))));
  auto r = txn->commit();
  txn.reset();
  sharing.fails = nullptr;
  ASSERT_TRUE(fails_with(p.status, r));
  EXPECT_EQ(r.error().os_errno, EIO);
  if (p.status != Status::needs_recovery) {
    EXPECT_TRUE(same_bytes(bytes_of(path), old));
  }
  if (p.poisons)
    EXPECT_TRUE(fails_with(Status::poisoned, store::Transaction::begin(*c, {})));
  else
    EXPECT_TRUE(is_ok(update(*c, "c", tensors[2].bytes)));
  auto recovered = recover();
  ASSERT_TRUE(is_ok(recovered));
  EXPECT_EQ(recovered->aside + recovered->applied, 0u) << recovered->why_aside;
  EXPECT_EQ(recovered->undone, p.undone);
  c.reset();
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  EXPECT_FALSE(std::filesystem::exists(folder()));
}

INSTANTIATE_TEST_SUITE_P(
    Steps, UndoFailsAt,
    ::testing::Values(FailedUndo{"j:sync", 0, false, Status::io, true, 0},               // the old bytes
                      FailedUndo{"j:commit", 0, true, Status::io, true, 0},              // the record: not written
                      FailedUndo{"j:sync", 1, false, Status::io, true, 1},               // the record
                      FailedUndo{"d:write", 0, false, Status::io, false, 0},             // the first piece
                      FailedUndo{"d:write", 1, false, Status::io, false, 0},             // the second
                      FailedUndo{"d:write", 1, true, Status::needs_recovery, true, 1},   // and rolling back
                      FailedUndo{"d:sync", 0, false, Status::needs_recovery, true, 1},   // the file: not tried again
                      FailedUndo{"j:empty", 0, false, Status::needs_recovery, true, 1},  // to commit
                      FailedUndo{"j:sync", 2, false, Status::needs_recovery, true, 1}),  // that: see Journal::retire
    [](const auto &p) { return "Step" + std::to_string(p.index); });

TEST_F(UndoTest, MemoryThatCannotBeReadAnyMoreIsAnErrorAndTheOldBytesAreBack) {
  auto c = open(sharing);
  void *memory = ::mmap(nullptr, 12288, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::memcpy(memory, new_b.data(), new_b.size());
  auto txn = begin(*c);
  ASSERT_TRUE(is_ok(txn->update("a", value(*c, "a", new_a))));
  store::NewBytes b = value(*c, "b", new_b);
  b.bytes = memory;
  ASSERT_TRUE(is_ok(txn->update("b", b)));
  ::mprotect(memory, 12288, PROT_NONE);
  auto r = txn->commit();
  EXPECT_EQ(r ? 0 : r.error().os_errno, EFAULT);
  ::munmap(memory, 12288);
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  EXPECT_TRUE(is_ok(update(*c, "a", new_a)));
}

TEST_F(UndoTest, TooLittleRoomForCopiesIsLeftToTheRedoRecord) {
  SharingEnv full{env};
  full.told_of_disk = [](struct statfs &s) { s.f_bavail = 5; };
  auto c = open(full);
  full.steps.clear();
  ASSERT_TRUE(is_ok(update(*c, "b", new_b)));
  EXPECT_EQ(std::count(full.steps.begin(), full.steps.end(), "j:share"), 0);
  EXPECT_TRUE(same_bytes(bytes_of(path), with({{b_at, new_b}})));
}

// The next to lock the tensors must take the journal for a hot journal.
TEST_F(UndoTest, TheJournalOfAnOpenOutcomeIsUnlockedBeforeTheTensors) {
  class Closes : public SharingEnv {
   public:
    using SharingEnv::SharingEnv;
    int lock(int fd, int command, struct flock *lock) override {
      if (lock->l_type == F_UNLCK) order += is_data(fd) ? 'd' : 'j';
      return SharingEnv::lock(fd, command, lock);
    }
    std::string order;
  } closes{env};
  for (const char *journal : {"undo", "redo"}) {
    closes.journal = journal;
    auto c = open(closes);
    closes.fails = [](const std::string &step) { return step == "d:sync" ? -EIO : 0; };
    closes.order.clear();
    auto r = update(*c, "b", new_b);
    closes.fails = nullptr;
    EXPECT_TRUE(fails_with(Status::needs_recovery, r));
    EXPECT_LT(closes.order.find('j'), closes.order.rfind('d')) << closes.order;
    c.reset();
    ASSERT_TRUE(is_ok(recover()));
  }
}

// ---------------------------------------------------------------- recovery

TEST_F(UndoTest, RecoveryPutsTheOldBytesBackByEitherWay) {
  const std::vector<std::vector<Change>> all_landed = {
      {}, {changes[0]}, changes, {{b_at, new_b.substr(0, 5120 - b_at % 512)}}};
  for (os::Env *with_env : {static_cast<os::Env *>(&sharing), &env})
    for (const auto &landed : all_landed) {
      put_bytes(path, old);
      leave_undo(changes, landed);
      auto r = recover(*with_env);
      ASSERT_TRUE(is_ok(r));
      EXPECT_EQ(r->undone, 1u) << r->why_aside;
      EXPECT_EQ(r->applied + r->aside + r->dropped, 0u);
      EXPECT_TRUE(same_bytes(bytes_of(path), old));
      EXPECT_FALSE(std::filesystem::exists(folder()));
      ASSERT_EQ(found.size(), 1u);
      EXPECT_NE(found[0].message.find("rolled back"), std::string::npos) << found[0].message;
    }
}

TEST_F(UndoTest, RecoveryLeavesTheNeighboursAlone) {
  leave_undo({changes[1]}, {changes[1]});
  const std::vector<Change> neighbours = {{a_at, new_a}, {c_at, new_c}};  // in the same blocks
  for (const Change &c : neighbours) poke(path, c.offset, c.bytes);
  ASSERT_EQ(recover(sharing).value().undone, 1u);
  EXPECT_TRUE(same_bytes(bytes_of(path), with(neighbours)));
}

TEST_F(UndoTest, ForeignBytesAreNotOverwritten) {
  for (uint64_t at : {a_at, b_at + 5000, b_at + 10006}) {
    put_bytes(path, old);
    const std::string journal = leave_undo(changes, {changes[0]});
    flip(path, at);
    ASSERT_NO_FATAL_FAILURE(expect_aside(journal, "neither the old nor the new"));
    std::filesystem::remove_all(folder());
  }
}

TEST_F(UndoTest, DamagedOldBytesAreNotPutBack) {
  const std::string journal = leave_undo({changes[1]}, {changes[1]});
  flip(journal, first_range(journal).payload + 5000);
  expect_aside(journal, "payload is damaged");
}

TEST_F(UndoTest, ADamagedTableIsNotBelieved) {
  const std::string journal = leave_undo({changes[1]}, {});
  flip(journal, first_range(journal).sectors + 8);
  expect_aside(journal, "table of hashes is damaged");
}

TEST_F(UndoTest, PlacesOutsideOfTheJournalAreRefused) {
  for (const bool payload : {true, false}) {
    const std::string journal = leave_undo({changes[1]}, {changes[1]});
    forge(journal, [&](RangeRecord &r) { (payload ? r.payload : r.sectors) = bytes_of(journal).size() - 10; });
    ASSERT_NO_FATAL_FAILURE(expect_aside(journal, "outside the journal"));
    std::filesystem::remove_all(folder());
  }
}

// A copy has another inode number: its bytes must tell that the journal is its own.
TEST_F(UndoTest, AFileOfAnotherInodeIsRolledBackIfItHoldsSomethingNew) {
  for (const bool touched : {true, false}) {
    put_bytes(path, old);
    const std::string journal = leave_undo(changes, touched ? std::vector<Change>{changes[0]} : std::vector<Change>{});
    const std::string copy = dir / "copy";
    std::filesystem::copy_file(path, copy);
    std::filesystem::rename(copy, path);
    if (!touched) {
      expect_aside(journal, "another file");
      continue;
    }
    ASSERT_EQ(recover(sharing).value().undone, 1u);
    EXPECT_TRUE(same_bytes(bytes_of(path), old));
  }
}

TEST_F(UndoTest, RecoverySyncsTheFileBeforeTheJournalIsEmptied) {
  leave_undo(changes, changes);
  sharing.steps.clear();
  ASSERT_EQ(recover(sharing).value().undone, 1u);
  EXPECT_EQ(sharing.steps, (std::vector<std::string>{"j:commit", "j:sync", "d:write", "d:share", "d:write", "d:sync",
                                                     "j:empty", "j:sync"}));
}

// Where blocks cannot be shared any more, or the disk has no room for that, they
// are written.
TEST_F(UndoTest, RollingBackWritesWhatItCannotShare) {
  leave_undo(changes, changes);
  sharing.refusal = ENOSPC;
  ASSERT_EQ(recover(sharing).value().undone, 1u);
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
}

}  // namespace
}  // namespace st::write
