#include "base/visible.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace st {
namespace {

struct Block {
  uint32_t first, last;
};

// As `stctl` escapes them, and the backslash not: the sentences of libst have some already.
constexpr Block invisible[] = {
    {0, 0x1f},        {0x7f, 0x9f},        // control characters
    {0xad, 0xad},     {0x61c, 0x61c},      // soft hyphen, Arabic letter mark
    {0x200b, 0x200f}, {0x2028, 0x202e},    // zero width, direction marks; line ends, overrides
    {0x2060, 0x206f}, {0xfeff, 0xfeff},    // invisible operators, isolates
    {0xfff9, 0xfffb}, {0xe0000, 0xe00ff},  // annotations, tags
};

size_t length_by(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead < 0xe0) return 2;
  if (lead >= 0xe0 && lead < 0xf0) return 3;
  return lead >= 0xf0 && lead < 0xf5 ? 4 : 0;
}

}  // namespace

Character take_character(std::string_view *text) {
  const auto byte = [text](size_t i) { return static_cast<uint8_t>((*text)[i]); };
  const size_t n = length_by(byte(0));
  bool good = n != 0 && n <= text->size();
  uint32_t c = n < 2 ? byte(0) : byte(0) & (0x7fu >> n);
  for (size_t i = 1; good && i < n; ++i) {
    good = (byte(i) & 0xc0) == 0x80;
    c = c << 6 | (byte(i) & 0x3fu);
  }
  good = good && !(n == 3 && (c < 0x800 || (c >= 0xd800 && c < 0xe000))) && !(n == 4 && (c < 0x10000 || c > 0x10ffff));
  const std::string_view taken = text->substr(0, good ? n : 1);
  text->remove_prefix(taken.size());
  const bool hides = std::any_of(std::begin(invisible), std::end(invisible),
                                 [c](const Block &block) { return block.first <= c && c <= block.last; });
  return {taken, good && !hides};
}

}  // namespace st
