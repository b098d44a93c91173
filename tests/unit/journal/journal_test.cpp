// One journal: made so that nobody else can take it, filled, committed, emptied.
#include <cstring>
#include <functional>

#include "crash_scene.h"
#include "fault_env.h"
#include "journal/old_bytes.h"
#include "journal/super_journal.h"
#include "sim_env.h"

namespace st::write {
namespace {

using namespace testing;
using testing::Call;

class JournalTest : public ::testing::Test {
 protected:
  os::File open_dir(os::Env &with) {
    auto opened = os::File::open(with, AT_FDCWD, place.path(), O_RDONLY | O_DIRECTORY, 0, place.path());
    EXPECT_TRUE(is_ok(opened));
    return std::move(*opened);
  }
  std::unique_ptr<Journal> create() {
    auto journal = Journal::create(folder, {});
    EXPECT_TRUE(is_ok(journal));
    (*journal)->begin();
    return std::move(*journal);
  }
  std::string path_of(const Journal &journal) const { return place / journal.name(); }
  JournalState state(const Journal &journal, CommitRecord *record) const {
    const std::string bytes = bytes_of(path_of(journal));
    return decode({reinterpret_cast<const std::byte *>(bytes.data()), std::min<size_t>(bytes.size(), header_bytes)},
                  record);
  }
  std::string payload(const Journal &journal, const Payload &p) const {
    return bytes_of(path_of(journal)).substr(p.offset, p.length);
  }

  TempDir place;
  FaultEnv env{os::Env::posix()};
  os::File folder = open_dir(env);
};

TEST_F(JournalTest, IsNewLockedAndPrivate) {
  auto journal = create();
  EXPECT_EQ(journal->name().size(), 16u);
  EXPECT_EQ(journal->name().find_first_not_of("0123456789abcdef"), std::string::npos);
  struct stat s;
  ASSERT_EQ(::stat(path_of(*journal).c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0600u);
  EXPECT_EQ(s.st_nlink, 1u);
  auto other = os::File::open(env, AT_FDCWD, path_of(*journal), O_RDWR, 0, "j");
  EXPECT_TRUE(fails_with(Status::busy, os::RangeLock::acquire(*other, {{0, 0, true}}, {})));
  journal.reset();
  EXPECT_TRUE(is_ok(os::RangeLock::acquire(*other, {{0, 0, true}}, {})));
}

// On GlusterFS the cache of this kernel has nothing of what a journal wrote.
TEST_F(JournalTest, WhatWentPastTheCacheIsReadBackWithoutTheServer) {
  struct Client : FaultEnv {
    using FaultEnv::FaultEnv;
    int set_direct(int) override { return 0; }
  } client{os::Env::posix()};
  folder = open_dir(client);
  folder.read_past_cache(os::PastCache::by_length);
  auto journal = create();
  const std::string small = pattern(100, 1), large = pattern((size_t{2} << 20) + 9, 2),
                    other = pattern(large.size(), 3);
  const auto preads = [&] { return std::count(client.calls.begin(), client.calls.end(), Call::pread); };
  const auto holds = [&](const Payload &p, const std::string &wanted) {
    std::string got(wanted.size(), '?');
    EXPECT_TRUE(is_ok(journal->read(got.data(), got.size(), p.offset)));
    return same_bytes(got, wanted);
  };
  journal->keep_own_bytes();
  auto first = journal->append(small.data(), small.size(), {});
  auto second = journal->append(large.data(), large.size(), {});
  ASSERT_TRUE(is_ok(first) && is_ok(second));
  EXPECT_TRUE(holds(*first, small));
  EXPECT_TRUE(holds(*second, large));
  auto third = journal->overwrite(*second, other.data(), {});
  ASSERT_TRUE(is_ok(third));
  EXPECT_TRUE(holds(*third, other));
  EXPECT_EQ(payload(*journal, *third), other);
  EXPECT_EQ(preads(), 0);
  // What may be half written is asked for.
  int left = 1;
  client.before = [&](Call call) { return call == Call::pwrite && left-- == 0 ? -EIO : 0; };
  EXPECT_TRUE(fails_with(Status::io, journal->overwrite(*third, large.data(), {})));
  client.before = nullptr;
  const std::string torn = payload(*journal, *third);
  EXPECT_FALSE(torn == other);
  EXPECT_TRUE(holds(*third, torn));
  EXPECT_GT(preads(), 0);
  // More than is kept, and another transaction.
  const std::string long_one = pattern(size_t{17} << 20, 4);
  journal->begin();
  journal->keep_own_bytes();
  for (const std::string *bytes : {&long_one, &large}) {
    auto p = journal->append(bytes->data(), bytes->size(), {});
    ASSERT_TRUE(is_ok(p));
    EXPECT_TRUE(holds(*p, *bytes));
  }
  journal.reset();
  folder = open_dir(env);  // of `client`, which ends here
}

TEST_F(JournalTest, TakesAnotherNameWhereOneIsTaken) {
  class SameTwice : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    int random(void *out, size_t n) override {
      std::memset(out, calls_made++ < 3 ? 0x11 : 0x22, n);
      return static_cast<int>(n);
    }
    int calls_made = 0;
  } random{os::Env::posix()};
  const os::File dir = open_dir(random);
  testing::put_bytes(place / "1111111111111111", "somebody's");
  auto journal = Journal::create(dir, {});
  ASSERT_TRUE(is_ok(journal));
  EXPECT_EQ((*journal)->name(), "2222222222222222");
  EXPECT_TRUE(same_bytes(bytes_of(place / "1111111111111111"), "somebody's"));
}

TEST_F(JournalTest, FollowsNoLinkThatWaitsUnderItsName) {
  class Fixed : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    int random(void *out, size_t n) override { return std::memset(out, 0x11, n), static_cast<int>(n); }
  } random{os::Env::posix()};
  const os::File dir = open_dir(random);
  std::filesystem::create_symlink(place / "victim", place / "1111111111111111");
  auto journal = Journal::create(dir, {});
  EXPECT_FALSE(journal);  // every try meets the link
  EXPECT_FALSE(std::filesystem::exists(place / "victim"));
}

// A recoverer may see the new file before it is locked, and remove it.
TEST_F(JournalTest, IsMadeAnewIfARecovererTookItForAHotJournal) {
  class Recoverer : public FaultEnv {
   public:
    using FaultEnv::FaultEnv;
    int openat(int dir, const char *path, int flags, mode_t mode) override {
      const int fd = FaultEnv::openat(dir, path, flags, mode);
      if (flags & O_CREAT && removed < 3) ++removed, os::Env::posix().unlinkat(dir, path, 0);
      return fd;
    }
    int removed = 0;
  } recoverer{os::Env::posix()};
  const os::File dir = open_dir(recoverer);
  auto journal = Journal::create(dir, {});
  ASSERT_TRUE(is_ok(journal));
  EXPECT_EQ(recoverer.removed, 3);
  EXPECT_EQ(names_in(place.path()), std::vector<std::string>{(*journal)->name()});
}

TEST_F(JournalTest, AVanishedFolderIsNoFile) {
  std::filesystem::remove(place.path());
  auto journal = Journal::create(folder, {});
  ASSERT_TRUE(fails_with(Status::no_file, journal));
  EXPECT_EQ(journal.error().os_errno, ENOENT);
}

TEST_F(JournalTest, HoldsPayloadsOfEverySize) {
  auto journal = create();
  std::vector<std::pair<Payload, std::string>> all;
  for (size_t n : {1u, 7u, 8u, 4096u, 100'000u, 262'143u, 262'144u, 3'000'001u, 5u}) {
    const std::string bytes = pattern(n, static_cast<unsigned>(n));
    auto p = journal->append(bytes.data(), n, {});
    ASSERT_TRUE(is_ok(p));
    EXPECT_EQ(p->length, n);
    EXPECT_EQ(p->hash, hash64(bytes.data(), n));
    EXPECT_EQ(p->offset % 8, 0u);
    all.emplace_back(*p, bytes);
  }
  ASSERT_TRUE(is_ok(journal->seal({}, {})));
  uint64_t end = header_bytes;
  for (const auto &[p, bytes] : all) {
    EXPECT_GE(p.offset, end);  // none upon another
    end = p.offset + p.length;
    EXPECT_TRUE(same_bytes(payload(*journal, p), bytes)) << bytes.size();
    std::string back(bytes.size(), '?');
    ASSERT_TRUE(is_ok(journal->read(back.data(), back.size(), p.offset)));
    EXPECT_TRUE(same_bytes(back, bytes));
  }
}

TEST_F(JournalTest, APayloadMayBeReplacedByAnotherOfItsSize) {
  auto journal = create();
  for (size_t n : {100u, 300'000u}) {
    const std::string first = pattern(n, 1), second = pattern(n, 2), next = pattern(50, 3);
    auto p = journal->append(first.data(), n, {});
    auto q = journal->append(next.data(), next.size(), {});
    auto replaced = journal->overwrite(*p, second.data(), {});
    ASSERT_TRUE(is_ok(replaced));
    EXPECT_EQ(replaced->offset, p->offset);
    EXPECT_EQ(replaced->hash, hash64(second.data(), n));
    ASSERT_TRUE(is_ok(journal->seal({}, {})));
    EXPECT_TRUE(same_bytes(payload(*journal, *replaced), second));
    EXPECT_TRUE(same_bytes(payload(*journal, *q), next));
    journal->begin();
  }
}

TEST_F(JournalTest, IsEmptyUntilCommittedAndEmptyOnceRetired) {
  testing::put_bytes(place / "data", pattern(10000, 1));
  auto data = os::File::open(env, AT_FDCWD, place / "data", O_RDWR, 0, "data");
  auto journal = create();
  CommitRecord record;
  for (unsigned round = 1; round <= 3; ++round) {  // and it can be used again
    journal->begin();
    const std::string bytes = pattern(1000 / round, round);
    auto p = journal->append(bytes.data(), bytes.size(), {});
    ASSERT_TRUE(is_ok(p));
    OldBytes old_bytes(*data);
    auto range = journal->record_old(old_bytes, 3000, *p);
    ASSERT_TRUE(is_ok(range));
    const Identity identity{1, 2, 3, round};
    ASSERT_TRUE(is_ok(journal->seal(identity, {*range})));
    ASSERT_TRUE(is_ok(journal->sync_payload(folder)));
    EXPECT_EQ(state(*journal, &record), JournalState::empty);
    ASSERT_TRUE(is_ok(journal->commit()));
    ASSERT_EQ(state(*journal, &record), JournalState::committed);
    EXPECT_EQ(record.identity, identity);
    ASSERT_EQ(record.ranges, 1u);
    const std::string whole = bytes_of(path_of(*journal));
    const std::span manifest(reinterpret_cast<const std::byte *>(whole.data()) + record.manifest, range_record_bytes);
    EXPECT_EQ(hash64(manifest.data(), manifest.size()), record.manifest_hash);
    const RangeRecord back = decode_ranges(manifest)[0];
    EXPECT_EQ(back.offset, 3000u);
    EXPECT_EQ(whole.substr(back.payload, back.length), bytes);
    EXPECT_EQ(back.payload_hash, hash64(bytes.data(), bytes.size()));
    std::vector<uint32_t> old_hashes;
    const std::string old = pattern(10000, 1).substr(3000, bytes.size());
    hash_sectors(3000, {reinterpret_cast<const std::byte *>(old.data()), old.size()}, &old_hashes);
    EXPECT_EQ(std::memcmp(whole.data() + back.sectors, old_hashes.data(), old_hashes.size() * 4), 0);
    EXPECT_EQ(back.sectors_hash, hash64(old_hashes.data(), old_hashes.size() * 4));
    ASSERT_TRUE(is_ok(journal->invalidate()));
    EXPECT_EQ(state(*journal, &record), JournalState::empty);
  }
}

// What recovery would not read must not be promised.
TEST_F(JournalTest, ASuperJournalIsNoLongerThanRecoveryReads) {
  auto journal = create();
  const std::vector<std::byte> longest(longest_super_list), longer(longest_super_list + 1);
  EXPECT_TRUE(fails_with(Status::unsupported, journal->seal_super({}, longer, 1)));
  EXPECT_TRUE(is_ok(journal->seal_super({}, longest, 1)));
}

TEST_F(JournalTest, SyncsTheFolderOnceAndTheDataEachTime) {
  auto journal = create();
  env.calls.clear();
  ASSERT_TRUE(is_ok(journal->seal({}, {})));
  ASSERT_TRUE(is_ok(journal->sync_payload(folder)));
  ASSERT_TRUE(is_ok(journal->sync_payload(folder)));
  EXPECT_EQ(std::count(env.calls.begin(), env.calls.end(), Call::fdatasync), 2);
  EXPECT_EQ(std::count(env.calls.begin(), env.calls.end(), Call::fsync), 1);
}

// Others tell by its lock whether there may be a record in it on the disk.
TEST_F(JournalTest, IsLockedExclusivelyAsLongAsARecordMayBeInIt) {
  auto journal = create();
  auto other = os::File::open(env, folder.fd(), journal->name(), O_RDWR, 0, journal->name());
  ASSERT_TRUE(is_ok(other));
  const auto locked = [&] {
    EXPECT_TRUE(os::is_locked(*other, os::whole_file(true)).value());
    return os::is_locked(*other, os::whole_file(false)).value() ? "exclusively" : "shared";
  };
  EXPECT_STREQ(locked(), "shared");
  ASSERT_TRUE(is_ok(journal->seal({}, {})));
  ASSERT_TRUE(is_ok(journal->sync_payload(folder)));
  EXPECT_STREQ(locked(), "shared");
  const char *at_write = "", *at_sync = "";
  env.before = [&](Call call) {
    if (call == Call::pwrite) at_write = locked();
    if (call == Call::fdatasync) at_sync = locked();
    return 0;
  };
  ASSERT_TRUE(is_ok(journal->commit()));
  EXPECT_STREQ(at_write, "exclusively");
  at_sync = "";
  ASSERT_TRUE(is_ok(journal->invalidate()));
  EXPECT_STREQ(at_sync, "exclusively");
  env.before = nullptr;
  EXPECT_STREQ(locked(), "shared");
  ASSERT_TRUE(is_ok(journal->seal_part({}, {}, 1, "index")));
  ASSERT_TRUE(is_ok(journal->commit()));
  ASSERT_TRUE(is_ok(journal->finish()));
  EXPECT_STREQ(locked(), "exclusively");
  journal->settle(true);
  EXPECT_STREQ(locked(), "shared");
}

// Its server has given the lock to another host, which has not renamed it yet.
TEST_F(JournalTest, HasNoRecordIfAnotherHasLockedIt) {
  auto journal = create();
  ASSERT_TRUE(is_ok(journal->seal({}, {})));
  ASSERT_TRUE(is_ok(journal->sync_payload(folder)));
  struct flock all = {};
  all.l_type = F_UNLCK;
  all.l_whence = SEEK_SET;
  ASSERT_EQ(env.lock(journal->file().fd(), F_OFD_SETLK, &all), 0);
  auto other = os::File::open(env, folder.fd(), journal->name(), O_RDWR, 0, journal->name());
  const auto taken = os::RangeLock::acquire(*other, {os::whole_file(true)}, {});
  ASSERT_TRUE(is_ok(taken));
  EXPECT_TRUE(fails_with(Status::file_changed, journal->commit()));
  EXPECT_FALSE(journal->committed());
  CommitRecord record;
  EXPECT_EQ(state(*journal, &record), JournalState::empty);
}

// As move_all_aside() locks one whose file is gone.
TEST_F(JournalTest, HasNoRecordIfAProgramOfThisMachineHasLockedItAndBlamesNoOtherHost) {
  auto journal = create();
  ASSERT_TRUE(is_ok(journal->seal({}, {})));
  ASSERT_TRUE(is_ok(journal->sync_payload(folder)));
  auto other = os::File::open(env, folder.fd(), journal->name(), O_RDWR, 0, journal->name());
  const auto taken = os::RangeLock::acquire(*other, {os::whole_file(false)}, {});
  ASSERT_TRUE(is_ok(taken));
  const auto refused = journal->commit();
  ASSERT_TRUE(fails_with(Status::file_changed, refused));
  EXPECT_NE(refused.error().message.find("another program"), std::string::npos) << refused.error().message;
}

TEST_F(JournalTest, AFullDiskShowsBeforeAnythingIsPromised) {
  auto journal = create();
  env.before = [](Call call) { return call == Call::fallocate ? -ENOSPC : 0; };
  const std::string bytes = pattern(1000, 1);
  auto r = journal->append(bytes.data(), bytes.size(), {});
  ASSERT_TRUE(fails_with(Status::no_space, r));
  EXPECT_EQ(r.error().os_errno, ENOSPC);
}

// ext4 keeps what it found before it ran out.
TEST_F(JournalTest, AFullDiskIsNotLeftFullerThanItWas) {
  auto journal = create();
  const std::string bytes = pattern(1000, 1);
  ASSERT_TRUE(is_ok(journal->append(bytes.data(), bytes.size(), {})));
  const int scratch = env.openat(folder.fd(), "scratch", O_RDWR | O_CREAT, 0600);
  ASSERT_GE(scratch, 0);
  const int can_reserve = env.fallocate(scratch, 0, 0, 4096);
  env.close(scratch);
  if (can_reserve < 0) GTEST_SKIP() << "no space is reserved here: errno " << -can_reserve;
  ASSERT_GT(journal->allocated(), 0u);
  const auto reserved = journal->file().stat();
  ASSERT_TRUE(is_ok(reserved));
  env.before = [&](Call call) {
    if (call != Call::fallocate) return 0;
    EXPECT_EQ(env.ftruncate(journal->file().fd(), 64 << 20), 0);
    return -ENOSPC;
  };
  const std::string large = pattern(300'000, 1);
  ASSERT_TRUE(fails_with(Status::no_space, journal->append(large.data(), large.size(), {})));
  const auto left = journal->file().stat();
  ASSERT_TRUE(is_ok(left));
  EXPECT_EQ(left->st_size, reserved->st_size);
  env.before = nullptr;
  const auto next = journal->append(bytes.data(), bytes.size(), {});
  ASSERT_TRUE(is_ok(next));
  ASSERT_TRUE(is_ok(journal->seal({}, {})));
  EXPECT_TRUE(same_bytes(payload(*journal, *next), bytes));
}

// Where space cannot be reserved, writing it takes it: all of it before the
// commit, whose own block must not be the one that finds the disk full.
TEST_F(JournalTest, WithoutFallocateItsSpaceIsTakenBeforeTheCommit) {
  for (int error : {EOPNOTSUPP, ENOSYS, EINVAL}) {
    auto journal = create();
    env.before = [&](Call call) { return call == Call::fallocate ? -error : 0; };
    const std::string bytes = pattern(300'000, 1);
    auto p = journal->append(bytes.data(), bytes.size(), {});
    ASSERT_TRUE(is_ok(p));
    ASSERT_TRUE(is_ok(journal->seal({}, {})));
    ASSERT_TRUE(is_ok(journal->sync_payload(folder)));
    EXPECT_TRUE(same_bytes(payload(*journal, *p), bytes));
    const os::File file = std::move(*os::File::open(os::Env::posix(), AT_FDCWD, path_of(*journal), O_RDONLY, 0, "j"));
    EXPECT_EQ(file.env().seek_hole(file.fd(), 0), static_cast<int64_t>(bytes_of(path_of(*journal)).size()))
        << "the journal has a hole";
    ASSERT_TRUE(is_ok(journal->commit()));
  }
}

TEST_F(JournalTest, StagingCanBeCancelledAndInterrupted) {
  auto journal = create();
  const std::string bytes = pattern(4 << 20, 1);
  const Control cancel([](uint64_t done, uint64_t) { return done < (2 << 20); }, nullptr);
  EXPECT_TRUE(fails_with(Status::cancelled, journal->append(bytes.data(), bytes.size(), cancel)));
  std::atomic<uint64_t> interrupts = 0;
  const Control interrupt({}, &interrupts);
  ++interrupts;
  EXPECT_TRUE(fails_with(Status::interrupted, journal->append(bytes.data(), 10, interrupt)));
  CommitRecord record;
  EXPECT_EQ(state(*journal, &record), JournalState::empty);
}

// Whatever a step needs of the disk, at whichever byte the tail that is kept in memory runs over: a step that met a
// failure says so, and only such a step fails.
TEST(JournalFaults, NoStepHidesAFailingCall) {
  constexpr uint64_t tail = uint64_t{256} << 10;  // kept in memory before it is written
  const std::string data_path = "/data", bytes = pattern(40000, 3), large = pattern(tail, 4), old = pattern(300000, 5);
  using Step = std::function<bool(Journal &, const os::File &data, const Payload &staged)>;
  const std::pair<const char *, Step> steps[] = {
      {"append",
       [&](Journal &j, const os::File &, const Payload &) { return j.append(bytes.data(), 9, {}).has_value(); }},
      {"append more than the tail",
       [&](Journal &j, const os::File &, const Payload &) { return j.append(large.data(), tail, {}).has_value(); }},
      {"overwrite",
       [&](Journal &j, const os::File &, const Payload &p) { return j.overwrite(p, large.data(), {}).has_value(); }},
      {"note_new", [&](Journal &j, const os::File &,
                       const Payload &) { return j.note_new(300, bytes.data(), 3000, {}).has_value(); }},
      {"note_staged",
       [&](Journal &j, const os::File &, const Payload &p) { return j.note_staged(300, p).has_value(); }},
      {"record_old",
       [&](Journal &j, const os::File &d, const Payload &p) {
         OldBytes old_bytes(d);
         return j.record_old(old_bytes, 300, p).has_value();
       }},
      {"save_old",
       [&](Journal &j, const os::File &d, const Payload &) { return j.save_old(d, 300, 100000, {}, 0).has_value(); }},
      {"save_old, sharing",
       [&](Journal &j, const os::File &d, const Payload &) { return j.save_old(d, 300, 30000, {}, 4096).has_value(); }},
      {"seal", [&](Journal &j, const os::File &,
                   const Payload &) { return j.seal({}, std::vector<RangeRecord>(3), 0).has_value(); }},
  };
  for (const auto &[name, step] : steps)
    for (const uint64_t gap : {1, 3, 9, 12, 40, 4000})
      for (const Call kind : {Call::pwrite, Call::pread, Call::fallocate, Call::clone_range})
        for (size_t n = 0;; ++n) {
          testing::SimEnv sim;
          sim.reflink = true;
          sim.add_file(data_path, old);
          FaultEnv env(sim);
          auto dir = os::File::open(env, AT_FDCWD, "/", O_RDONLY | O_DIRECTORY, 0, "/");
          auto data = os::File::open(env, AT_FDCWD, data_path, O_RDWR, 0, data_path);
          ASSERT_TRUE(dir && data);
          auto journal = Journal::create(*dir, {});
          ASSERT_TRUE(is_ok(journal));
          (*journal)->begin();
          const auto staged = (*journal)->append(large.data(), tail - gap, {});
          ASSERT_TRUE(is_ok(staged));
          bool hit = false;
          size_t calls = 0;
          env.before = [&](Call call) { return call == kind && calls++ == n ? hit = true, -EIO : 0; };
          const bool done = step(**journal, *data, *staged);
          EXPECT_EQ(done, !hit) << name << ", " << gap << " bytes before the tail is full, " << call_name(kind) << " "
                                << n;
          if (!hit) break;
        }
}

}  // namespace
}  // namespace st::write
