// Recovery of what no honest writer left: damaged, foreign or planted journals.
// None is applied, each is moved aside, and the file stays as it is.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include "crash_scene.h"
#include "fault_env.h"
#include "journal/super_journal.h"

namespace st::write {
namespace {

using namespace testing;
using testing::Change;

class RecoverDistrusts : public testing::CrashScene {
 protected:
  const std::vector<Change> changes = {{a_at, pattern(4000, 51)}, {b_at, pattern(10007, 52)}};

  static CommitRecord record_of(const std::string &journal) {
    const std::string bytes = bytes_of(journal);
    CommitRecord record;
    EXPECT_EQ(decode({reinterpret_cast<const std::byte *>(bytes.data()), header_bytes}, &record),
              JournalState::committed);
    return record;
  }
  static std::vector<RangeRecord> ranges_of(const std::string &journal) {
    const CommitRecord record = record_of(journal);
    const std::string bytes = bytes_of(journal);
    return decode_ranges({reinterpret_cast<const std::byte *>(bytes.data()) + record.manifest,
                          static_cast<size_t>(record.ranges * range_record_bytes)});
  }
  static void flip(const std::string &path, uint64_t at) {
    poke(path, at, std::string(1, static_cast<char>(bytes_of(path)[at] ^ 0x40)));
  }
  // The journal as a forger would make it that knows the hashes.
  static void forge(const std::string &journal,
                    const std::function<void(CommitRecord &, std::vector<RangeRecord> &)> &change) {
    CommitRecord record = record_of(journal);
    std::vector<RangeRecord> ranges = ranges_of(journal);
    change(record, ranges);
    const auto manifest = encode(ranges);
    if (record.manifest < uint64_t{1} << 20)
      poke(journal, record.manifest, {reinterpret_cast<const char *>(manifest.data()), manifest.size()});
    record.manifest_hash = hash64(manifest.data(), manifest.size());
    const auto block = encode(record);
    poke(journal, 0, {reinterpret_cast<const char *>(block.data()), block.size()});
  }
};

TEST_F(RecoverDistrusts, ForeignBytesInTheFile) {
  // In the first, a middle, and the last sector of a range; and in one already written.
  for (uint64_t at : {a_at, b_at + 5000, b_at + 10006}) {
    put_bytes(path, old);
    const std::string journal = leave(changes, true);
    poke(path, a_at + 1024, std::string_view(changes[0].bytes).substr(1024, 512 - (a_at + 1024) % 512));
    flip(path, at);
    ASSERT_NO_FATAL_FAILURE(expect_aside(journal, "neither the old nor the new"));
    std::filesystem::remove_all(folder());
  }
}

TEST_F(RecoverDistrusts, NotBytesThatAreNoneOfItsBusiness) {
  const std::string journal = leave({changes[0]}, true);
  flip(path, b_at + 77);
  std::string wanted = old;
  wanted[b_at + 77] ^= 0x40;
  wanted.replace(a_at, 4000, changes[0].bytes);
  ASSERT_EQ(recover().value().applied, 1u);
  EXPECT_TRUE(same_bytes(bytes_of(path), wanted));
}

TEST_F(RecoverDistrusts, TheJournalOfAnotherFile) {
  const std::string other = dir / "other.safetensors";
  put_bytes(other, old);  // the same bytes, another inode
  auto foreign = make_journal(changes, true, other);
  ASSERT_TRUE(foreign);
  const std::string name = foreign->name();
  foreign.reset();
  std::filesystem::create_directory(folder());
  std::filesystem::rename(other + ".st-journal/" + name, folder() + "/" + name);
  expect_aside(folder() + "/" + name, "another file");
}

TEST_F(RecoverDistrusts, AJournalFromBeforeTheHeaderChanged) {
  const std::string journal = leave(changes, true);
  poke(path, data_offset - 1, "\t");  // a space of the padding
  expect_aside(journal, "another file, or of another state");
}

TEST_F(RecoverDistrusts, AJournalFromBeforeTheFileGrew) {
  const std::string journal = leave(changes, true);
  std::ofstream(path, std::ios::app) << "more";
  expect_aside(journal, "another file, or of another state");
}

// The owner of the file may exchange its journal after the look at it, for a link to a file of the user that recovers.
TEST_F(RecoverDistrusts, WhatTakesAJournalsNameBeforeItIsOpened) {
  const std::string victim = dir / "victim", whole = std::string(sector_bytes, '\0') + pattern(8192, 7);
  put_bytes(victim, whole);
  size_t swapped = 0;
  for (size_t n = 0; n == swapped; ++n) {
    std::filesystem::remove_all(folder());
    const std::string journal = leave(changes, false);
    testing::FaultEnv swaps(os::Env::posix());
    swaps.before_open = [&, left = n](std::string_view name, int) mutable {
      if (!journal.ends_with(name) || left-- != 0) return 0;
      std::filesystem::remove(journal);
      std::filesystem::create_hard_link(victim, journal);
      return 0;
    };
    const auto done = recover(swaps);
    ASSERT_TRUE(is_ok(done));
    swapped += done->aside;
    EXPECT_TRUE(done->aside == 0 || done->why_aside.find("it has a second link") != std::string::npos);
    EXPECT_TRUE(same_bytes(bytes_of(victim), whole)) << "before look " << n;
  }
  EXPECT_GE(swapped, 2u);
}

// Its owner may give others rights after the look at it; or a stranger's file may get the number of one that has gone.
TEST_F(RecoverDistrusts, AJournalThatAnybodyMayWriteToWhenItIsOpened) {
  size_t n = 0;
  for (bool more = true; more; ++n) {
    SCOPED_TRACE(n);
    put_bytes(path, old);
    std::filesystem::remove_all(folder());
    const std::string journal = leave(changes, true);
    testing::FaultEnv opens(os::Env::posix());
    more = false;
    opens.before_open = [&, left = n](std::string_view name, int) mutable {
      if (!journal.ends_with(name) || left-- != 0) return 0;
      more = true;
      return ::chmod(journal.c_str(), 0666);
    };
    const auto done = recover(opens);
    ASSERT_TRUE(is_ok(done));
    EXPECT_EQ(done->aside, more ? 1u : 0u) << done->why_aside;
    EXPECT_EQ(bytes_of(path) == old, more);
  }
  EXPECT_GT(n, 1u);
}

TEST_F(RecoverDistrusts, AJournalWhoseNameAlwaysLeadsElsewhere) {
  const std::string journal = leave(changes, true);
  testing::FaultEnv swaps(os::Env::posix());
  swaps.before_open = [&](std::string_view name, int) {
    if (!journal.ends_with(name)) return 0;
    std::filesystem::copy_file(journal, journal + ".copy");
    std::filesystem::rename(journal + ".copy", journal);
    return 0;
  };
  const auto done = recover(swaps);
  ASSERT_TRUE(is_ok(done));
  EXPECT_THAT(done->why_aside, ::testing::HasSubstr("other files take its name"));
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
}

TEST_F(RecoverDistrusts, ATamperedPayload) {
  const std::string journal = leave(changes, true);
  flip(journal, ranges_of(journal)[1].payload + 10006);
  expect_aside(journal, "payload is damaged");
}

TEST_F(RecoverDistrusts, ATamperedTableOfHashes) {
  const std::string journal = leave(changes, true);
  // A hash of a sector that was written already, so that only the table's own hash tells.
  poke(path, b_at, changes[1].bytes);
  flip(journal, ranges_of(journal)[1].sectors + 8);
  expect_aside(journal, "table of hashes is damaged");
}

TEST_F(RecoverDistrusts, ATamperedManifest) {
  const std::string journal = leave(changes, true);
  flip(journal, record_of(journal).manifest + 3);  // where a range lies
  expect_aside(journal, "manifest is damaged: a range lies outside");
  std::filesystem::remove_all(folder());
  put_bytes(path, old);
  const std::string second = leave(changes, true);
  flip(second, record_of(second).manifest + 24);  // the hash of its payload
  expect_aside(second, "manifest is damaged");
}

// Its writer is dead; but the file's owner may still write to it, while somebody with more rights recovers.
TEST_F(RecoverDistrusts, AJournalThatChangesWhileItIsLookedAt) {
  size_t applied = 0, refused = 0;
  for (size_t n = 0;; ++n) {
    std::filesystem::remove_all(folder());
    put_bytes(path, old);
    const std::string journal = leave(changes, true);
    testing::FaultEnv faulty(env);
    size_t reads = 0;
    faulty.before = [&](testing::Call call) {
      if (call == testing::Call::pread && reads++ == n)
        forge(journal, [](auto &, auto &r) { r[0] = {8, 4000, r[0].payload, r[0].payload_hash, r[0].sectors, 0}; });
      return 0;
    };
    const auto done = recover(faulty);
    faulty.before = nullptr;
    EXPECT_TRUE(same_bytes(bytes_of(path).substr(0, data_offset), old.substr(0, data_offset))) << n;
    if (!done) {
      EXPECT_TRUE(testing::fails_with(Status::journal, done)) << n;
      ++refused;
    }
    applied += done && done->applied == 1;
    if (reads <= n) break;
  }
  EXPECT_GT(applied, 0u);
  EXPECT_GT(refused, 0u);
}

// The list is read three times; what was taken for the ranges of the first time must hold those of the others.
TEST_F(RecoverDistrusts, AJournalWhoseRangesGrowWhileItIsLookedAt) {
  constexpr uint64_t large = uint64_t{1} << 20;
  const std::string whole = testing::file_of({testing::u8_tensor("t", 2 * large, 1)});
  const uint64_t at = 8 + load_u64le(whole.data());
  for (const uint64_t record : {uint64_t{0}, undo_record, one_flush_record}) {
    flags = record;
    size_t ended = 0;
    for (size_t n = 0;; ++n) {
      std::filesystem::remove_all(folder());
      put_bytes(path, whole);
      const std::string journal = leave({{at, pattern(16, 51)}}, true);
      if (record == undo_record) poke(path, at, pattern(16, 51));
      std::filesystem::resize_file(journal, 4 * large);
      testing::FaultEnv faulty(env);
      size_t reads = 0;
      faulty.before = [&](testing::Call call) {
        if (call == testing::Call::pread && reads++ == n) forge(journal, [](auto &, auto &r) { r[0].length = large; });
        return 0;
      };
      ended += recover(faulty).has_value();
      faulty.before = nullptr;
      if (reads <= n) break;
    }
    EXPECT_GT(ended, 0u) << record;
  }
}

TEST_F(RecoverDistrusts, ATamperedCommitRecord) {
  for (uint64_t at : {0u, 20u, 60u, 95u}) {
    const std::string journal = leave(changes, true);
    flip(journal, at);
    ASSERT_NO_FATAL_FAILURE(expect_aside(journal, "commit record is damaged"));
    std::filesystem::remove_all(folder());
  }
}

TEST_F(RecoverDistrusts, ATruncatedJournal) {
  const std::string whole = leave(changes, true);
  const uint64_t manifest = record_of(whole).manifest;
  std::filesystem::remove_all(folder());
  for (uint64_t size : {uint64_t{4096}, manifest - 1, manifest + 10}) {
    const std::string journal = leave(changes, true);
    std::filesystem::resize_file(journal, size);
    ASSERT_NO_FATAL_FAILURE(expect_aside(journal, "manifest lies outside"));
    std::filesystem::remove_all(folder());
  }
}

TEST_F(RecoverDistrusts, ForgedRangesAndNumbers) {
  const std::pair<const char *, std::function<void(CommitRecord &, std::vector<RangeRecord> &)>> forgeries[] = {
      {"into the header", [](auto &, auto &r) { r[0].offset = 8; }},
      {"beyond the file", [this](auto &, auto &r) { r[1].offset = old.size() - 5; }},
      {"wrapping", [](auto &, auto &r) { r[0].length = UINT64_MAX - 100; }},
      {"payload outside the journal", [](auto &, auto &r) { r[0].payload = uint64_t{1} << 40; }},
      {"hashes outside the journal", [](auto &, auto &r) { r[0].sectors = uint64_t{1} << 40; }},
      {"overlapping", [](auto &, auto &r) { r[1] = r[0]; }},
      {"a manifest beyond the journal", [](auto &c, auto &) { c.manifest = uint64_t{1} << 50; }},
      {"more ranges than fit", [](auto &c, auto &) { c.ranges = UINT64_MAX / 2; }},
      {"ranges whose size wraps to nothing", [](auto &c, auto &) { c.ranges = uint64_t{1} << 60; }},
  };
  for (const auto &[what, forgery] : forgeries) {
    SCOPED_TRACE(what);
    const std::string journal = leave(changes, true);
    forge(journal, forgery);
    ASSERT_NO_FATAL_FAILURE(expect_aside(journal, "was not applied"));
    std::filesystem::remove_all(folder());
  }
}

TEST_F(RecoverDistrusts, AJournalWithASecondLink) {
  const std::string journal = leave(changes, true);
  std::filesystem::create_hard_link(journal, dir / "link");
  expect_aside(journal, "second link");
}

TEST_F(RecoverDistrusts, AJournalThatAnybodyMayWriteTo) {
  const std::string journal = leave(changes, true);
  ASSERT_EQ(::chmod(journal.c_str(), 0666), 0);
  expect_aside(journal, "anybody may write");
}

TEST_F(RecoverDistrusts, NoJournalForRightsThatTheFileGives) {
  const std::string journal = leave(changes, true);
  for (const std::string &each : {path, folder(), journal}) ASSERT_EQ(::chmod(each.c_str(), 0777), 0);
  const auto done = recover();
  ASSERT_TRUE(is_ok(done));
  EXPECT_EQ(done->applied, 1u);
  EXPECT_TRUE(same_bytes(std::string_view(bytes_of(path)).substr(a_at, 4000), changes[0].bytes));
}

// A part says which file's folder has the decision. What lies there may be the journal of a living writer, which has
// not come to its record.
TEST_F(RecoverDistrusts, APartThatCallsAnothersJournalItsDecision) {
  const std::string other = dir / "other.safetensors";
  put_bytes(other, old);
  for (const uint64_t flags : {part_record, part_record | done_record}) {
    SCOPED_TRACE(flags);
    const auto living = make_journal(changes, false, other);
    ASSERT_TRUE(living);
    const std::string forged = leave({changes[0]}, true);
    CommitRecord record = record_of(forged);
    record.flags = flags;
    record.transaction = *transaction_of(living->name());
    record.super_of = "other.safetensors";
    const auto block = encode(record);
    poke(forged, 0, {reinterpret_cast<const char *>(block.data()), block.size()});
    testing::FaultEnv beside(env);
    size_t written = 0;
    beside.before = [&](testing::Call call) {
      const bool is_first = call == testing::Call::pwrite && written++ == 0;
      return is_first && !is_ok(living->commit()) ? -EIO : 0;
    };
    EXPECT_TRUE(is_ok(recover(beside)));
    EXPECT_GT(written, 0u);
    record_of(other + ".st-journal/" + living->name());  // is there
    std::filesystem::remove_all(folder());
    std::filesystem::remove_all(other + ".st-journal");
  }
}

TEST_F(RecoverDistrusts, AJournalOfSomebodyElse) {
  const std::string journal = leave(changes, true);
  if (::chown(journal.c_str(), testing::somebody, static_cast<gid_t>(-1)) != 0)
    GTEST_SKIP() << "only root can give a file away";
  expect_aside(journal, "belongs to user 4242");
}

TEST_F(RecoverDistrusts, NotAJournalOfTheFilesOwner) {
  const std::string journal = leave(changes, true);
  for (const std::string &p : {journal, folder(), path})
    if (::chown(p.c_str(), testing::somebody, static_cast<gid_t>(-1)) != 0)
      GTEST_SKIP() << "only root can give a file away";
  EXPECT_EQ(recover().value().applied, 1u);
  EXPECT_TRUE(same_bytes(bytes_of(path), with(changes)));
}

TEST_F(RecoverDistrusts, ALinkAPipeAndAFolder) {
  std::filesystem::create_directory(folder());
  const std::string journal = folder() + "/0123456789abcdef";
  std::filesystem::create_symlink(path, journal);
  ASSERT_NO_FATAL_FAILURE(expect_aside(journal, "no plain file"));
  std::filesystem::remove_all(folder());
  std::filesystem::create_directory(folder());
  ASSERT_EQ(::mkfifo(journal.c_str(), 0600), 0);  // and opening it would hang
  ASSERT_NO_FATAL_FAILURE(expect_aside(journal, "no plain file"));
  std::filesystem::remove_all(folder());
  std::filesystem::create_directories(journal);
  ASSERT_NO_FATAL_FAILURE(expect_aside(journal, "no plain file"));
}

// Whose folder it is may be moved to where journals belong, with all that is in it, by the owner of the folder around.
TEST_F(RecoverDistrusts, WhatHasNoJournalsNameIsNeitherEmptiedNorRemoved) {
  const std::string image = std::string(header_bytes, '\0') + pattern(5000, 3);
  const std::pair<const char *, std::string> files[] = {
      {"disk.img", image}, {"marker", ""}, {"notes.gone", "mine"}, {"0123456789abcdef.gone.gone", image}};
  const std::function<void()> looks[] = {
      [&] { EXPECT_TRUE(is_ok(recover())); },
      [&] { EXPECT_TRUE(is_ok(recover())); },
      [&] {
        struct stat s;
        ASSERT_EQ(::stat(path.c_str(), &s), 0);
        const auto opened = Folder::open(testing::located(env, path), s, {});
        ASSERT_TRUE(is_ok(opened));
        EXPECT_EQ(drop_idle(**opened, s, {}), 0u);
        static_cast<void>(settle_hot_journals(**opened, s, {}));
      },
  };
  for (const auto &look : looks) {
    std::filesystem::remove_all(folder());
    std::filesystem::create_directory(folder());
    for (const auto &[name, bytes] : files) put_bytes(folder() + "/" + name, bytes);
    look();
    for (const auto &[name, bytes] : files) {
      const std::string at = folder() + "/" + name;
      EXPECT_TRUE(same_bytes(bytes_of(std::filesystem::exists(at) ? at : at + ".bad"), bytes)) << name;
    }
  }
}

// On NFS, and by libfuse, a file that is removed has another name until nobody has it open.
TEST_F(RecoverDistrusts, ButNoJournalThatIsRemovedAndOpenStill) {
  for (const char *name :
       {".nfs0000000001a2b3c400000001", ".fuse_hidden0000002600000012", ".smb0000000000a1b2c300000001", ".__afs1A2B"}) {
    SCOPED_TRACE(name);
    std::filesystem::rename(leave(changes, false), folder() + "/" + name);
    const auto done = recover();
    ASSERT_TRUE(is_ok(done));
    EXPECT_EQ(done->aside, 0u) << done->why_aside;
    EXPECT_FALSE(std::filesystem::exists(folder()));
  }
}

TEST_F(RecoverDistrusts, AFileOfRubbish) {
  const std::string name = "0123456789abcdef", damaged = "commit record is damaged";
  for (const auto &[called, bytes, why] : {std::tuple(name, pattern(10000, 1), damaged),
                                           {name, "x", damaged},
                                           {"rubbish", "x", "it has no journal's name"}}) {
    std::filesystem::create_directory(folder());
    const std::string journal = folder() + "/" + called;
    put_bytes(journal, bytes);
    ASSERT_NO_FATAL_FAILURE(expect_aside(journal, why));
    std::filesystem::remove_all(folder());
  }
}

TEST_F(RecoverDistrusts, ButStillFinishesTheGoodOnes) {
  const std::string bad = leave({changes[0]}, true), good = leave({changes[1]}, true);
  flip(bad, 50);
  auto r = recover();
  ASSERT_TRUE(is_ok(r));
  EXPECT_EQ(r->aside, 1u);
  EXPECT_EQ(r->applied, 1u);
  EXPECT_TRUE(same_bytes(bytes_of(path), with({changes[1]})));
  EXPECT_EQ(testing::names_in(folder()).size(), 1u);
}

TEST_F(RecoverDistrusts, AnEmptyFileIsDropped) {
  std::filesystem::create_directory(folder());
  put_bytes(folder() + "/0123456789abcdef", "");
  EXPECT_EQ(recover().value().dropped, 1u);
  EXPECT_FALSE(std::filesystem::exists(folder()));
}

TEST_F(RecoverDistrusts, AndWhatCannotBeMovedAsideStaysForTheNext) {
  const std::string journal = leave(changes, true);
  flip(journal, 20);
  testing::FaultEnv faulty(env);
  faulty.before = [](testing::Call call) { return call == testing::Call::renameat ? -EIO : 0; };
  EXPECT_TRUE(testing::fails_with(Status::io, recover(faulty)));
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
  ASSERT_NO_FATAL_FAILURE(expect_aside(journal, "damaged"));
}

// Where anybody may write, anybody may have put it there.
TEST_F(RecoverDistrusts, AFolderInAPublicPlaceAndTells) {
  const std::string journal = leave(changes, true);
  ASSERT_EQ(::chmod(dir.path().c_str(), 01777), 0);
  ASSERT_EQ(::chmod(folder().c_str(), 0702), 0);
  ASSERT_TRUE(is_ok(recover()));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].level, LogLevel::error);
  EXPECT_NE(found[0].message.find("passed over"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(journal));
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
}

TEST_F(RecoverDistrusts, NothingInAPublicPlaceInWhichNoJournalCanWait) {
  namespace fs = std::filesystem;
  put_bytes(path, old);
  ASSERT_EQ(::chmod(dir.path().c_str(), 01777), 0);
  const std::function<void()> plants[] = {[&] { put_bytes(folder(), ""); }, [&] { fs::create_symlink("x", folder()); },
                                          [&] { fs::create_directory(folder()), ::chmod(folder().c_str(), 0777); }};
  for (const auto &plant : plants) {
    plant();
    ASSERT_TRUE(is_ok(recover()));
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].level, LogLevel::warning) << found[0].message;
    fs::remove(folder());
  }
}

TEST_F(RecoverDistrusts, AFolderOfAStrangersInAPublicPlaceIsNoErrorWhereNothingWaits) {
  const std::string journal = leave(changes, true);
  ASSERT_EQ(::chmod(dir.path().c_str(), 01777), 0);
  if (::chown(folder().c_str(), testing::somebody, static_cast<gid_t>(-1)) != 0)
    GTEST_SKIP() << "only root can give a folder away";
  ASSERT_TRUE(is_ok(recover()));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].level, LogLevel::error);
  poke(journal, 0, std::string(512, '\0'));
  ASSERT_TRUE(is_ok(recover()));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].level, LogLevel::warning);
  EXPECT_TRUE(found[0].message.starts_with("nothing waits to be recovered, but ")) << found[0].message;
}

}  // namespace
}  // namespace st::write
