// Which elements of a range change, and to what: what the journal holds of a range instead of all its bytes.
//
//   changes := width skip zero zero count gap* value*
//   width   := u8         bytes of an element: 1, 2, 4, 8
//   skip    := u8         bytes before the first element that begins in the range
//   count   := u32le      of values
//   gap     := u8         elements between one that changes and the one before; 255: so many, and none changes there
//   value   := width bytes, the new ones
//
// Laid twice they are laid as once. Pure: no I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace st::write {

inline constexpr uint64_t changes_head = 8;
// For a range of n bytes: each byte has a gap and a value.
constexpr uint64_t longest_changes(uint64_t n) {
  return changes_head + 2 * n;
}

// Elements of a block, by ascending numbers, that have new values there.
struct ChangedElements {
  std::span<const std::byte> fresh;  // the block
  std::span<const uint32_t> places;
  uint32_t width;
};

// Those of the block's bytes [begin, begin + n), which cut no element that changes: places[*next] is the first of them,
// and afterwards that behind the last. To `to`, with room for longest_changes(n). Answers how many bytes it took.
uint64_t pack_changes(const ChangedElements &changed, uint64_t begin, uint64_t n, size_t *next, std::byte *to);
// Over the range's bytes. False: they are damaged, and some of it is done; nothing outside was touched.
bool lay_changes(std::span<const std::byte> packed, std::span<std::byte> range);

}  // namespace st::write
