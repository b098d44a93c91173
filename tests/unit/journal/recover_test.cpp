// Recovery of what an honest writer left: dropped or finished, whenever it
// crashed, whichever process recovers, and however often.
#include <random>

#include "crash_scene.h"
#include "journal/hot_journal.h"
#include "read_only_env.h"
#include "located.h"
#include "os/named_lock.h"

namespace st::write {
namespace {

using namespace testing;
using testing::Call;
using testing::Change;

class Recover : public testing::CrashScene {
 protected:
  const std::vector<Change> changes = {{a_at, pattern(4000, 51)}, {b_at, pattern(10007, 52)}};
};

TEST_F(Recover, WithoutAFolderDoesNothing) {
  auto r = recover();
  ASSERT_TRUE(is_ok(r));
  EXPECT_EQ(r->applied + r->dropped + r->aside, 0u);
  EXPECT_TRUE(found.empty());
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
}

TEST_F(Recover, DropsWhatWasNotCommitted) {
  ASSERT_NE(leave(changes, false), "");
  auto r = recover();
  ASSERT_TRUE(is_ok(r));
  EXPECT_EQ(r->dropped, 1u);
  EXPECT_EQ(r->applied, 0u);
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  EXPECT_FALSE(std::filesystem::exists(folder()));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].status, Status::ok);
}

TEST_F(Recover, IsStoppedByTheLastReport) {
  ASSERT_NE(leave(changes, true), "");
  const auto stop = [](const write::Finding &) { return false; };
  EXPECT_TRUE(fails_with(Status::cancelled, write::recover(testing::located(env, path), {}, stop)));
  EXPECT_TRUE(same_bytes(bytes_of(path), with(changes)));
}

// Nothing is locked when it tells.
TEST_F(Recover, WhoIsToldMayChangeTheFile) {
  ASSERT_NE(leave(changes, true), "");
  size_t told = 0;
  const auto change = [&](const Finding &) {
    ++told;
    EXPECT_TRUE(is_ok(os::lock_whole_file(testing::located(env, path), {})));
    return true;
  };
  ASSERT_TRUE(is_ok(write::recover(testing::located(env, path), {}, change)));
  EXPECT_EQ(told, 1u);
  EXPECT_TRUE(same_bytes(bytes_of(path), with(changes)));
}

// As where a server forgets a file, and the work begins anew.
TEST(KeptFindings, ToldOnceEachUntilStopped) {
  KeptFindings found;
  for (const char *message : {"a", "a", "b"}) found.keep({LogLevel::info, Status::ok, message});
  std::string told;
  EXPECT_TRUE(found.tell([&](const Finding &f) {
    told += f.message;
    return true;
  }));
  EXPECT_EQ(told, "ab");
  found.keep({LogLevel::info, Status::ok, "a"});
  EXPECT_TRUE(found.empty());
  found.keep({LogLevel::info, Status::ok, "c"});
  EXPECT_TRUE(found.tell({}));
  found.keep({LogLevel::info, Status::ok, "d"});
  EXPECT_FALSE(found.tell([](const Finding &) { return false; }));
}

TEST_F(Recover, WhoIsToldOfAJournalMayStopBeforeTheNext) {
  for (const Change &change : changes) ASSERT_NE(leave({change}, true), "");
  const auto stop = [](const write::Finding &) { return false; };
  EXPECT_TRUE(fails_with(Status::cancelled, write::recover(testing::located(env, path), {}, stop)));
  EXPECT_EQ(names_in(folder()).size(), 1u);
  const auto rest = recover();
  ASSERT_TRUE(is_ok(rest));
  EXPECT_EQ(rest->applied, 1u);
  EXPECT_TRUE(same_bytes(bytes_of(path), with(changes)));
}

TEST_F(Recover, WritesNothingThroughASecondLink) {
  auto journal = make_journal(changes, false);
  ASSERT_TRUE(journal);
  std::filesystem::create_hard_link(folder() + "/" + journal->name(), path + ".backup");
  const std::string as_it_is = bytes_of(path + ".backup");
  struct stat data;
  ASSERT_EQ(::stat(path.c_str(), &data), 0);
  FaultEnv counting(os::Env::posix());
  auto opened = Folder::open(testing::located(counting, path), data, {});
  ASSERT_TRUE(is_ok(opened));
  auto found_there = look_at(**opened, journal->name(), data, true);
  ASSERT_TRUE(is_ok(found_there));
  Found &linked = **found_there;
  ASSERT_TRUE(linked.is_linked);
  const auto settle = [&](Holder held, bool on_ours) {
    return settle_idle(**opened, journal->name(), linked, held, on_ours);
  };
  EXPECT_FALSE(settle(Holder::nobody, false).value());
  EXPECT_TRUE(fails_with(Status::busy, settle(Holder::writer, true)));
  EXPECT_TRUE(settle(Holder::writer, false).value());
  counting.before = [](Call call) { return call == Call::fdatasync ? -EIO : 0; };
  EXPECT_TRUE(fails_with(Status::io, settle(Holder::writer, false)));
  EXPECT_EQ(bytes_of(path + ".backup"), as_it_is);
}

TEST_F(Recover, FinishesWhatWasCommitted) {
  ASSERT_NE(leave(changes, true), "");
  auto r = recover();
  ASSERT_TRUE(is_ok(r));
  EXPECT_EQ(r->applied, 1u);
  EXPECT_TRUE(same_bytes(bytes_of(path), with(changes)));
  EXPECT_FALSE(std::filesystem::exists(folder()));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].level, LogLevel::info);
  EXPECT_NE(found[0].message.find("14007 bytes in 2 pieces"), std::string::npos) << found[0].message;
}

// A copy, or the same file after a new mount of a filesystem that numbers its
// inodes anew: that it holds new bytes shows that it was being written.
TEST_F(Recover, FinishesAHalfAppliedFileOfAnotherInode) {
  for (bool touched : {true, false}) {
    testing::put_bytes(path, old);
    ASSERT_NE(leave(changes, true), "");
    if (touched)
      poke(path, changes[0].offset,
           std::string_view(changes[0].bytes).substr(0, sector_bytes - changes[0].offset % sector_bytes));
    std::filesystem::copy_file(path, path + ".copy");
    std::filesystem::rename(path + ".copy", path);
    auto r = recover();
    ASSERT_TRUE(is_ok(r));
    EXPECT_EQ(r->applied, touched ? 1u : 0u) << r->why_aside;
    EXPECT_EQ(r->aside, touched ? 0u : 1u);
    EXPECT_TRUE(same_bytes(bytes_of(path), touched ? with(changes) : old));
  }
}

// Any sectors may have reached the disk before the crash.
TEST_F(Recover, FinishesWhatWasHalfApplied) {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    testing::put_bytes(path, old);
    ASSERT_NE(leave(changes, true), "");
    for (const Change &c : changes)
      for (uint64_t at = c.offset, end = c.offset + c.bytes.size(); at < end;) {
        const uint64_t n = std::min(sector_bytes - at % sector_bytes, end - at);
        if (random() % 2) poke(path, at, std::string_view(c.bytes).substr(at - c.offset, n));
        at += n;
      }
    auto r = recover();
    ASSERT_TRUE(is_ok(r));
    ASSERT_EQ(r->applied, 1u) << r->why_aside;
    ASSERT_TRUE(same_bytes(bytes_of(path), with(changes)));
  }
}

TEST_F(Recover, FinishesAChangeOfSeveralMegabytesAtAnOddOffset) {
  const std::string big = testing::file_of(
      {testing::u8_tensor("x", 13, 1), testing::u8_tensor("y", 5 * 1000 * 1000 + 7, 2), testing::u8_tensor("z", 9, 3)});
  testing::put_bytes(path, big);
  const uint64_t at = big.size() - 9 - (5 * 1000 * 1000 + 7);
  const std::string fresh = pattern(5 * 1000 * 1000 + 7, 60);
  ASSERT_NE(leave({{at, fresh}}, true), "");
  poke(path, at, std::string_view(fresh).substr(0, 2 * 512 * 1000 + 512 - at % 512));
  ASSERT_EQ(recover().value().applied, 1u);
  EXPECT_TRUE(bytes_of(path) == big.substr(0, at) + fresh + big.substr(big.size() - 9));
}

TEST_F(Recover, FinishesEveryJournalThatWaits) {
  const Change one{a_at, pattern(4000, 61)}, two{c_at, pattern(3000, 62)};
  ASSERT_NE(leave({one}, true), "");
  ASSERT_NE(leave({two}, true), "");
  ASSERT_NE(leave({{b_at, pattern(10007, 63)}}, false), "");
  auto r = recover();
  ASSERT_TRUE(is_ok(r));
  EXPECT_EQ(r->applied, 2u);
  EXPECT_EQ(r->dropped, 1u);
  EXPECT_EQ(found.size(), 3u);
  EXPECT_TRUE(same_bytes(bytes_of(path), with({one, two})));
}

TEST_F(Recover, AgainChangesNothing) {
  ASSERT_NE(leave(changes, true), "");
  ASSERT_EQ(recover().value().applied, 1u);
  auto again = recover();
  ASSERT_TRUE(is_ok(again));
  EXPECT_EQ(again->applied + again->dropped + again->aside, 0u);
  EXPECT_TRUE(same_bytes(bytes_of(path), with(changes)));
}

// Interrupted by a failing call at any point, and run again.
TEST_F(Recover, IsFinishedByTheNextOneWhereverItFailed) {
  size_t points = 0;
  for (size_t n = 0;; ++n) {
    testing::put_bytes(path, old);
    ASSERT_NE(leave(changes, true), "");
    FaultEnv faulty(env);
    faulty.before = testing::nth_call_fails(n, -EIO, true, testing::can_fail);
    auto failed = recover(faulty);
    if (failed && failed->applied == 1 && !std::filesystem::exists(folder())) break;
    ++points;
    EXPECT_EQ(failed && failed->aside > 0, false) << n;
    auto r = recover();
    ASSERT_TRUE(is_ok(r)) << n;
    ASSERT_EQ(r->aside, 0u) << n << r->why_aside;
    ASSERT_TRUE(same_bytes(bytes_of(path), with(changes))) << n;
    ASSERT_FALSE(std::filesystem::exists(folder())) << n;
  }
  EXPECT_GT(points, 15u);
}

// What is emptied must be durable in the file before.
TEST_F(Recover, SyncsTheFileBeforeItEmptiesTheJournal) {
  ASSERT_NE(leave(changes, true), "");
  class Watch : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    ssize_t pwrite(int fd, const void *buffer, size_t n, uint64_t offset) override {
      steps += offset == 0 ? "Z" : "W";
      return FaultEnv::pwrite(fd, buffer, n, offset);
    }
    int fdatasync(int fd) override {
      steps += "S";
      return FaultEnv::fdatasync(fd);
    }
    int unlinkat(int folder, const char *name, int flags) override {
      steps += flags ? "" : "U";
      return FaultEnv::unlinkat(folder, name, flags);
    }
    std::string steps;
  } watch(env);
  ASSERT_TRUE(is_ok(recover(watch)));
  EXPECT_EQ(watch.steps, "ZSWWSZSU");
}

TEST_F(Recover, LeavesALiveJournalAlone) {
  for (bool committed : {false, true}) {
    auto live = make_journal(changes, committed);
    ASSERT_TRUE(live);
    // A writer that has committed holds the header shared until it is done.
    auto file = os::File::open(env, AT_FDCWD, path, O_RDWR, 0, path);
    auto lock = os::RangeLock::acquire(*file, {{0, 8, false}}, {});
    ASSERT_TRUE(is_ok(lock));
    if (!committed) lock->release();
    auto r = recover();
    if (committed) {
      EXPECT_TRUE(fails_with(Status::busy, r));
    } else {
      ASSERT_TRUE(is_ok(r));
      EXPECT_EQ(r->applied + r->dropped + r->aside, 0u);
    }
    EXPECT_TRUE(same_bytes(bytes_of(path), old));
    EXPECT_EQ(names_in(folder()), std::vector<std::string>{live->name()});
    live.reset();
    lock->release();
    EXPECT_EQ(recover().value().applied, committed ? 1u : 0u);
  }
}

TEST_F(Recover, WaitsForNobodyLongerThanItMay) {
  const std::string journal = leave(changes, true);
  auto other = os::File::open(env, AT_FDCWD, path, O_RDWR, 0, path);
  auto lock = os::RangeLock::acquire(*other, {{c_at, 10, true}}, {});
  ASSERT_TRUE(is_ok(lock));
  EXPECT_TRUE(fails_with(Status::busy, recover()));
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  EXPECT_TRUE(std::filesystem::exists(journal));
  lock->release();
  EXPECT_EQ(recover().value().applied, 1u);
}

TEST_F(Recover, OnAReadOnlyMediumSaysThatRecoveryIsNeeded) {
  const std::string journal = leave(changes, true);
  testing::ReadOnlyEnv read_only(env);
  for (int error : {EROFS, EACCES, EPERM}) {
    read_only.error = error;
    auto r = recover(read_only);
    ASSERT_TRUE(fails_with(Status::needs_recovery, r));
    EXPECT_EQ(r.error().os_errno, error);
  }
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  EXPECT_TRUE(std::filesystem::exists(journal));
}

TEST_F(Recover, OfAFileThatOneMayOnlyReadSaysThatRecoveryIsNeeded) {
  ASSERT_NE(leave(changes, true), "");
  std::filesystem::permissions(dir.path(), std::filesystem::perms(0755));
  {
    AsUser user(testing::somebody);
    if (!user) GTEST_SKIP() << "only root can act as somebody else";
    EXPECT_TRUE(fails_with(Status::needs_recovery, recover()));
  }
  EXPECT_EQ(recover().value().applied, 1u);
}

// Nothing was promised by what is not committed, nor by a journal whose writer lives.
TEST_F(Recover, OnAReadOnlyMediumFindsNothingInAJournalThatDoesNotWait) {
  const std::string empty = leave(changes, false);
  const auto living = make_journal(changes, true);
  testing::ReadOnlyEnv read_only(env);
  for (int error : {EROFS, EACCES, EPERM}) {
    read_only.error = error;
    auto r = recover(read_only);
    ASSERT_TRUE(is_ok(r));
    EXPECT_EQ(r->applied + r->undone + r->dropped + r->aside, 0u);
    EXPECT_TRUE(found.empty());
  }
  EXPECT_TRUE(std::filesystem::exists(empty));
}

// The file may be written, and the journals not: another user made them.
class RecoverBesideAnother : public Recover {
 protected:
  static bool names(const std::string &message) {
    return message.find(text("user ", ::geteuid(), " finishes it by")) != std::string::npos;
  }
  OthersJournals others{env};
};

TEST_F(RecoverBesideAnother, AnEmptyJournalIsLeftAndItsOwnerNamed) {
  const std::string empty = leave(changes, false);
  auto r = recover(others);
  ASSERT_TRUE(is_ok(r));
  EXPECT_EQ(r->applied + r->undone + r->dropped + r->aside, 0u);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].level, LogLevel::warning);
  EXPECT_TRUE(names(found[0].message)) << found[0].message;
  EXPECT_EQ(found[0].message.find("committed"), std::string::npos) << found[0].message;
  EXPECT_TRUE(std::filesystem::exists(empty));
}

TEST_F(RecoverBesideAnother, ACommittedJournalWaits) {
  const std::string journal = leave(changes, true);
  auto r = recover(others);
  ASSERT_TRUE(fails_with(Status::needs_recovery, r));
  EXPECT_TRUE(names(r.error().message)) << r.error().message;
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  EXPECT_EQ(recover().value().applied, 1u);
}

TEST_F(RecoverBesideAnother, NothingIsSaidOfAJournalThatCannotBeRead) {
  ASSERT_NE(leave(changes, false), "");
  others.may_be_read = false;
  auto r = recover(others);
  ASSERT_TRUE(fails_with(Status::permission, r));
  EXPECT_TRUE(names(r.error().message)) << r.error().message;
  EXPECT_EQ(r.error().message.find("committed"), std::string::npos) << r.error().message;
}

// Nothing of a stranger is believed. Yet nothing is lost where nothing waits.
TEST_F(RecoverBesideAnother, AStrangersFolderIsAnErrorOnlyIfOneWaits) {
  const std::string journal = leave(changes, true);
  if (::chown(folder().c_str(), testing::somebody, static_cast<gid_t>(-1)) != 0)
    GTEST_SKIP() << "only root can give a folder away";
  EXPECT_TRUE(fails_with(Status::journal, recover()));
  poke(journal, 0, std::string(512, '\0'));
  EXPECT_TRUE(is_ok(recover()));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].level, LogLevel::warning);
  EXPECT_NE(found[0].message.find("user 4242 finishes it by"), std::string::npos) << found[0].message;
  EXPECT_TRUE(std::filesystem::exists(journal));
}

TEST_F(Recover, OfAMissingFileSaysSo) {
  std::filesystem::remove(path);
  EXPECT_TRUE(fails_with(Status::no_file, recover()));
}

class LookingForHotJournals : public Recover {
 protected:
  FoundJournals look(const HotJournalQuery &query = {}) { return look(env, query); }
  FoundJournals look(os::Env &with, const HotJournalQuery &query = {}) {
    struct stat s;
    ::stat(path.c_str(), &s);
    auto opened = Folder::open(testing::located(with, path), s, {});
    EXPECT_TRUE(is_ok(opened));
    auto journals = find_hot_journals(**opened, s, query);
    EXPECT_TRUE(is_ok(journals));
    return *journals;
  }
};

TEST_F(LookingForHotJournals, TellsRubbishFromPromises) {
  const std::string journal = leave(changes, false);
  EXPECT_FALSE(look().committed);
  EXPECT_TRUE(look().idle);
  EXPECT_TRUE(std::filesystem::exists(journal));
  EXPECT_EQ(recover().value().dropped, 1u);
  EXPECT_FALSE(std::filesystem::exists(journal));
}

// A reader goes on where no lock can be asked for; and never past what may be half in the file.
TEST_F(LookingForHotJournals, TakesACommittedOneForADeadWritersWhereNobodyCanTell) {
  for (const int error : {-EPERM, -ENOSYS}) {
    testing::FaultEnv lockless(env);
    lockless.before = [&](testing::Call call) { return call == testing::Call::lock ? error : 0; };
    auto living = make_journal(changes, false);
    EXPECT_FALSE(look(lockless).committed);
    living = make_journal(changes, true);
    EXPECT_TRUE(look(lockless).committed);
    EXPECT_TRUE(fails_with(Status::needs_recovery, recover(lockless)));
    living.reset();
    EXPECT_EQ(recover().value().applied, 1u);
    put_bytes(path, old);
  }
}

TEST_F(LookingForHotJournals, OfAStrangerHarmNoReaderUnlessOneWaits) {
  const auto rest = [&] { return all_rest(testing::located(env, path)); };
  EXPECT_TRUE(rest()) << "one that has gone by now";
  std::filesystem::create_directory(folder());
  EXPECT_TRUE(rest());
  put_bytes(folder() + "/aa", "");
  put_bytes(folder() + "/bb.bad", "evidence");
  auto living = make_journal(changes, true);
  const std::string journal = folder() + "/" + living->name();
  EXPECT_TRUE(rest());
  living.reset();
  EXPECT_FALSE(rest());
  poke(journal, 0, std::string(512, '\0'));
  EXPECT_TRUE(rest());
}

// Its writer has finished, and removes it, before each call of the look. A server then says so in its own way.
TEST_F(LookingForHotJournals, OfAStrangerThatGoAmidTheLookHarmNobody) {
  for (const bool by_server : {false, true}) {
    bool more = true;
    for (size_t n = 0; more; ++n) {
      SCOPED_TRACE(text(by_server, ", call ", n));
      std::filesystem::create_directory(folder());
      const auto living = make_journal(changes, true);
      testing::FaultEnv looks(env);
      const auto at = testing::located(looks, path);
      more = false;
      bool gone = false;
      looks.before = [&, left = n](testing::Call call) mutable {
        if (call == testing::Call::close) return 0;
        if (left-- == 0) {
          more = gone = true;
          std::filesystem::remove_all(folder());
        }
        return gone && by_server ? -ESTALE : 0;
      };
      const bool rest = all_rest(at);
      looks.before = nullptr;
      EXPECT_TRUE(rest);
    }
  }
}

TEST_F(LookingForHotJournals, OfAStrangerALinkOrAPipeMayBeAnything) {
  const auto rest = [&] { return all_rest(testing::located(env, path)); };
  std::filesystem::create_directory(folder());
  EXPECT_TRUE(rest());
  std::filesystem::create_symlink(path, folder() + "/cc");
  EXPECT_FALSE(rest());
  std::filesystem::remove(folder() + "/cc");
  ASSERT_EQ(::mkfifo((folder() + "/cc").c_str(), 0600), 0);
  EXPECT_FALSE(rest());
}

TEST_F(LookingForHotJournals, SeesCommittedOnesButNotItsOwnNorLivingOnes) {
  const std::string journal = leave(changes, true);
  EXPECT_TRUE(look().committed);
  const std::string name = std::filesystem::path(journal).filename().string();
  EXPECT_FALSE(look({name, {}}).committed);
  EXPECT_TRUE(std::filesystem::exists(journal));
  auto live = make_journal({{c_at, "x"}}, true);
  std::filesystem::remove(journal);
  EXPECT_FALSE(look().committed);  // somebody is at work on it
  EXPECT_FALSE(look().idle);
}

TEST_F(LookingForHotJournals, ReadersWhoMayNotWriteSeeThem) {
  ASSERT_NE(leave(changes, true), "");
  testing::ReadOnlyEnv read_only(env);
  EXPECT_TRUE(look(read_only).committed);
}

// Its locks on the tensors went before the one on its journal.
TEST_F(LookingForHotJournals, TakesALiveJournalOnBytesThatTheAskerHasLockedForADyingWriters) {
  auto piece = [](uint64_t offset, uint64_t n) {
    Piece p{};
    p.offset = offset;
    p.payload.length = n;
    return p;
  };
  const std::vector<Piece> on_it = {piece(a_at, 4000), piece(b_at, 10007)}, beside_it = {piece(a_at, 4000)};
  auto uncommitted = make_journal({{b_at + 100, pattern(50, 1)}}, false);
  EXPECT_FALSE(look({{}, on_it}).committed);
  uncommitted.reset();
  std::filesystem::remove_all(folder());
  auto live = make_journal({{b_at + 100, pattern(50, 1)}}, true);
  ASSERT_TRUE(live);
  EXPECT_TRUE(look({{}, on_it}).committed);
  EXPECT_FALSE(look({{}, beside_it}).committed);
  EXPECT_FALSE(look().committed);
  // An unreadable one belongs to a writer that goes on.
  const std::string journal = folder() + "/" + live->name(), bytes = bytes_of(journal);
  CommitRecord record;
  ASSERT_EQ(decode({reinterpret_cast<const std::byte *>(bytes.data()), header_bytes}, &record),
            JournalState::committed);
  poke(journal, record.manifest, "?");
  EXPECT_FALSE(look({{}, on_it}).committed);
  record.ranges = UINT64_MAX;
  const auto block = encode(record);
  poke(journal, 0, {reinterpret_cast<const char *>(block.data()), block.size()});
  EXPECT_FALSE(look({{}, on_it}).committed);
}

// A faster process has finished it, at whichever of our calls.
TEST_F(LookingForHotJournals, AndRecoveryPassOverAJournalThatGoesMeanwhile) {
  for (const Call at : {Call::fstatat, Call::openat})
    for (const bool recovers : {false, true})
      for (size_t n = 0;; ++n) {
        put_bytes(path, old);
        const std::string journal = leave(changes, true);
        FaultEnv faulty(env);
        size_t calls = 0;
        faulty.before = [&](Call call) {
          if (call == at && calls++ == n) std::filesystem::remove(journal);
          return 0;
        };
        if (recovers)
          ASSERT_TRUE(is_ok(recover(faulty)));
        else
          look(faulty);
        EXPECT_FALSE(recovers && std::filesystem::exists(journal));
        EXPECT_TRUE(bytes_of(path) == old || bytes_of(path) == with(changes));
        std::filesystem::remove_all(folder());
        if (calls <= n) break;
      }
}

// At whichever look at a lock. Its journal was empty when it was read.
TEST_F(LookingForHotJournals, AndDroppingOthersLoseNoneThatIsCommittedMeanwhile) {
  for (const bool settles : {false, true})
    for (size_t n = 0;; ++n) {
      put_bytes(path, old);
      ASSERT_NE(leave({{c_at, "x"}}, false), "");
      auto writer = make_journal(changes, false);
      ASSERT_TRUE(writer);
      const auto commit_and_die = [&] {
        EXPECT_TRUE(is_ok(writer->commit()));
        writer.reset();
      };
      FaultEnv faulty(env);
      size_t calls = 0;
      faulty.before = [&](Call call) {
        if (call == Call::lock && calls++ == n) commit_and_die();
        return 0;
      };
      struct stat s;
      ::stat(path.c_str(), &s);
      auto opened = Folder::open(testing::located(faulty, path), s, {});
      ASSERT_TRUE(is_ok(opened));
      if (settles)
        ASSERT_TRUE(is_ok(settle_hot_journals(**opened, s, {})));
      else
        drop_idle(**opened, s, {});
      if (writer) commit_and_die();
      ASSERT_TRUE(is_ok(recover()));
      EXPECT_TRUE(same_bytes(bytes_of(path), with(changes))) << n;
      if (calls <= n) break;
    }
}

// Each try takes a write and a sync, for which the opener waits; and each open would wait once more.
TEST_F(LookingForHotJournals, AndDroppingOthersTriesNoMoreWhereTwoCannotGo) {
  constexpr size_t n = 10;
  for (size_t i = 0; i < n; ++i) ASSERT_NE(leave(changes, false), "");
  FaultEnv faulty(env);
  const auto drop = [&](Call failing, int error) {
    struct stat s;
    ::stat(path.c_str(), &s);
    faulty.before = nullptr;
    auto opened = Folder::open(testing::located(faulty, path), s, {});
    EXPECT_TRUE(is_ok(opened));
    faulty.calls.clear();
    faulty.before = [=](Call call) { return call == failing ? error : 0; };
    return drop_idle(**opened, s, {});
  };
  const auto writes = [&] { return std::count(faulty.calls.begin(), faulty.calls.end(), Call::pwrite); };
  for (const Call failing : {Call::pwrite, Call::fdatasync, Call::unlinkat}) {
    EXPECT_EQ(drop(failing, -EPERM), 0u) << testing::call_name(failing);
    EXPECT_EQ(writes(), 2) << testing::call_name(failing);
  }
  for (const Call failing : {Call::openat, Call::lock}) {
    EXPECT_EQ(drop(failing, -EIO), 0u) << testing::call_name(failing);
    EXPECT_EQ(writes(), 0) << testing::call_name(failing);
  }
  EXPECT_EQ(names_in(folder()).size(), n);
  EXPECT_EQ(drop(Call::unlinkat, -ENOENT), 4u) << "another reader was faster";
  EXPECT_EQ(drop(Call::unlinkat, 0), 4u);
  EXPECT_EQ(names_in(folder()).size(), n - 4);
}

TEST_F(LookingForHotJournals, AndDroppingOthersLeavesNoneBehindTheOneThatCannotGo) {
  for (size_t i = 0; i < 3; ++i) ASSERT_NE(leave(changes, false), "");
  FaultEnv faulty(env);
  faulty.before = [unlinks = 0](Call call) mutable { return call == Call::unlinkat && unlinks++ == 0 ? -EPERM : 0; };
  struct stat s;
  ::stat(path.c_str(), &s);
  auto opened = Folder::open(testing::located(faulty, path), s, {});
  ASSERT_TRUE(is_ok(opened));
  EXPECT_EQ(drop_idle(**opened, s, {}), 2u);
  EXPECT_EQ(names_in(folder()).size(), 1u);
}

TEST_F(LookingForHotJournals, SeesWhatIsNoJournalAndPartsThatMakeNewFiles) {
  ASSERT_NE(leave(changes, false), "");
  std::filesystem::create_symlink(path, folder() + "/0123456789abcdef");
  EXPECT_TRUE(look().committed);  // for recovery to move aside
  std::filesystem::remove_all(folder());
  auto data = os::File::open(env, AT_FDCWD, path, O_RDWR, 0, path);
  auto made = Folder::create(testing::located(env, path), *data->stat());
  auto part = Journal::create(made->dir(), *data->stat());
  ASSERT_TRUE(is_ok(part));
  (*part)->begin();
  ASSERT_TRUE(is_ok((*part)->seal_part(*identify(*data), {}, 7, "m.safetensors.index.json")));
  ASSERT_TRUE(is_ok((*part)->sync_payload(made->dir())) && is_ok((*part)->commit()));
  EXPECT_FALSE(look().committed);
  Piece any{};
  any.offset = a_at;
  any.payload.length = 1;
  EXPECT_TRUE(look({{}, std::span(&any, 1)}).committed);  // its writer had locked the whole file
}

}  // namespace
}  // namespace st::write
