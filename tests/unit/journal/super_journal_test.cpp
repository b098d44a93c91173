// The list of a super-journal, as bytes: a written list is read again. Nothing is
// read from bytes that no writer made, or that name a file which is none of the
// transaction's.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "journal/super_journal.h"
#include "newfile/temporary_file.h"

namespace st::write {
namespace {

SuperManifest list() {
  auto fresh = [](const std::string &file, const std::string &digits = "0123456789abcdef") {
    return temporary_prefix(file, undecided_infix) + digits;
  };
  SuperManifest l;
  l.index = {"i.json", "", fresh("i.json"), "", {1, 2}, {3, 4}, {}};
  l.parts.push_back({"a", "0000000000000001", "", "", {5, 6}, {}, {}});
  l.parts.push_back({"b", "0000000000000002", fresh("b"), fresh("b", "0123456789abcde2"), {7, 8}, {9, 10}, {11, 12}});
  return l;
}

bool is_refused(const std::function<void(SuperManifest &)> &change) {
  SuperManifest l = list();
  change(l);
  return !decode_super(encode(l));
}

TEST(SuperJournalTest, AListComesBackAsItWas) {
  const auto bytes = encode(list());
  const auto back = decode_super(bytes);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(encode(*back), bytes);
  ASSERT_EQ(back->parts.size(), 2u);
  EXPECT_EQ(back->parts[1].second_form, (Form{11, 12}));
  EXPECT_EQ(back->index.file, "i.json");
}

// But where an entry ends: that is a shorter list, whose hash is another.
TEST(SuperJournalTest, AnyTruncationIsNoticed) {
  const auto bytes = encode(list());
  SuperManifest shorter = list();
  std::vector<size_t> whole;
  for (; !shorter.parts.empty(); shorter.parts.pop_back()) whole.push_back(encode(shorter).size());
  whole.push_back(encode(shorter).size());
  for (size_t n = 0; n < bytes.size(); ++n) {
    const bool is_whole = std::find(whole.begin(), whole.end(), n) != whole.end();
    EXPECT_EQ(decode_super(std::span(bytes).first(n)).has_value(), is_whole) << n;
  }
}

TEST(SuperJournalTest, EveryNameIsOneOfTheFolder) {
  for (const std::string bad : {"../b", "/b", "..", ""}) {
    EXPECT_TRUE(is_refused([&](SuperManifest &l) { l.index.file = "x/" + bad; })) << bad;
    EXPECT_TRUE(is_refused([&](SuperManifest &l) { l.parts[1].journal = "x/" + bad; })) << bad;
    EXPECT_TRUE(is_refused([&](SuperManifest &l) { l.parts[1].first += "/" + bad; })) << bad;
  }
  EXPECT_TRUE(is_refused([](SuperManifest &l) { l.parts[1].file = ""; }));
  EXPECT_TRUE(is_refused([](SuperManifest &l) { l.parts[1].file = ".."; }));
  EXPECT_TRUE(is_refused([](SuperManifest &l) { l.parts[1].file = std::string("b\0c", 3); }));
  EXPECT_TRUE(is_refused([](SuperManifest &l) { l.parts[1].file = std::string(256, 'b'); }));
}

TEST(SuperJournalTest, EveryPartHasAJournal) {
  EXPECT_TRUE(is_refused([](SuperManifest &l) { l.parts[0].journal = ""; }));
}

TEST(SuperJournalTest, NewFilesAreTemporariesOfTheirOwnFile) {
  EXPECT_TRUE(is_refused([](SuperManifest &l) { l.parts[1].first = "another.safetensors"; }));
  EXPECT_TRUE(is_refused([](SuperManifest &l) { l.parts[1].first = l.index.first; }));
  EXPECT_TRUE(is_refused([](SuperManifest &l) { l.parts[1].second += "-notes"; }));
  EXPECT_TRUE(is_refused(
      [](SuperManifest &l) { l.parts[1].second = temporary_prefix("b", temporary_infix) + "0123456789abcdef"; }));
}

TEST(SuperJournalTest, NoFileIsNamedTwice) {
  EXPECT_TRUE(is_refused([](SuperManifest &l) { l.parts[1] = l.parts[0]; }));
  EXPECT_TRUE(is_refused([](SuperManifest &l) { std::swap(l.parts[0], l.parts[1]); }));
  EXPECT_TRUE(is_refused([](SuperManifest &l) { l.index.file = "a", l.index.first = ""; }));
  EXPECT_TRUE(is_refused([](SuperManifest &l) { l.parts[1].second = l.parts[1].first; }));
  EXPECT_TRUE(is_refused([](SuperManifest &l) {
    l.parts.insert(l.parts.begin(), {l.parts[1].first, "0000000000000003", "", "", {1, 1}, {}, {}});
  }));
}

TEST(SuperJournalTest, ANameIsTheTransactionInHexadecimal) {
  EXPECT_EQ(super_name(0xfedcba9876543210), "fedcba9876543210");
  EXPECT_EQ(transaction_of("fedcba9876543210"), 0xfedcba9876543210);
  for (const char *other : {"", "fedcba987654321", "0fedcba9876543210", "FEDCBA9876543210", "fedcba987654321g",
                            "fedcba9876543210.bad", "1fedcba98765432100", "-edcba9876543210", "fedcba9876543210.",
                            ".fedcba9876543210", "fedcba9876543210.0123456789abcdef.bad"})
    EXPECT_FALSE(transaction_of(other).has_value()) << other;
}

TEST(SuperJournalTest, AClaimedOneKeepsItsTransaction) {
  const std::string name = super_name(7), claimed = name_of_claimed(name, "0123456789abcdef");
  EXPECT_EQ(claimed, "0000000000000007.0123456789abcdef");
  EXPECT_EQ(transaction_of(claimed), 7u);
  EXPECT_EQ(name_of_claimed(claimed, "fedcba9876543210"), "0000000000000007.fedcba9876543210");
  EXPECT_EQ(name_of_claimed(".nfs0001", "0123456789abcdef"), "0123456789abcdef");
}

}  // namespace
}  // namespace st::write
