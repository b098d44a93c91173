// What changes of a range, packed and laid over it again.
#include "journal/changes.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "journal/journal_layout.h"

namespace st::testing {
namespace {

using write::changes_head;
using write::lay_changes;
using write::longest_changes;
using write::pack_changes;

struct Range {
  uint64_t begin, length;
};

std::string some_bytes(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes(n, '\0');
  for (char &c : bytes) c = static_cast<char>(random());
  return bytes;
}

std::string packed_of(const std::string &fresh, const std::vector<uint32_t> &places, uint32_t width, Range range,
                      size_t *next) {
  std::string packed(longest_changes(range.length), '\0');
  packed.resize(pack_changes({std::as_bytes(std::span(fresh)), places, width}, range.begin, range.length, next,
                             reinterpret_cast<std::byte *>(packed.data())));
  return packed;
}

bool lay(const std::string &packed, std::string *range) {
  return lay_changes(std::as_bytes(std::span(packed)), std::as_writable_bytes(std::span(*range)));
}

TEST(Changes, LaidOverTheirRangeAreTheNewBytesAndTwiceAsOnce) {
  constexpr size_t n = 20000;
  for (const uint32_t width : {1, 2, 4, 8})
    for (const uint32_t every : {1, 3, 254, 255, 256, 257, 700}) {
      const std::string old = some_bytes(n, 1), made = some_bytes(n, 2);
      std::string fresh = old;
      std::vector<uint32_t> places;
      for (uint32_t p = every - 1; (p + 1) * width <= n; p += every) {
        places.push_back(p);
        fresh.replace(p * width, width, made, p * width, width);
      }
      // From bytes on at which no element begins, too; an element that changes is cut nowhere.
      size_t next = 0;
      std::string all = old;
      for (uint64_t begin = 0; begin < n;) {
        uint64_t end = std::min<uint64_t>(n, begin + 4099);
        while (end < n && end % width != 0 && std::binary_search(places.begin(), places.end(), end / width)) ++end;
        const Range range{begin, end - begin};
        const std::string packed = packed_of(fresh, places, width, range, &next);
        std::string bytes = old.substr(begin, range.length);
        for (int twice = 0; twice < 2; ++twice) {
          ASSERT_TRUE(lay(packed, &bytes)) << width << " " << every << " " << begin;
          ASSERT_EQ(bytes, fresh.substr(begin, range.length)) << width << " " << every << " " << begin;
        }
        all.replace(begin, range.length, bytes);
        begin = end;
      }
      EXPECT_EQ(next, places.size());
      EXPECT_EQ(all, fresh);
    }
}

TEST(Changes, AreNoLongerThanIsSaid) {
  const std::string fresh = some_bytes(5000, 3);
  std::vector<uint32_t> places(5000);
  for (uint32_t i = 0; i < 5000; ++i) places[i] = i;
  size_t next = 0;
  EXPECT_EQ(packed_of(fresh, places, 1, {0, 5000}, &next).size(), longest_changes(5000));
}

TEST(Changes, ThatAreDamagedTouchNothingOutsideOfTheRange) {
  const std::string fresh = some_bytes(3000, 4);
  const std::vector<uint32_t> places = {0, 1, 400, 1499};
  size_t next = 0;
  const std::string good = packed_of(fresh, places, 2, {0, 3000}, &next);
  constexpr size_t margin = 64;
  const auto lay_within = [&](const std::string &packed, size_t n) {
    std::string around(margin + n + margin, 'x');
    const bool laid =
        lay_changes(std::as_bytes(std::span(packed)), std::as_writable_bytes(std::span(around)).subspan(margin, n));
    EXPECT_EQ(around.substr(0, margin) + around.substr(margin + n), std::string(2 * margin, 'x'));
    return laid;
  };
  ASSERT_TRUE(lay_within(good, 3000));
  EXPECT_FALSE(lay_within(good, 2998));                             // the last leads out
  EXPECT_FALSE(lay_within(good.substr(0, good.size() - 1), 3000));  // a gap less than values
  EXPECT_FALSE(lay_within(good + '\0', 3000));                      // and one more
  for (size_t n = 0; n < changes_head; ++n) EXPECT_FALSE(lay_within(good.substr(0, n), 3000));
  for (const char width : {'\0', '\3', '\5', '\x10', '\xff'}) {
    std::string bad = good;
    bad[0] = width;
    EXPECT_FALSE(lay_within(bad, 3000)) << static_cast<int>(width);
  }
  for (const char width : {1, 2, 4, 8}) {
    const std::string value(static_cast<size_t>(width), 'v'), head = std::string{width, 0, 0, 0, 1, 0, 0, 0};
    EXPECT_TRUE(lay_within(head + '\3' + value, 32));
    EXPECT_FALSE(lay_within(head + '\4' + value, 4 * value.size()));           // leads out
    EXPECT_FALSE(lay_within(head + std::string(2, '\1') + value, 32));         // two places, one value
    EXPECT_FALSE(lay_within(head + std::string(2, '\xff') + value, 32));       // a value, no place
    EXPECT_FALSE(lay_within(std::string{8, 2, 0, 0, 0, 0, 0, 0} + value, 1));  // begins behind the end
  }
  std::string skipped = good;
  skipped[1] = 2;
  EXPECT_FALSE(lay_within(skipped, 3000));
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    std::string bad = good;
    for (int k = 0; k < 2; ++k) bad[random() % bad.size()] = static_cast<char>(random());
    lay_within(bad, random() % 3001);
  }
}

}  // namespace
}  // namespace st::testing
