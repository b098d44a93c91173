// Recovery of records that shared a flush with all that they need, and were not flushed when they were emptied. A cut
// may leave such a record without the rest, and may bring it back.
#include "crash_scene.h"

namespace st::write {
namespace {

using namespace testing;
using testing::Change;

class OneFlush : public testing::CrashScene {
 protected:
  OneFlush() { flags = one_flush_record; }

  enum class Torn { payload, table, manifest, end };
  static constexpr Torn every_way[] = {Torn::payload, Torn::table, Torn::manifest, Torn::end};

  static void tear(const std::string &journal, Torn what) {
    const std::string bytes = bytes_of(journal);
    const auto *block = reinterpret_cast<const std::byte *>(bytes.data());
    CommitRecord record;
    ASSERT_EQ(decode({block, header_bytes}, &record), JournalState::committed);
    const RangeRecord first =
        decode_ranges({block + record.manifest, static_cast<size_t>(record.ranges * range_record_bytes)}).at(0);
    if (what == Torn::end) return std::filesystem::resize_file(journal, header_bytes + 100);
    const uint64_t at = what == Torn::payload ? first.payload + 7
                        : what == Torn::table ? first.sectors
                                              : record.manifest;
    poke(journal, at, std::string(1, static_cast<char>(bytes[at] ^ 0x40)));
  }
  std::string half_of(const Change &c) const { return c.bytes.substr(0, c.bytes.size() / 2); }

  const std::vector<Change> changes = {{a_at, pattern(4000, 51)}, {b_at, pattern(10007, 52)}};
};

TEST_F(OneFlush, ATornJournalIsDroppedWhereTheFileNeedsNoneOfIt) {
  for (const Torn what : every_way)
    for (const bool is_new : {false, true}) {
      put_bytes(path, old);
      const std::string journal = leave(changes, true);
      const std::string bytes = is_new ? with(changes) : old;
      put_bytes(path, bytes);
      ASSERT_NO_FATAL_FAILURE(tear(journal, what));
      auto r = recover();
      ASSERT_TRUE(is_ok(r));
      EXPECT_EQ(r->dropped, 1u);
      EXPECT_EQ(r->aside + r->applied, 0u) << r->why_aside;
      EXPECT_TRUE(same_bytes(bytes_of(path), bytes));
      EXPECT_FALSE(std::filesystem::exists(folder()));
      ASSERT_EQ(found.size(), 1u);
      EXPECT_EQ(found[0].status, Status::ok);
    }
}

// No cut leaves that.
TEST_F(OneFlush, ATornJournalOfAFileThatHasAPartOfItIsMovedAside) {
  for (const Torn what : {Torn::payload, Torn::table})
    for (const std::vector<Change> &there :
         {std::vector{changes[0]}, std::vector{changes[1]}, std::vector{Change{a_at, half_of(changes[0])}}}) {
      put_bytes(path, old);
      const std::string journal = leave(changes, true);
      put_bytes(path, with(there));
      ASSERT_NO_FATAL_FAILURE(tear(journal, what));
      expect_aside(journal, "neither all old nor all new");
      std::filesystem::remove_all(folder());
    }
}

TEST_F(OneFlush, AnotherKindOfRecordIsNeverTorn) {
  for (const Torn what : every_way) {
    flags = 0;
    const std::string journal = leave(changes, true);
    ASSERT_NO_FATAL_FAILURE(tear(journal, what));
    expect_aside(journal, "");
    std::filesystem::remove_all(folder());
  }
}

// Whichever of the two is listed first.
TEST_F(OneFlush, ARecordThatCameBackIsSettledBeforeTheNextOneOnItsBytes) {
  const Change next{a_at, old.substr(a_at, 4000)};  // the old bytes again
  for (int round = 0; round < 16; ++round) {
    put_bytes(path, old);
    ASSERT_NE(leave(changes, true), "");
    put_bytes(path, with(changes));
    ASSERT_NE(leave({next}, true), "");
    auto r = recover();
    ASSERT_TRUE(is_ok(r));
    EXPECT_EQ(r->applied, 2u);
    EXPECT_EQ(r->aside, 0u) << r->why_aside;
    ASSERT_TRUE(same_bytes(bytes_of(path), with({changes[1]})));
  }
}

}  // namespace
}  // namespace st::write
