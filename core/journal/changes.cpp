#include "journal/changes.h"

#include <cstring>

#include "base/check.h"

namespace st::write {
namespace {

constexpr uint32_t most_gap = 255;

void put_head(std::byte *to, uint32_t width, uint64_t skip, uint64_t count) {
  const uint64_t head[] = {width, skip, 0, 0, count, count >> 8, count >> 16, count >> 24};
  for (const uint64_t byte : head) *to++ = static_cast<std::byte>(byte);
}

template <class Word>
bool lay(std::span<const std::byte> gaps, const std::byte *values, uint64_t count, std::byte *to, uint64_t elements) {
  uint64_t at = 0, laid = 0;
  for (const std::byte gap : gaps) {
    at += std::to_integer<uint64_t>(gap);
    if (gap == std::byte{most_gap}) continue;
    if (at >= elements || laid == count) return false;
    std::memcpy(to + at * sizeof(Word), values + laid * sizeof(Word), sizeof(Word));
    ++at;
    ++laid;
  }
  return laid == count;
}

}  // namespace

uint64_t pack_changes(const ChangedElements &changed, uint64_t begin, uint64_t n, size_t *next, std::byte *to) {
  const uint32_t width = changed.width;
  const uint64_t skip = (width - begin % width) % width;
  const size_t first = *next;
  size_t behind = first;
  std::byte *at = to + changes_head;
  uint64_t expected = (begin + skip) / width;
  for (; behind < changed.places.size() && changed.places[behind] * uint64_t{width} < begin + n; ++behind) {
    uint64_t gap = changed.places[behind] - expected;
    for (; gap >= most_gap; gap -= most_gap) *at++ = std::byte{most_gap};
    *at++ = static_cast<std::byte>(gap);
    expected = uint64_t{changed.places[behind]} + 1;
  }
  for (size_t i = first; i < behind; ++i, at += width)
    std::memcpy(at, changed.fresh.data() + uint64_t{changed.places[i]} * width, width);
  put_head(to, width, skip, behind - first);
  *next = behind;
  return static_cast<uint64_t>(at - to);
}

bool lay_changes(std::span<const std::byte> packed, std::span<std::byte> range) {
  if (packed.size() < changes_head) return false;
  const uint64_t width = std::to_integer<uint64_t>(packed[0]), skip = std::to_integer<uint64_t>(packed[1]);
  uint64_t count = 0;
  for (size_t i = 8; i-- > 4;) count = count << 8 | std::to_integer<uint64_t>(packed[i]);
  if (width != 1 && width != 2 && width != 4 && width != 8) return false;
  const auto body = packed.subspan(changes_head);
  if (skip >= width || skip > range.size() || count > body.size() / width) return false;
  const auto gaps = body.first(body.size() - count * width);
  const std::byte *values = body.data() + gaps.size();
  std::byte *to = range.data() + skip;
  const uint64_t elements = (range.size() - skip) / width;
  if (width == 1) return lay<uint8_t>(gaps, values, count, to, elements);
  if (width == 2) return lay<uint16_t>(gaps, values, count, to, elements);
  if (width == 4) return lay<uint32_t>(gaps, values, count, to, elements);
  return lay<uint64_t>(gaps, values, count, to, elements);
}

}  // namespace st::write
