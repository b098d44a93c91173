// The judge of the storm, judged: it must see what a broken engine would leave,
// and accept whatever a right one may.
#include "serial_order.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "diagnosis.h"
#include "ledger.h"
#include "tensor_file.h"

using namespace st::testing;

namespace {

constexpr uint32_t only(uint32_t t) {
  return 1u << t;
}
constexpr uint32_t a = only(0), b = only(1), c = only(2);
const Transaction origin{0, a | b | c, 0, 0, true};

std::string verdict(std::vector<Transaction> log, std::vector<uint64_t> seen) {
  log.push_back(origin);
  return why_not_serial(log, seen);
}

}  // namespace

TEST(SerialOrder, AcceptsTheLastAcknowledged) {
  EXPECT_EQ(verdict({{1, a, 1, 2, true}, {2, a, 3, 4, true}, {3, b | c, 5, 6, true}}, {2, 3, 3}), "");
}

TEST(SerialOrder, AcceptsEitherOfTwoAtTheSameTime) {
  const std::vector<Transaction> log = {{1, a, 1, 3, true}, {2, a, 2, 4, true}};
  EXPECT_EQ(verdict(log, {1, 0, 0}), "");
  EXPECT_EQ(verdict(log, {2, 0, 0}), "");
}

TEST(SerialOrder, AcceptsTheUnacknowledgedEitherWay) {
  const std::vector<Transaction> log = {{1, a | b, 1, 2, true}, {2, a | b, 3, 4, false}};
  EXPECT_EQ(verdict(log, {1, 1, 0}), "");
  EXPECT_EQ(verdict(log, {2, 2, 0}), "");
}

TEST(SerialOrder, AcceptsPartsOverwrittenByOthersAtTheSameTime) {
  EXPECT_EQ(verdict({{1, a | b, 1, 9, true}, {2, b | c, 2, 8, true}, {3, a, 3, 7, true}}, {3, 1, 2}), "");
}

TEST(SerialOrder, SeesALostUpdate) {
  EXPECT_NE(verdict({{1, a, 1, 2, true}, {2, a, 3, 4, true}}, {1, 0, 0}), "");
  EXPECT_NE(verdict({{1, a, 1, 2, true}}, {0, 0, 0}), "");
}

TEST(SerialOrder, SeesADeadWritersUpdateComeBack) {
  EXPECT_NE(verdict({{1, a, 1, 2, false}, {2, a, 3, 4, true}}, {1, 0, 0}), "");
}

TEST(SerialOrder, SeesHalfATransaction) {
  EXPECT_NE(verdict({{1, a | b, 1, 2, false}}, {1, 0, 0}), "");
  EXPECT_NE(verdict({{1, a | b | c, 1, 2, true}, {2, b, 1, 3, true}}, {1, 2, 0}), "");
  EXPECT_NE(verdict({{1, b, 1, 2, true}, {2, a | b, 3, 4, false}}, {2, 1, 0}), "");
}

TEST(SerialOrder, SeesACycleAtTheSameTime) {
  EXPECT_NE(verdict({{1, a | b, 1, 9, true}, {2, a | b, 2, 8, true}}, {1, 2, 0}), "");
  EXPECT_NE(verdict({{1, a | b, 1, 9, true}, {2, b | c, 2, 8, true}, {3, c | a, 3, 7, true}}, {1, 2, 3}), "");
}

TEST(SerialOrder, SeesAValueThatNobodyMeant) {
  EXPECT_NE(verdict({}, {7, 0, 0}), "");
  EXPECT_NE(verdict({{1, b, 1, 2, true}}, {1, 1, 0}), "");
}

TEST(SerialOrder, AcceptsAValueThatWasBroughtBack) {
  const std::vector<Transaction> there_and_back = {
      {1, a | b, 1, 2, true}, {2, a | b, 3, 4, true}, {1, a | b, 5, 6, true}};
  EXPECT_EQ(verdict(there_and_back, {1, 1, 0}), "");
  EXPECT_NE(verdict(there_and_back, {2, 2, 0}), "");
  EXPECT_NE(
      verdict({{1, a | b, 1, 2, true}, {2, a | b, 3, 4, true}, {1, a | b, 5, 6, true}, {3, a, 7, 8, true}}, {1, 1, 0}),
      "");
}

TEST(SerialOrder, SeesAnOrderThatTimeForbids) {
  // 2 came after 1 had ended, 3 shares a tensor with both: 1 after 3 after 2.
  EXPECT_NE(verdict({{1, a | b, 1, 2, true}, {2, c, 3, 4, true}, {3, b | c, 1, 9, true}}, {1, 1, 3}), "");
}

TEST(LedgerTest, TheFirstVersionCanBeBroughtBack) {
  const std::unique_ptr<void, decltype(&std::free)> memory(std::calloc(Ledger::bytes(), 1), &std::free);
  Ledger &ledger = Ledger::make(memory.get());
  const uint64_t forth = ledger.take_version(), back = ledger.take_version();
  ledger.intend(0, forth, 1);
  ledger.acknowledge(forth);
  ledger.intend(0, back, 1, 0);
  ledger.acknowledge(back);
  const auto log = ledger.since_start();
  ASSERT_EQ(log.size(), 2u);
  EXPECT_EQ(log[0].version, forth);
  EXPECT_EQ(log[1].version, 0u);
}

TEST(Value, TellsItsVersionAndEveryForeignByte) {
  const Layout layout({4099, 8});
  Bytes bytes = layout.value(0, 17);
  EXPECT_EQ(version_of(bytes, 0), 17u);
  EXPECT_EQ(version_of(bytes, 1), std::nullopt);
  for (size_t i : {size_t{0}, size_t{8}, size_t{2048}, size_t{4098}}) {
    Bytes other = bytes;
    other[i] ^= std::byte{1};
    EXPECT_EQ(version_of(other, 0), std::nullopt) << "byte " << i;
  }
}

TEST(Value, OfAStepTellsItsGroundAndHalfAStep) {
  constexpr uint32_t size = 40000;
  Bytes ground(size), step(size);
  fill(ground, 0, 17);
  fill(step, 0, Value{18, 17});
  const auto seen = value_of(step, 0);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->version, 18u);
  EXPECT_EQ(seen->ground, 17u);
  size_t changed = 0;
  for (size_t at = 0; at < size; at += 8) {
    if (std::equal(&step[at], &step[at] + 8, &ground[at])) continue;
    ++changed;
    Bytes half = step;
    std::copy(&ground[at], &ground[at] + 8, &half[at]);
    EXPECT_EQ(version_of(half, 0), std::nullopt) << "byte " << at;
  }
  EXPECT_GT(changed, 20u);
  EXPECT_LT(changed, size / 8 / 20);
}

TEST(Value, EachOfItsSectorsTellsWhatItIsOf) {
  constexpr uint32_t size = 131071, sector = 512;
  Bytes bytes(size);
  fill(bytes, 11, Value{812, 640});
  EXPECT_EQ(stamps(bytes, 11), "  sectors 0 to 255: 812 on 640\n");
  Bytes other(size);
  fill(other, 11, Value{790, 640});
  std::copy(&other[64 * sector], &other[96 * sector], &bytes[64 * sector]);  // by the step's words
  std::fill(&bytes[200 * sector], &bytes[201 * sector], std::byte{0xEE});
  const std::string told = stamps(bytes, 11);
  EXPECT_NE(told.find("812 on 640\n"), std::string::npos) << told;
  EXPECT_NE(told.find("790 on 640\n"), std::string::npos) << told;
  EXPECT_NE(told.find("  sectors 200 to 200: a mix\n"), std::string::npos) << told;
}

TEST(LedgerTest, TellsWhatCameToATensorLast) {
  const std::unique_ptr<void, decltype(&std::free)> memory(std::calloc(Ledger::bytes(), 1), &std::free);
  Ledger &ledger = Ledger::make(memory.get());
  ledger.start_over({0, 0});
  const uint64_t first = ledger.take_version(), second = ledger.take_version();
  ledger.intend(0, first, 1);
  ledger.acknowledge(first);
  ledger.doing(1, "a test");
  ledger.intend(1, second, 3, first);
  ledger.bury(1);
  EXPECT_EQ(ledger.last_of(0),
            "  3 to 4: worker 1, version 2, brings back 1, killed at a test\n"
            "  1 to 2: worker 0, version 1, acknowledged\n"
            "  before these the chapter began with 0\n");
}
