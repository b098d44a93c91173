// From stretches of a file to requests: every byte once, in order, in blocks.
#include "read/requests.h"

#include <map>
#include <random>

#include "test_files.h"

namespace st::read {
namespace {

constexpr uint64_t block = 64 << 10;

std::byte *at(uint64_t n) {
  return reinterpret_cast<std::byte *>(n);
}

// What a plan must be, whatever it was made of.
void expect_sound(const Plan &plan, std::vector<Piece> pieces, uint64_t block_size, uint64_t gap, size_t most_parts) {
  // The parts, put together again, are the pieces.
  std::multimap<uintptr_t, std::pair<uint64_t, uint64_t>> by_destination;  // offset, length
  uint64_t wanted = 0;
  for (const Piece &p : pieces) wanted += p.length;
  EXPECT_EQ(plan.wanted, wanted);
  uint64_t parts_sum = 0;
  size_t next = 0;
  for (const Request &r : plan.requests) {
    ASSERT_EQ(r.first, next) << "requests take the pieces in order";
    ASSERT_GT(r.count, 0u);
    ASSERT_GT(r.length, 0u);
    ASSERT_EQ(r.offset / block_size, (r.offset + r.length - 1) / block_size) << "a request lies in one block";
    next += r.count;
    uint64_t here = r.offset;
    const uint64_t sum_before = parts_sum;
    size_t parts = 0;
    for (size_t i = r.first; i < r.first + r.count; ++i) {
      const Piece &p = plan.pieces[i];
      ASSERT_GE(p.offset, here);
      ASSERT_LE(p.offset - here, gap);
      parts += p.offset > here ? 2 : 1;
      here = p.offset + p.length;
      parts_sum += p.length;
      by_destination.emplace(reinterpret_cast<uintptr_t>(p.to), std::pair{p.offset, p.length});
    }
    ASSERT_EQ(here, r.offset + r.length);
    ASSERT_LE(parts, std::max<size_t>(most_parts, 2));
    ASSERT_EQ(wanted_of(plan, r), parts_sum - sum_before);
  }
  ASSERT_EQ(next, plan.pieces.size());
  ASSERT_EQ(parts_sum, wanted);
  for (const Piece &p : pieces)  // destinations are apart, so that each part belongs to one piece
    for (uint64_t done = 0; done < p.length;) {
      auto part = by_destination.find(reinterpret_cast<uintptr_t>(p.to) + done);
      ASSERT_NE(part, by_destination.end());
      ASSERT_EQ(part->second.first, p.offset + done);
      done += part->second.second;
      ASSERT_LE(done, p.length);
      by_destination.erase(part);
    }
  ASSERT_TRUE(by_destination.empty());
}

TEST(Requests, NeighboursAreOneRequest) {
  const Plan plan = plan_requests({{200, 100, at(5000)}, {100, 100, at(1000)}, {300, 50, at(9000)}}, block, 0, 512);
  ASSERT_EQ(plan.requests.size(), 1u);
  EXPECT_EQ(plan.requests[0].offset, 100u);
  EXPECT_EQ(plan.requests[0].length, 250u);
  EXPECT_EQ(plan.requests[0].count, 3u);
}

// However many they are: 4096 pieces fill a request of a block, where a call takes 512 parts.
TEST(Requests, NeighboursInTheFileAndInMemoryAreOnePiece) {
  constexpr uint64_t length = block / 4096;
  std::vector<Piece> pieces, scattered, nowhere;
  for (uint64_t i = 0; i < 3 * 4096; ++i) {
    pieces.push_back({i * length, length, at(1 << 20) + i * length});
    scattered.push_back({i * length, length, at(1 << 20) + i * (length + 1)});
    nowhere.push_back({i * length, length, nullptr});
  }
  for (const auto &touching : {pieces, nowhere}) {
    const Plan plan = plan_requests(touching, block, 0, 512);
    ASSERT_EQ(plan.requests.size(), 3u);
    ASSERT_EQ(plan.pieces.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(plan.requests[i].length, block);
      EXPECT_EQ(plan.requests[i].count, 1u);
      EXPECT_EQ(plan.pieces[i].to, touching[4096 * i].to);
      EXPECT_EQ(plan.pieces[i].length, block);
    }
    EXPECT_EQ(plan.wanted, 3 * block);
  }
  expect_sound(plan_requests(scattered, block, 0, 512), scattered, block, 0, 512);
  // Not across what nobody wants, nor from memory to nowhere.
  const Plan apart = plan_requests({{0, 10, at(4096)}, {20, 10, at(4096 + 10)}, {30, 10, nullptr}}, block, 100, 512);
  EXPECT_EQ(apart.requests.size(), 1u);
  EXPECT_EQ(apart.pieces.size(), 3u);
}

TEST(Requests, AGapIsReadThroughUpToItsBound) {
  for (const auto &[begin, requests] : {std::pair{1100u, 1u}, {1101u, 2u}}) {
    const Plan plan = plan_requests({{0, 100, at(4096)}, {begin, 10, at(9000)}}, block, 1000, 512);
    EXPECT_EQ(plan.requests.size(), requests) << begin;
    EXPECT_EQ(plan.wanted, 110u);
  }
}

TEST(Requests, LongPiecesAreCutAtBlocksOfTheFile) {
  const Plan plan = plan_requests({{block - 10, 2 * block, at(4096)}}, block, 0, 512);
  ASSERT_EQ(plan.requests.size(), 3u);
  EXPECT_EQ(plan.requests[0].length, 10u);
  EXPECT_EQ(plan.requests[1].length, block);
  EXPECT_EQ(plan.requests[2].length, block - 10);
  EXPECT_EQ(plan.pieces[1].to, at(4096 + 10));
}

TEST(Requests, PiecesWithoutADestinationKeepNone) {
  const Plan plan = plan_requests({{0, 3 * block, nullptr}}, block, 0, 512);
  ASSERT_EQ(plan.pieces.size(), 3u);
  for (const Piece &p : plan.pieces) EXPECT_EQ(p.to, nullptr);
}

TEST(Requests, NothingIsNoRequest) {
  EXPECT_TRUE(plan_requests({}, block, 0, 512).requests.empty());
  EXPECT_TRUE(plan_requests({{5, 0, at(1)}, {7, 0, at(2)}}, block, 0, 512).requests.empty());
}

TEST(Requests, ManySmallPiecesDoNotExceedWhatOneCallTakes) {
  std::vector<Piece> pieces;
  for (uint64_t i = 0; i < 2000; ++i) pieces.push_back({i * 4, 2, at(4096 + i * 16)});
  const Plan plan = plan_requests(pieces, block, 16, 512);
  EXPECT_GE(plan.requests.size(), 2000u * 2 / 512);
  expect_sound(plan, pieces, block, 16, 512);
}

TEST(Requests, OffsetsNearTheEndOfAllFilesDoNotWrap) {
  const uint64_t end = uint64_t{INT64_MAX};
  const std::vector<Piece> pieces = {{end - 3 * block - 5, 3 * block, at(4096)}, {end - 5, 5, at(1 << 30)}};
  const Plan plan = plan_requests(pieces, block, 10, 512);
  expect_sound(plan, pieces, block, 10, 512);
}

TEST(Requests, AnyPiecesAreCoveredExactlyOnce) {
  std::mt19937 random(20261121);
  for (int round = 0; round < 300; ++round) {
    const uint64_t block_size = uint64_t{4096} << (random() % 5), gap = random() % 3 ? random() % 10000 : 0;
    const size_t most_parts = 2 + random() % 20;
    std::vector<Piece> pieces;
    uint64_t to = 4096;
    for (size_t n = random() % 60; n > 0; --n) {
      const uint64_t length = random() % 4 ? random() % 3000 : random() % 300000;
      pieces.push_back({random() % 2000000, length, at(to)});
      to += length + 1;
    }
    const Plan plan = plan_requests(pieces, block_size, gap, most_parts);
    expect_sound(plan, pieces, block_size, gap, most_parts);
    for (size_t shares = 1; shares <= 9; ++shares) {
      const auto parts = share_out(plan.requests, shares);
      ASSERT_EQ(parts.size(), shares);
      const Request *next = plan.requests.data();
      for (const auto &part : parts) {
        ASSERT_EQ(part.data(), next) << "the shares lie one behind the other";
        next += part.size();
      }
      ASSERT_EQ(next, plan.requests.data() + plan.requests.size());
    }
    if (::testing::Test::HasFatalFailure()) FAIL() << "round " << round;
  }
}

TEST(Requests, SharesAreOfAboutTheSameSize) {
  const Plan plan = plan_requests({{0, 100 * block, nullptr}}, block, 0, 512);
  for (const auto &share : share_out(plan.requests, 7)) {
    EXPECT_GE(share.size(), 14u);
    EXPECT_LE(share.size(), 16u);
  }
}

}  // namespace
}  // namespace st::read
