// A whole object is held against the store's checksum, in whatever order its parts come.
#include "remote/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string_view>
#include <vector>

namespace st::remote {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

// They come bit by bit.
Result<void> comes(WholeCheck &check, uint64_t offset, std::span<const std::byte> bytes) {
  Summed sum{offset};
  for (size_t at = 0; at < bytes.size(); at += 700)
    check.add_to(&sum, bytes.subspan(at, std::min<size_t>(700, bytes.size() - at)));
  return check.came(sum);
}

TEST(CrcTest, IsAsItsCatalogueSays) {
  EXPECT_EQ(crc_of(Crc::crc32c, bytes_of("123456789")), 0xE3069283u);
  EXPECT_EQ(crc_of(Crc::crc64nvme, bytes_of("123456789")), 0xAE8B14860A799888u);
  EXPECT_EQ(crc_of(Crc::crc32, bytes_of("123456789")), 0xCBF43926u);
  for (const Crc kind : all_crcs) EXPECT_EQ(crc_of(kind, {}), 0u);
}

struct WholeCheckTest : ::testing::TestWithParam<Crc> {
  std::vector<std::byte> bytes = [] {
    std::vector<std::byte> out(10007);
    std::mt19937 random(1);
    for (std::byte &b : out) b = static_cast<std::byte>(random());
    return out;
  }();
  std::span<const std::byte> part(size_t from, size_t until) const {
    return std::span(bytes).subspan(from, until - from);
  }
};
INSTANTIATE_TEST_SUITE_P(All, WholeCheckTest, ::testing::ValuesIn(all_crcs));

TEST_P(WholeCheckTest, PartsAreJoined) {
  std::mt19937 random(2);
  for (int i = 0; i < 200; ++i) {
    const size_t at = random() % (bytes.size() + 1);
    EXPECT_EQ(joined(GetParam(), crc_of(GetParam(), part(0, at)), crc_of(GetParam(), part(at, bytes.size())),
                     bytes.size() - at),
              crc_of(GetParam(), bytes));
  }
}

// Short ones go by tables, long ones by the processor's products.
TEST_P(WholeCheckTest, LongOnesAreThoseOfTheirParts) {
  constexpr size_t is_short = 100;
  for (size_t begin = 0; begin < 3; ++begin)
    for (size_t n = 0; n < 1200; ++n) {
      uint64_t crc = crc_of(GetParam(), {});
      for (size_t at = 0; at < n; at += is_short) {
        const size_t more = std::min(is_short, n - at);
        crc = joined(GetParam(), crc, crc_of(GetParam(), part(begin + at, begin + at + more)), more);
      }
      ASSERT_EQ(crc_of(GetParam(), part(begin, begin + n)), crc) << n << " bytes";
    }
}

// Random cuts in random order, some of them twice, and overlapping ones.
TEST_P(WholeCheckTest, AnyOrderIsTheSame) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const size_t begin = random() % 3 * 100;
    const auto wrong = static_cast<size_t>(round % 2 ? random() % bytes.size() : bytes.size());
    const Checksum expected{GetParam(), crc_of(GetParam(), bytes)};
    auto came = bytes;
    if (wrong < came.size()) came[wrong] ^= std::byte{16};
    WholeCheck check(expected, came.size(), std::span(came).first(begin));
    std::vector<size_t> cuts = {begin, came.size()};
    for (int i = 0; i < 20; ++i) cuts.push_back(begin + random() % (came.size() - begin));
    std::sort(cuts.begin(), cuts.end());
    std::vector<std::pair<size_t, size_t>> parts;
    for (size_t i = 0; i + 1 < cuts.size(); ++i)
      if (cuts[i] < cuts[i + 1]) parts.emplace_back(cuts[i], cuts[i + 1]);
    std::shuffle(parts.begin(), parts.end(), random);
    if (round % 3 == 0) parts.insert(parts.begin() + 5, {parts[0], {cuts[3], cuts[7] + 1}});
    int said = 0;
    for (const auto &[from, until] : parts)
      if (auto right = comes(check, from, std::span(came).subspan(from, until - from)); !right) {
        EXPECT_EQ(right.error().status, Status::checksum);
        ++said;
      }
    if (round % 3 != 0 || wrong == came.size()) {
      EXPECT_EQ(said, wrong < came.size()) << round;
    }
    // Read once more from the begin to the end, it is always checked.
    EXPECT_EQ(comes(check, begin, std::span(came).subspan(begin)).has_value(), wrong == came.size());
  }
}

TEST_P(WholeCheckTest, OneThatIsAllBeginIsCheckedAtOnce) {
  EXPECT_TRUE(WholeCheck(Checksum{GetParam(), crc_of(GetParam(), bytes)}, bytes.size(), bytes).check_begin());
  EXPECT_FALSE(WholeCheck(Checksum{GetParam(), 17}, bytes.size(), bytes).check_begin());
  EXPECT_TRUE(WholeCheck(Checksum{GetParam(), 17}, bytes.size() + 1, bytes).check_begin());
}

TEST_P(WholeCheckTest, APartIsNotChecked) {
  WholeCheck check(Checksum{GetParam(), 17}, bytes.size(), {});
  EXPECT_TRUE(comes(check, 0, part(0, 5000)));
  EXPECT_TRUE(comes(check, 5001, part(5001, bytes.size())));
  EXPECT_FALSE(comes(check, 5000, part(5000, 5001)));
}

// A store may say it at any moment: before all has come, or when it is asked then.
TEST_P(WholeCheckTest, WhatTheStoreSaysLaterIsComparedToo) {
  const uint64_t right = crc_of(GetParam(), bytes);
  for (const size_t said_after : {0u, 1u, 2u})
    for (const bool is_right : {true, false}) {
      WholeCheck check(std::nullopt, bytes.size(), part(0, 100));
      EXPECT_TRUE(check.check_begin());
      bool differs = false;
      const auto say = [&] { differs |= !check.said(Checksum{GetParam(), is_right ? right : right + 1}); };
      EXPECT_TRUE(check.begins_to_ask());
      EXPECT_FALSE(check.begins_to_ask()) << "one asks";
      if (said_after == 0) say();
      differs |= !comes(check, 5000, part(5000, bytes.size()));
      if (said_after == 1) say();
      EXPECT_FALSE(check.begins_to_ask_at_the_end());
      differs |= !comes(check, 100, part(100, 5000));
      if (said_after == 2) {
        EXPECT_TRUE(check.begins_to_ask_at_the_end());
        EXPECT_FALSE(check.begins_to_ask_at_the_end()) << "it is being asked";
        check.not_said();
        EXPECT_TRUE(check.begins_to_ask_at_the_end());
        say();
      }
      EXPECT_EQ(differs, !is_right) << said_after;
      // What is read again is checked again.
      EXPECT_EQ(comes(check, 100, part(100, bytes.size())).has_value(), is_right);
    }
}

// One call asks beside a long read, and another brings the last byte meanwhile.
TEST_P(WholeCheckTest, ACallThatIsStoppedWhileItAsksLeavesNothingUnchecked) {
  const uint64_t wrong = crc_of(GetParam(), bytes) + 1;
  for (const bool first_fails_early : {true, false}) {
    WholeCheck check(std::nullopt, bytes.size(), {});
    EXPECT_TRUE(check.begins_to_ask());
    EXPECT_TRUE(comes(check, 0, bytes));
    if (first_fails_early) check.not_said();
    EXPECT_TRUE(check.begins_to_ask_at_the_end());
    if (!first_fails_early) check.not_said();
    EXPECT_FALSE(check.said(Checksum{GetParam(), wrong}));
    check.not_said();
    EXPECT_FALSE(check.begins_to_ask_at_the_end()) << "it is known";
  }
}

TEST_P(WholeCheckTest, EachThatAskedIsToldOfAWrongWhole) {
  const Checksum wrong{GetParam(), crc_of(GetParam(), bytes) + 1};
  WholeCheck check(std::nullopt, bytes.size(), {});
  EXPECT_TRUE(check.begins_to_ask());
  EXPECT_TRUE(comes(check, 0, bytes));
  EXPECT_TRUE(check.begins_to_ask_at_the_end());
  EXPECT_FALSE(check.said(wrong));
  EXPECT_FALSE(check.said(wrong));
  EXPECT_TRUE(comes(check, 0, part(0, 5000))) << "what is read in part is not checked";
}

TEST_P(WholeCheckTest, TheFirstAnswerStands) {
  WholeCheck check(std::nullopt, bytes.size(), {});
  EXPECT_TRUE(check.begins_to_ask());
  EXPECT_TRUE(comes(check, 0, bytes));
  EXPECT_TRUE(check.begins_to_ask_at_the_end());
  EXPECT_TRUE(check.said(std::nullopt));
  EXPECT_TRUE(comes(check, 0, part(0, 5000)));
  EXPECT_TRUE(check.said(Checksum{GetParam(), crc_of(GetParam(), bytes)}));
  EXPECT_TRUE(comes(check, 5000, part(5000, bytes.size())));
}

// Once it was asked in vain, it is asked when all has come.
TEST_P(WholeCheckTest, AStoreThatSaysNothingIsAskedOnceMore) {
  WholeCheck check(std::nullopt, bytes.size(), {});
  EXPECT_TRUE(check.begins_to_ask());
  check.not_said();
  EXPECT_FALSE(check.begins_to_ask());
  EXPECT_FALSE(check.begins_to_ask_at_the_end());
  EXPECT_TRUE(comes(check, 0, bytes));
  EXPECT_TRUE(check.begins_to_ask_at_the_end());
  EXPECT_FALSE(check.said(Checksum{GetParam(), crc_of(GetParam(), bytes) + 1}));
}

TEST_P(WholeCheckTest, KnowsWhatMakesItWhole) {
  WholeCheck check(std::nullopt, bytes.size(), part(0, 100));
  EXPECT_TRUE(check.is_all_with({{100, bytes.size()}}));
  EXPECT_FALSE(check.is_all_with({{101, bytes.size()}}));
  EXPECT_FALSE(check.is_all_with({{100, bytes.size() - 1}}));
  EXPECT_TRUE(comes(check, 500, part(500, 5000)));
  EXPECT_TRUE(check.is_all_with({{4000, bytes.size()}, {50, 500}}));
  EXPECT_FALSE(check.is_all_with({{5001, bytes.size()}, {50, 500}}));
}

TEST_P(WholeCheckTest, AStoreMaySayThatThereIsNone) {
  WholeCheck check(std::nullopt, bytes.size(), {});
  EXPECT_TRUE(check.begins_to_ask());
  EXPECT_TRUE(check.said(std::nullopt));
  EXPECT_TRUE(comes(check, 0, bytes));
  EXPECT_FALSE(check.begins_to_ask_at_the_end());
}

TEST(ChecksumTest, IsTakenFromTheFieldsOfEachStore) {
  const auto of = [](std::vector<std::pair<std::string, std::string>> fields) {
    return checksum_of(Head{200, std::move(fields)});
  };
  EXPECT_EQ(of({{"x-goog-hash", "crc32c=n03x6A==,md5=Ojk9c3dhfxgoKVVHYwFbHQ=="}}), (Checksum{Crc::crc32c, 0x9f4df1e8}));
  EXPECT_EQ(of({{"x-goog-hash", "md5=Ojk9c3dhfxgoKVVHYwFbHQ=="}, {"x-goog-hash", "crc32c=n03x6A=="}}),
            (Checksum{Crc::crc32c, 0x9f4df1e8}));
  EXPECT_EQ(of({{"x-amz-checksum-crc64nvme", "rosUhgp5mIg="}}), (Checksum{Crc::crc64nvme, 0xAE8B14860A799888}));
  EXPECT_EQ(of({{"x-amz-checksum-crc32c", "4waSgw=="}}), (Checksum{Crc::crc32c, 0xE3069283}));
  EXPECT_EQ(of({{"x-amz-checksum-crc32", "y/Q5Jg=="}}), (Checksum{Crc::crc32, 0xCBF43926}));
  EXPECT_FALSE(of({{"x-amz-checksum-crc32", "y/Q5Jg==-2"}}));
  EXPECT_FALSE(of({{"x-amz-checksum-crc32c", "4waSgw=="}, {"x-amz-checksum-type", "COMPOSITE"}}));
  for (const char *wrong : {"", "4waSgw==-3", "4waS", "4waSgw=", "4wa!gw==", "rosUhgp5mIg="})
    EXPECT_FALSE(of({{"x-amz-checksum-crc32c", wrong}})) << wrong;
  EXPECT_FALSE(of({{"x-goog-hash", "md5=Ojk9c3dhfxgoKVVHYwFbHQ=="}}));
  // It is of the packed bytes, and unpacked ones come.
  EXPECT_FALSE(of({{"x-goog-hash", "crc32c=n03x6A=="}, {"x-goog-stored-content-encoding", "gzip"}}));
  EXPECT_TRUE(of({{"x-goog-hash", "crc32c=n03x6A=="}, {"x-goog-stored-content-encoding", "identity"}}));
}

}  // namespace
}  // namespace st::remote
