// What is staged of a tensor in parts, against an array of bytes.
#include "file/slice_map.h"

#include <random>

#include "test_files.h"

namespace st::store {
namespace {

using testing::is_ok;

// Each byte of the tensor: whose it is, and which of it.
struct Owner {
  size_t payload = SIZE_MAX;
  uint64_t at = 0;
  bool operator==(const Owner &) const = default;
};

std::vector<Owner> owners_of(const SliceMap &map, uint64_t size) {
  std::vector<Owner> owners(size);
  uint64_t end = 0;
  map.each([&](const Strip &s) {
    EXPECT_GE(s.begin, end);
    EXPECT_GT(s.length, 0u);
    end = s.end();
    for (uint64_t i = 0; i < s.length; ++i) owners[s.begin + i] = {s.payload, s.skip + i};
  });
  return owners;
}

TEST(SliceMap, TheLastWins) {
  std::mt19937_64 random(11);
  for (int trial = 0; trial < 300; ++trial) {
    constexpr uint64_t size = 200;
    SliceMap map;
    std::vector<Owner> model(size);
    for (size_t payload = 0; payload < 30; ++payload) {
      const uint64_t begin = random() % size, length = std::min(random() % 60, size - begin), skip = random() % 3;
      map.put({begin, length, payload, skip});
      for (uint64_t i = 0; i < length; ++i) model[begin + i] = {payload, skip + i};
      ASSERT_TRUE(owners_of(map, size) == model) << trial << ", " << payload;
    }
    const auto covered =
        std::count_if(model.begin(), model.end(), [](const Owner &o) { return o.payload != SIZE_MAX; });
    EXPECT_EQ(map.bytes(), static_cast<uint64_t>(covered));
  }
}

TEST(SliceMap, WhatGoesOnInItsPayloadIsOneStrip) {
  SliceMap map;
  map.put({0, 10, 0, 0});
  map.put({10, 10, 0, 10});
  map.put({20, 10, 0, 25});  // not the next bytes of it
  map.put({30, 10, 1, 35});  // of another
  size_t strips = 0;
  map.each([&](const Strip &) { ++strips; });
  EXPECT_EQ(strips, 3u);
}

struct Taken {
  uint64_t begin, end;
  bool gathered;
  bool operator==(const Taken &) const = default;
};
std::vector<Taken> taken(const SliceMap &map) {
  std::vector<Taken> out;
  EXPECT_TRUE(is_ok(map.each_stretch([&](const SliceMap::Stretch &s) -> Result<void> {
    out.push_back({s.begin, s.end, s.gathered()});
    return {};
  })));
  return out;
}

TEST(SliceMap, ShortStripsLessThanAPageApartAreTakenTogether) {
  SliceMap map;
  map.put({0, 100, 0, 0});
  map.put({4195, 100, 1, 0});  // 4095 behind
  map.put({8391, 100, 2, 0});  // 4096
  EXPECT_EQ(taken(map), (std::vector<Taken>{{0, 4295, true}, {8391, 8491, false}}));
}

TEST(SliceMap, LongStripsStayAlone) {
  SliceMap map;
  map.put({0, 100, 0, 0});
  map.put({100, 2048, 1, 0});
  map.put({2148, 2047, 2, 0});
  map.put({4204, 1, 3, 0});
  EXPECT_EQ(taken(map), (std::vector<Taken>{{0, 100, false}, {100, 2148, false}, {2148, 4205, true}}));
}

TEST(SliceMap, NoMoreThanAMebibyteIsTakenTogether) {
  SliceMap map;
  for (size_t i = 0; i < 3000; ++i) map.put({i * 1000, 900, i, 0});
  uint64_t begin = 0;
  for (const Taken &t : taken(map)) {
    EXPECT_GE(t.begin, begin);
    EXPECT_LE(t.end - t.begin, longest_gathered);
    begin = t.end;
  }
  EXPECT_EQ(taken(map).size(), 3u);
}

TEST(SliceMap, EndsWithTheFirstFailure) {
  SliceMap map;
  map.put({0, 1, 0, 0});
  map.put({5000, 1, 1, 0});
  int asked = 0;
  EXPECT_TRUE(testing::fails_with(Status::io, map.each_stretch([&](const SliceMap::Stretch &) -> Result<void> {
    ++asked;
    return fail(Status::io, "no");
  })));
  EXPECT_EQ(asked, 1);
}

TEST(Cover, JoinsWhatIsNearerThanTheGap) {
  const std::vector<Covered> ranges = {{0, 10}, {10, 20}, {25, 30}, {130, 140}};
  const auto ends = [](const std::vector<Covered> &covered) {
    std::vector<uint64_t> out;
    for (const Covered &c : covered) out.push_back(c.end);
    return out;
  };
  EXPECT_EQ(ends(cover(ranges, 1)), (std::vector<uint64_t>{20, 30, 140}));
  EXPECT_EQ(ends(cover(ranges, 5)), (std::vector<uint64_t>{20, 30, 140}));
  EXPECT_EQ(ends(cover(ranges, 6)), (std::vector<uint64_t>{30, 140}));
  EXPECT_EQ(ends(cover({}, 6, 1)), std::vector<uint64_t>());
  // No more than so many, the nearest first.
  EXPECT_EQ(ends(cover(ranges, 1, 4)), (std::vector<uint64_t>{20, 30, 140}));
  EXPECT_EQ(ends(cover(ranges, 0, 4)), (std::vector<uint64_t>{10, 20, 30, 140}));
  EXPECT_EQ(ends(cover(ranges, 0, 2)), (std::vector<uint64_t>{30, 140}));
  EXPECT_EQ(ends(cover(ranges, 0, 1)), (std::vector<uint64_t>{140}));
}

// Tensors of one size that lie equally far apart: only so many gaps go as must.
TEST(Cover, JoinsNoMoreThanItMustWhereGapsAreEqual) {
  for (const size_t most : {1, 2, 4096}) {
    std::vector<Covered> ranges;
    for (uint64_t i = 0; i < 4097; ++i) ranges.push_back({i * 20, i * 20 + 10});
    ranges.front().end -= 1;  // a gap that is longer stays longest
    const std::vector<Covered> covered = cover(ranges, 0, most);
    ASSERT_EQ(covered.size(), most);
    EXPECT_EQ(covered.front().begin, ranges.front().begin);
    EXPECT_EQ(covered.back().end, ranges.back().end);
    EXPECT_EQ(covered.front().end, most > 1 ? ranges.front().end : ranges.back().end);
  }
}

}  // namespace
}  // namespace st::store
