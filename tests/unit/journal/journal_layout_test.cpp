// The bytes of a journal: what is written is read back, and one flipped bit
// anywhere is noticed.
#include <algorithm>
#include <span>
#include <vector>

#include "base/hash.h"
#include "journal/journal_layout.h"
#include "test_files.h"

namespace st::write {
namespace {

const CommitRecord record{0x1122334455667788, {42, 100000, 512, 0xfeedfacecafebeef}, 73728, 3, 0xabcdef, 0};

void expect_same(const CommitRecord &a, const CommitRecord &b) {
  EXPECT_EQ(a.transaction, b.transaction);
  EXPECT_EQ(a.identity, b.identity);
  EXPECT_EQ(a.manifest, b.manifest);
  EXPECT_EQ(a.ranges, b.ranges);
  EXPECT_EQ(a.manifest_hash, b.manifest_hash);
  EXPECT_EQ(a.flags, b.flags);
}

TEST(CommitRecord, IsReadBackFromOneSector) {
  const auto block = encode(record);
  CommitRecord back;
  ASSERT_EQ(decode(block, &back), JournalState::committed);
  expect_same(back, record);
  CommitRecord from_sector;
  ASSERT_EQ(decode(std::span(block).first(sector_bytes), &from_sector), JournalState::committed);
  expect_same(from_sector, record);
}

TEST(CommitRecord, LeavesACopyThatPromisesNothing) {
  auto block = encode(record);
  EXPECT_TRUE(std::equal(block.begin(), block.begin() + sector_bytes, block.begin() + sector_bytes));
  EXPECT_TRUE(
      std::all_of(block.begin() + 2 * sector_bytes, block.end(), [](std::byte b) { return b == std::byte{0}; }));
  std::fill_n(block.begin(), sector_bytes, std::byte{0});
  CommitRecord back;
  EXPECT_EQ(decode(block, &back), JournalState::empty);
  ASSERT_TRUE(decode_last(block, &back));
  expect_same(back, record);
  EXPECT_FALSE(decode_last(std::span(block).first(2 * sector_bytes - 1), &back));
  block[sector_bytes] ^= std::byte{1};
  EXPECT_FALSE(decode_last(block, &back));
  EXPECT_FALSE(decode_last(std::array<std::byte, header_bytes>{}, &back));
}

// The format on disk is a promise to later versions.
TEST(CommitRecord, LiesAtTheseBytes) {
  const auto block = encode(record);
  const auto *bytes = reinterpret_cast<const char *>(block.data());
  EXPECT_EQ(std::string_view(bytes, 16), std::string_view("libst journal 2\0", 16));
  const uint64_t wanted[] = {record.transaction, 42, 100000, 512, 0xfeedfacecafebeef, 73728, 3, 0xabcdef, 0};
  for (size_t i = 0; i < std::size(wanted); ++i) EXPECT_EQ(load_u64le(bytes + 16 + 8 * i), wanted[i]) << i;
  EXPECT_EQ(load_u64le(bytes + 88), hash64(bytes, 88));
}

TEST(CommitRecord, ZeroesAreAnEmptyJournal) {
  CommitRecord ignored;
  const std::array<std::byte, header_bytes> zeros = {};
  EXPECT_EQ(decode(zeros, &ignored), JournalState::empty);
  EXPECT_EQ(decode(std::span(zeros).first(sector_bytes), &ignored), JournalState::empty);
  std::array<std::byte, header_bytes> later = {};
  later[sector_bytes] = std::byte{1};  // beyond the first sector nothing counts
  EXPECT_EQ(decode(later, &ignored), JournalState::empty);
}

TEST(CommitRecord, EveryFlippedBitIsDamage) {
  const auto good = encode(record);
  for (size_t i = 0; i < 96; ++i)
    for (int bit = 0; bit < 8; ++bit) {
      auto bad = good;
      bad[i] ^= std::byte(1 << bit);
      CommitRecord out;
      ASSERT_EQ(decode(bad, &out), JournalState::damaged) << "byte " << i;
    }
}

TEST(CommitRecord, ATornSectorIsDamage) {
  const auto good = encode(record);
  for (size_t kept = 1; kept < 96; ++kept) {
    std::array<std::byte, header_bytes> torn = {};
    std::copy_n(good.begin(), kept, torn.begin());
    CommitRecord out;
    ASSERT_EQ(decode(torn, &out), JournalState::damaged) << kept;
  }
  CommitRecord out;
  for (size_t n : {size_t{16}, size_t{96}, size_t{511}})
    EXPECT_EQ(decode(std::span(good).first(n), &out), JournalState::damaged) << n;
}

TEST(CommitRecord, FlagsOfAVersionToComeAreRefused) {
  CommitRecord later = record;
  later.flags = 2;
  CommitRecord out;
  EXPECT_EQ(decode(encode(later), &out), JournalState::damaged);
}

TEST(CommitRecord, TellsAnUndoRecordFromARedoRecord) {
  CommitRecord undo = record, out;
  undo.flags = undo_record;
  ASSERT_EQ(decode(encode(undo), &out), JournalState::committed);
  EXPECT_TRUE(out.is_undo());
  ASSERT_EQ(decode(encode(record), &out), JournalState::committed);
  EXPECT_FALSE(out.is_undo());
}

CommitRecord part(const std::string &index) {
  CommitRecord r = record;
  r.flags = part_record;
  r.super_of = index;
  return r;
}

TEST(CommitRecord, OfAPartNamesItsIndex) {
  for (const std::string &index : {std::string("i"), std::string(255, 'i')}) {
    CommitRecord back;
    ASSERT_EQ(decode(encode(part(index)), &back), JournalState::committed);
    EXPECT_TRUE(back.is_part());
    EXPECT_FALSE(back.is_super());
    EXPECT_EQ(back.super_of, index);
  }
}

TEST(CommitRecord, OfAPartIsDamagedWithItsIndex) {
  CommitRecord ignored;
  for (const std::string &no_name : {std::string(), std::string("../i"), std::string(".."), std::string("."),
                                     std::string("i\0", 2), std::string("/i")})
    EXPECT_EQ(decode(encode(part(no_name)), &ignored), JournalState::damaged) << no_name;
  const auto sound = encode(part("index"));
  // The length, the name, and the hash over both.
  for (size_t at = 96; at < 96 + 8 + 5 + 8; ++at) {
    auto block = sound;
    block[at] ^= std::byte{1};
    EXPECT_EQ(decode(block, &ignored), JournalState::damaged) << at;
  }
  auto block = sound;
  store_u64le(block.data() + 96, UINT64_MAX);
  EXPECT_EQ(decode(block, &ignored), JournalState::damaged);
}

TEST(CommitRecord, TellsASuperJournal) {
  CommitRecord super = record, back;
  super.flags = super_record;
  ASSERT_EQ(decode(encode(super), &back), JournalState::committed);
  EXPECT_TRUE(back.is_super());
  for (const uint64_t flags :
       {one_flush_record | undo_record, one_flush_record | part_record, sparse_record | undo_record,
        sparse_record | super_record, sparse_record | done_record, sparse_record | one_flush_record | part_record,
        uint64_t{64}, part_record | undo_record, super_record | part_record, super_record | undo_record}) {
    super.flags = flags;
    super.super_of = "i";
    EXPECT_EQ(decode(encode(super), &back), JournalState::damaged) << flags;
  }
}

TEST(Manifest, IsReadBack) {
  const RangeRecord ranges[] = {{512, 100, 4096, 1, 4200, 2}, {1000, 5, 5000, 3, 5008, 4}};
  const auto manifest = encode(ranges);
  EXPECT_EQ(manifest.size(), 2 * range_record_bytes);
  const auto back = decode_ranges(manifest);
  ASSERT_EQ(back.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(back[i].offset, ranges[i].offset);
    EXPECT_EQ(back[i].length, ranges[i].length);
    EXPECT_EQ(back[i].payload, ranges[i].payload);
    EXPECT_EQ(back[i].payload_hash, ranges[i].payload_hash);
    EXPECT_EQ(back[i].sectors, ranges[i].sectors);
    EXPECT_EQ(back[i].sectors_hash, ranges[i].sectors_hash);
  }
  EXPECT_TRUE(decode_ranges({}).empty());
}

TEST(Manifest, OfASparseRecordIsReadBack) {
  const RangeRecord ranges[] = {{512, 1000, 4096, 1, 4200, 2}, {5000, 5000, 5000, 3, 5008, 4, 77, 8}};
  const auto manifest = encode(ranges, true);
  EXPECT_EQ(manifest.size(), 2 * sparse_range_record_bytes);
  const auto back = decode_ranges(manifest, true);
  ASSERT_EQ(back.size(), 2u);
  EXPECT_FALSE(back[0].is_sparse());
  EXPECT_EQ(back[0].payload_bytes(), 1000u);
  EXPECT_EQ(back[0].tables_bytes(), 2u * 4);
  EXPECT_TRUE(back[1].is_sparse());
  EXPECT_EQ(back[1].payload_bytes(), 77u);
  EXPECT_EQ(back[1].fresh_hash, 8u);
  EXPECT_EQ(back[1].tables_bytes(), 2 * sectors_of(5000, 5000) * 4);
  for (const uint64_t flags : {sparse_record, sparse_record | one_flush_record, sparse_record | part_record,
                               sparse_record | part_record | done_record}) {
    CommitRecord sparse = record, read;
    sparse.flags = flags;
    sparse.super_of = "i";
    ASSERT_EQ(decode(encode(sparse), &read), JournalState::committed);
    EXPECT_TRUE(read.is_sparse());
    EXPECT_EQ(read.super_of, read.is_part() ? "i" : "");
    EXPECT_EQ(read.range_bytes(), sparse_range_record_bytes);
  }
}

class CheckRanges : public ::testing::Test {
 protected:
  static constexpr uint64_t journal_bytes = 100000;
  std::string why(std::vector<RangeRecord> ranges) {
    RangeRules rules(identity, journal_bytes);
    for (const RangeRecord &range : ranges)
      if (const Verdict found = rules.judge(range); !found.is_good()) return found.why();
    return {};
  }
  const Identity identity{1, 10000, 512, 7};
  const RangeRecord good{512, 1000, 4096, 0, 5096, 0};
  RangeRecord with(auto change) const {
    RangeRecord r = good;
    change(r);
    return r;
  }
};

TEST_F(CheckRanges, SoundOnesPass) {
  EXPECT_EQ(why({good}), "");
  EXPECT_EQ(why({}), "");
  EXPECT_EQ(why({good, {1512, 8488, 4096, 0, 4096, 0}}), "");  // to the last byte; payloads may even be shared
}

TEST_F(CheckRanges, WhatLiesOutsideIsNamed) {
  const std::pair<const char *, RangeRecord> bad[] = {
      {"in the header", with([](auto &r) { r.offset = 511; })},
      {"in the length", with([](auto &r) { r.offset = 0; })},
      {"beyond the file", with([](auto &r) { r.offset = 9001; })},
      {"far beyond the file", with([](auto &r) { r.offset = UINT64_MAX; })},
      {"longer than the file", with([](auto &r) { r.length = 9489; })},
      {"so long that it wraps", with([](auto &r) { r.length = UINT64_MAX; })},
      {"of no length", with([](auto &r) { r.length = 0; })},
      {"payload in the journal's header", with([](auto &r) { r.payload = 4095; })},
      {"payload beyond the journal", with([](auto &r) { r.payload = 99001; })},
      {"payload that wraps", with([](auto &r) { r.payload = UINT64_MAX - 10; })},
      {"hashes in the journal's header", with([](auto &r) { r.sectors = 0; })},
      {"hashes beyond the journal", with([](auto &r) { r.sectors = journal_bytes - 7; })},  // two sectors: 8 bytes
      {"hashes that wrap", with([](auto &r) { r.sectors = UINT64_MAX; })},
      {"changes longer than they can be", with([](auto &r) { r.packed = 2009; })},
      {"changes beyond the journal", with([](auto &r) { r.packed = 1001, r.payload = 99000; })},
      {"hashes of new sectors beyond the journal",
       with([](auto &r) { r.packed = 100, r.sectors = journal_bytes - 8; })},
  };
  for (const auto &[what, range] : bad) EXPECT_NE(why({range}), "") << what;
}

TEST(RangeRulesOfALargeFile, SayHowLongARangeMayBeOfWhichTheJournalHoldsWhatChanges) {
  RangeRecord r{512, longest_sparse, 4096, 0, 5096, 0, 100, 0};
  EXPECT_TRUE(RangeRules({1, 1 << 22, 512, 7}, 1 << 22).judge(r).is_good());
  ++r.length;
  EXPECT_FALSE(RangeRules({1, 1 << 22, 512, 7}, 1 << 22).judge(r).is_good());
  r.packed = 0;
  EXPECT_TRUE(RangeRules({1, 1 << 22, 512, 7}, 1 << 22).judge(r).is_good());
}

TEST_F(CheckRanges, OverlapAndWrongOrderAreNamed) {
  EXPECT_NE(why({good, good}), "");
  EXPECT_NE(why({good, {1511, 10, 4096, 0, 4096, 0}}), "");
  EXPECT_NE(why({{5000, 10, 4096, 0, 4096, 0}, good}), "");
}

TEST(Sectors, AreCountedByWhereAPieceLies) {
  EXPECT_EQ(sectors_of(0, 0), 0u);
  EXPECT_EQ(sectors_of(100, 0), 0u);
  EXPECT_EQ(sectors_of(0, 1), 1u);
  EXPECT_EQ(sectors_of(0, 512), 1u);
  EXPECT_EQ(sectors_of(0, 513), 2u);
  EXPECT_EQ(sectors_of(511, 1), 1u);
  EXPECT_EQ(sectors_of(511, 2), 2u);
  EXPECT_EQ(sectors_of(1, 1024), 3u);
}

TEST(Sectors, AreHashedByWhereAPieceLies) {
  const std::string bytes = testing::pattern(5000, 4);
  const std::span<const std::byte> all(reinterpret_cast<const std::byte *>(bytes.data()), bytes.size());
  for (uint64_t offset : {0u, 1u, 511u, 512u, 700u}) {
    std::vector<uint32_t> hashes;
    hash_sectors(offset, all, &hashes);
    ASSERT_EQ(hashes.size(), sectors_of(offset, all.size()));
    EXPECT_EQ(hashes[0], hash_sector(all.first(512 - offset % 512)));
    // In pieces that end at sectors: the same.
    std::vector<uint32_t> pieces;
    const size_t cut = 2 * 512 - offset % 512;
    hash_sectors(offset, all.first(cut), &pieces);
    hash_sectors(offset + cut, all.subspan(cut), &pieces);
    EXPECT_EQ(pieces, hashes);
  }
}

// A journal is recovered on any host that reaches its file.
TEST(Sectors, HaveHashesThatAreLittleEndianAsTheyLieInATable) {
  const std::string bytes = testing::pattern(700, 4);
  const std::span<const std::byte> all(reinterpret_cast<const std::byte *>(bytes.data()), bytes.size());
  std::vector<uint32_t> hashes;
  hash_sectors(0, all, &hashes);
  std::vector<std::byte> table;
  for (const auto sector : {all.first(512), all.subspan(512)})
    for (int i = 0; i < 4; ++i)
      table.push_back(static_cast<std::byte>(hash64(sector.data(), sector.size()) >> (8 * i)));
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(hashes)), table));
}

}  // namespace
}  // namespace st::write
