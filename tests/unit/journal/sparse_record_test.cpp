// Recovery of records that hold, of their ranges, only the elements that change.
#include "crash_scene.h"
#include "fault_env.h"
#include "journal/changes.h"
#include "journal/pieces.h"

namespace st::write {
namespace {

using namespace testing;

// Elements of two bytes, in tensor `b`, which begins at no sector.
class SparseRecord : public testing::CrashScene, public ::testing::WithParamInterface<uint64_t> {
 protected:
  static constexpr uint64_t begin = 40, length = 6000;  // of the range, in `b`
  static constexpr uint32_t width = 2;

  SparseRecord() {
    for (const uint32_t at : {40u, 42u, 600u, 1500u, 3002u, 6038u}) {
      places.push_back(at / width);
      fresh[b_at + at] = static_cast<char>(fresh[b_at + at] ^ 0x15);
      fresh[b_at + at + 1] = static_cast<char>(fresh[b_at + at + 1] ^ 0x51);
    }
  }
  std::vector<uint32_t> tables() const {
    std::vector<uint32_t> hashes;
    for (const std::string *bytes : {&old, &fresh})
      hash_sectors(b_at + begin, std::as_bytes(std::span(*bytes)).subspan(b_at + begin, length), &hashes);
    return hashes;
  }
  // The file has the old bytes. One dense range comes before, and one after. Answers the journal's path.
  // `leads_out`: what changes goes on behind the range.
  std::string leave(bool leads_out = false) {
    put_bytes(path, old);
    const std::vector<Change> dense = {{a_at, pattern(4000, 51)}, {c_at, pattern(3000, 52)}};
    for (const Change &c : dense) fresh.replace(c.offset, c.bytes.size(), c.bytes);
    auto data = os::File::open(env, AT_FDCWD, path, O_RDWR, 0, path).value();
    auto at = Folder::create(located(env, path), *data.stat()).value();
    auto journal = Journal::create(at.dir(), *data.stat()).value();
    journal->begin();
    const Payload first = journal->append(dense[0].bytes.data(), dense[0].bytes.size(), {}).value();
    const Payload last = journal->append(dense[1].bytes.data(), dense[1].bytes.size(), {}).value();
    RangeRecord range;
    range.offset = b_at + begin;
    range.length = length;
    std::vector<std::byte> packed(longest_changes(length));
    size_t next = 0;
    range.packed = pack_changes({std::as_bytes(std::span(fresh)).subspan(b_at, 10007), places, width}, begin, length,
                                &next, packed.data());
    if (leads_out) packed[range.packed - places.size() * width - 1] = std::byte{254};  // the last gap
    range.payload_hash = hash64(packed.data(), range.packed);
    const auto hashes = tables();
    const size_t half = hashes.size() / 2 * sizeof(uint32_t);
    range.sectors_hash = hash64(hashes.data(), half);
    range.fresh_hash = hash64(hashes.data() + hashes.size() / 2, half);
    OldBytes before(data);
    std::vector<RangeRecord> ranges = {journal->record_old(before, a_at, first).value()};
    ranges.push_back(
        journal->append_changes(range, packed.data(), reinterpret_cast<const std::byte *>(hashes.data())).value());
    ranges.push_back(journal->record_old(before, c_at, last).value());
    sparse = ranges[1];
    EXPECT_TRUE(journal->seal(identify(data).value(), ranges, sparse_record | GetParam()));
    EXPECT_TRUE(journal->sync_payload(at.dir()));
    EXPECT_TRUE(journal->commit());
    return folder() + "/" + journal->name();
  }
  void flip(const std::string &file, uint64_t at) const {
    poke(file, at, std::string(1, static_cast<char>(bytes_of(file)[at] ^ 0x40)));
  }
  void start_over() { std::filesystem::remove_all(folder()); }

  std::vector<uint32_t> places;
  std::string fresh = old;
  RangeRecord sparse;
};

TEST_P(SparseRecord, IsCarriedOutWhateverSectorsAreNewAlready) {
  for (const uint64_t step : {1, 2, 3, 100}) {
    ASSERT_NE(leave(), "");
    std::string mixed = old;
    for (uint64_t sector = 0; sector < old.size(); sector += step * sector_bytes) {
      const uint64_t n = std::min<uint64_t>(sector_bytes, old.size() - sector);
      mixed.replace(sector, n, fresh, sector, n);
    }
    put_bytes(path, mixed);
    auto r = recover();
    ASSERT_TRUE(is_ok(r));
    EXPECT_EQ(r->applied, 1u) << r->why_aside;
    EXPECT_TRUE(same_bytes(bytes_of(path), fresh));
    EXPECT_FALSE(std::filesystem::exists(folder()));
  }
}

// Also in a sector that is new already, where it changes nothing.
TEST_P(SparseRecord, IsNotTrustedWhereElementsThatStayAreOthers) {
  for (const bool is_new : {false, true})
    for (const uint64_t at : {b_at + 44, b_at + 1600, b_at + 6036}) {
      const std::string journal = leave();
      if (is_new) put_bytes(path, fresh);
      flip(path, at);
      ASSERT_NO_FATAL_FAILURE(expect_aside(journal, "neither the old nor the new"));
      start_over();
    }
}

TEST_P(SparseRecord, IsNotTrustedWhereElementsThatChangeAreNeitherOldNorNew) {
  for (const uint64_t at : {b_at + 40, b_at + 1501, b_at + 6038}) {
    const std::string journal = leave();
    flip(path, at);
    ASSERT_NO_FATAL_FAILURE(expect_aside(journal, "neither the old nor the new"));
    start_over();
  }
}

TEST_P(SparseRecord, LeavesBytesAloneThatAreInNoneOfItsRanges) {
  ASSERT_NE(leave(), "");
  for (const uint64_t at : {b_at + begin - 1, b_at + begin + length}) {
    flip(path, at);
    fresh[at] ^= 0x40;
  }
  ASSERT_EQ(recover().value().applied, 1u);
  EXPECT_TRUE(same_bytes(bytes_of(path), fresh));
}

// A record that shares its flush with the rest is dropped, as nothing was written; any other was promised.
TEST_P(SparseRecord, WithoutAPartOfItIsDroppedOrMovedAside) {
  leave();
  const uint64_t half = sparse.tables_bytes() / 2;
  for (const uint64_t offset : {uint64_t{0}, sparse.sectors - sparse.payload, sparse.sectors - sparse.payload + half})
    for (const bool is_new : {false, true}) {
      start_over();
      const std::string journal = leave();
      const std::string &bytes = is_new ? fresh : old;
      put_bytes(path, bytes);
      flip(journal, sparse.payload + offset);
      if (GetParam() == 0) {
        expect_aside(journal, "is damaged");
        continue;
      }
      auto r = recover();
      ASSERT_TRUE(is_ok(r));
      EXPECT_EQ(r->dropped, 1u) << r->why_aside;
      EXPECT_TRUE(same_bytes(bytes_of(path), bytes));
    }
}

TEST_P(SparseRecord, WithoutAPartOfItIsMovedAsideIfTheFileIsMixed) {
  const std::string journal = leave();
  poke(path, b_at + 1024, fresh.substr(b_at + 1024, 512 - (b_at + 1024) % 512 + 512));
  flip(journal, sparse.payload + changes_head);
  expect_aside(journal, GetParam() == 0 ? "is damaged" : "neither all old nor all new");
}

TEST_P(SparseRecord, ThatLeadsOutOfItsRangeIsNotTrusted) {
  const std::string journal = leave(true);
  if (GetParam() == 0) return expect_aside(journal, "leads out of it");
  EXPECT_EQ(recover().value().dropped, 1u);  // as one that is torn: nothing was written
  EXPECT_TRUE(same_bytes(bytes_of(path), old));
}

TEST_P(SparseRecord, IsThereStillAfterEachFailureOfARecovery) {
  bool failed = true;
  for (size_t n = 0; failed; ++n) {
    leave();
    FaultEnv faulty(env);
    size_t calls = 0;
    failed = false;
    faulty.before = [&](Call call) {
      if ((call != Call::pread && call != Call::pwrite) || calls++ != n) return 0;
      failed = true;
      return -EIO;
    };
    if (!recover(faulty)) {
      auto again = recover();
      ASSERT_TRUE(is_ok(again)) << "call " << n;
      EXPECT_EQ(again->aside, 0u) << "call " << n << ": " << again->why_aside;
    }
    EXPECT_TRUE(same_bytes(bytes_of(path), fresh)) << "call " << n;
    start_over();
  }
}

// A commit lays the changes as recovery does. Then something else has been at its journal.
TEST_P(SparseRecord, IsLaidOnlyAsItWasStaged) {
  for (const bool leads_out : {false, true}) {
    const std::string journal = leave(leads_out);
    if (!leads_out) flip(journal, sparse.payload + changes_head);
    const os::File data = os::File::open(env, AT_FDCWD, path, O_RDWR, 0, path).value();
    const os::File from = os::File::open(env, AT_FDCWD, journal, O_RDONLY, 0, journal).value();
    std::vector<std::byte> packed(sparse.packed), bytes(sparse.length);
    auto laid = write_changes(data, from, sparse, packed.data(), bytes.data());
    ASSERT_FALSE(laid);
    EXPECT_EQ(laid.error().status, Status::journal);
    EXPECT_TRUE(same_bytes(bytes_of(path), old));
    start_over();
  }
}

// Whichever part is the first that is too much to be held back.
TEST_F(CrashScene, ChangesThatCannotBeWrittenAreAnError) {
  FaultEnv faulty(env);
  auto data = os::File::open(faulty, AT_FDCWD, path, O_RDWR, 0, path).value();
  auto at = Folder::create(located(faulty, path), *data.stat()).value();
  RangeRecord range;
  range.length = uint64_t{1} << 20;
  for (const uint64_t packed : {large_payload, large_payload - 64}) {
    auto journal = Journal::create(at.dir(), *data.stat()).value();
    range.packed = packed;
    const std::vector<std::byte> bytes(range.packed), tables(range.tables_bytes());
    journal->begin();
    ASSERT_TRUE(is_ok(journal->append_changes(range, bytes.data(), tables.data())));
    journal->begin();  // now with the space that it took
    faulty.before = [](Call call) { return call == Call::pwrite ? -EIO : 0; };
    auto added = journal->append_changes(range, bytes.data(), tables.data());
    ASSERT_FALSE(added);
    EXPECT_EQ(added.error().status, Status::io);
    faulty.before = nullptr;
  }
}

INSTANTIATE_TEST_SUITE_P(WithEachFlush, SparseRecord, ::testing::Values(0, one_flush_record));

}  // namespace
}  // namespace st::write
