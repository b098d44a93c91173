#include "delta/steps.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "base/little_endian.h"

namespace st::store {
namespace {

constexpr uint64_t group = 64;  // elements that are looked at together
constexpr uint64_t at_once = 4;

// Which elements of a group differ: bit i is element i.
struct Differing {
  uint64_t bits = 0, count = 0;
};

// Compilers make vectors of the first loop.
template <class Word>
Differing differing(const std::byte *old, const std::byte *fresh) {
  uint8_t differs[group];
  for (uint64_t i = 0; i < group; ++i) {
    Word a, b;
    std::memcpy(&a, old + i * sizeof a, sizeof a);
    std::memcpy(&b, fresh + i * sizeof b, sizeof b);
    differs[i] = a != b;
  }
  Differing found;
  uint64_t sums = 0;  // a byte each
  for (uint64_t i = 0; i < group; i += 8) {
    const uint64_t eight = load_u64le(differs + i);
    found.bits |= (eight * 0x0102040810204080 >> 56) << i;
    sums += eight;
  }
  found.count = sums * 0x0101010101010101 >> 56;
  return found;
}

// The places of the elements that differ, ascending; behind them, up to three more are written. Answers how many.
template <class Word>
uint32_t find_differing(const std::byte *old, const std::byte *fresh, uint64_t n, uint32_t *places) {
  uint32_t *to = places;
  uint64_t i = 0;
  for (; i + group <= n; i += group) {
    auto [some, count] = differing<Word>(old + i * sizeof(Word), fresh + i * sizeof(Word));
    // Some at a time without a branch, which would be guessed wrong in nearly every group.
    uint32_t *const end = to + count;
    while (to < end) {
      for (uint64_t k = 0; k < at_once; ++k, some &= some - 1)
        to[k] = static_cast<uint32_t>(i) + static_cast<uint32_t>(std::countr_zero(some));
      to += at_once;
    }
    to = end;
  }
  for (; i < n; ++i)
    if (std::memcmp(old + i * sizeof(Word), fresh + i * sizeof(Word), sizeof(Word)) != 0)
      *to++ = static_cast<uint32_t>(i);
  return static_cast<uint32_t>(to - places);
}

// A row for each of the elements that differ.
template <class Word>
void fill(const StepColumns &columns, const std::byte *old, const std::byte *fresh, const uint32_t *places,
          uint32_t count) {
  std::byte *gaps = columns.column(0);
  gaps[0] = static_cast<std::byte>(places[0]);
  uint32_t all = places[0];  // bits that a gap has
  for (uint32_t i = 1; i < count; ++i) {
    const uint32_t gap = places[i] - places[i - 1] - 1;
    gaps[i] = static_cast<std::byte>(gap);
    all |= gap;
  }
  for (uint32_t c = 1; c < StepColumns::gap_columns; ++c) {
    gaps = columns.column(c);
    if (all >> (8 * c) == 0) {
      std::memset(gaps, 0, count);
      continue;
    }
    gaps[0] = static_cast<std::byte>(places[0] >> (8 * c));
    for (uint32_t i = 1; i < count; ++i) gaps[i] = static_cast<std::byte>((places[i] - places[i - 1] - 1) >> (8 * c));
  }
  std::byte *to[sizeof(Word)];
  for (uint32_t c = 0; c < sizeof(Word); ++c) to[c] = columns.column(StepColumns::gap_columns + c);
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t at = uint64_t{places[i]} * sizeof(Word);
    Word a, b;
    std::memcpy(&a, old + at, sizeof a);
    std::memcpy(&b, fresh + at, sizeof b);
    a ^= b;
    std::byte by[sizeof a];
    std::memcpy(by, &a, sizeof a);
    for (uint32_t c = 0; c < sizeof(Word); ++c) to[c][i] = by[c];
  }
}

// False: the rows lead out of the block.
template <class Word>
bool step(const StepColumns &columns, uint32_t count, std::byte *block, uint64_t n, uint32_t *places) {
  const std::byte *from[StepColumns::gap_columns + sizeof(Word)];
  for (uint32_t c = 0; c < std::size(from); ++c) from[c] = columns.column(c);
  uint64_t at = 0;
  for (uint32_t i = 0; i < count; ++i, ++at) {
    for (uint32_t c = 0; c < StepColumns::gap_columns; ++c) at += std::to_integer<uint64_t>(from[c][i]) << (8 * c);
    if (at >= n) return false;
    places[i] = static_cast<uint32_t>(at);
    std::byte word[sizeof(Word)];
    for (uint32_t c = 0; c < sizeof(Word); ++c) word[c] = from[StepColumns::gap_columns + c][i];
    Word by, now;
    std::memcpy(&by, word, sizeof by);
    std::memcpy(&now, block + at * sizeof now, sizeof now);
    now ^= by;
    std::memcpy(block + at * sizeof now, &now, sizeof now);
  }
  return true;
}

// Calls take(Word()) with the unsigned integer that is as wide as an element.
template <class Take>
auto as_wide_as(uint32_t width, Take take) {
  if (width == 1) return take(uint8_t());
  if (width == 2) return take(uint16_t());
  if (width == 4) return take(uint32_t());
  return take(uint64_t());
}

void store_u32le(std::byte *to, uint32_t value) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<std::byte>(value >> (8 * i));
}

uint32_t load_u32le(const std::byte *from) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value |= std::to_integer<uint32_t>(from[i]) << (8 * i);
  return value;
}

uint64_t head_bytes(uint32_t width) {
  return 12 + sizeof(uint32_t) * uint64_t{StepColumns::count_of(width)};
}

Failure damaged(std::string_view what) {
  return fail(Status::delta, "the steps are damaged: ", what, "; make the delta anew");
}

}  // namespace

uint32_t step_width(Dtype dtype) {
  return std::max(dtype_bits(dtype), 8u) / 8;
}

std::span<const std::byte> StepWriter::steps_of(Dtype dtype, uint64_t number, std::span<const std::byte> old,
                                                std::span<const std::byte> fresh) {
  const uint32_t width = step_width(dtype), columns = StepColumns::count_of(width);
  const uint64_t elements = old.size() / width;
  uint32_t *const places = places_.take(elements + at_once);
  const uint32_t count = as_wide_as(
      width, [&](auto word) { return find_differing<decltype(word)>(old.data(), fresh.data(), elements, places); });
  if (count == 0) return {};
  columns_.begin(width, count);
  as_wide_as(width, [&](auto word) { fill<decltype(word)>(columns_, old.data(), fresh.data(), places, count); });
  std::byte *const out = out_.take(head_bytes(width) + columns * Compressor::bound(count));
  store_u64le(out, number);
  store_u32le(out + 8, count);
  uint64_t n = head_bytes(width);
  for (uint32_t c = 0; c < columns; ++c) {
    const uint64_t size = compressor_.compress(out + n, columns_.column(c), count);
    store_u32le(out + 12 + sizeof(uint32_t) * c, static_cast<uint32_t>(size));
    n += size;
  }
  return {out, static_cast<size_t>(n)};
}

StepReader::StepReader(Dtype dtype, uint64_t tensor_bytes, uint64_t step_bytes, Read read)
    : width_(step_width(dtype)), tensor_bytes_(tensor_bytes), left_(step_bytes), read_(std::move(read)) {}

Result<StepReader> StepReader::begin(Dtype dtype, uint64_t tensor_bytes, uint64_t step_bytes, Read read) {
  StepReader reader(dtype, tensor_bytes, step_bytes, std::move(read));
  ST_TRY(reader.read_head());
  return reader;
}

Result<void> StepReader::read_head() {
  count_ = 0;
  if (left_ == 0) return {};
  std::byte head[12 + 4 * std::size(decltype(sizes_){})];
  if (left_ < head_bytes(width_)) return damaged("a block is cut off");
  ST_TRY(read_(head, head_bytes(width_)));
  left_ -= head_bytes(width_);
  number_ = load_u64le(head);
  if (number_ < after_) return damaged("the blocks do not ascend");
  if (number_ >= tensor_bytes_ / step_block_bytes + 1 || number_ * step_block_bytes >= tensor_bytes_)
    return damaged("a block lies behind the tensor");
  const uint64_t elements = std::min(step_block_bytes, tensor_bytes_ - number_ * step_block_bytes) / width_;
  const uint32_t count = load_u32le(head + 8);
  if (count == 0 || count > elements) return damaged("a block has no steps, or more than elements");
  uint64_t total = 0;
  for (uint32_t c = 0; c < columns(); ++c) {
    sizes_[c] = load_u32le(head + 12 + sizeof(uint32_t) * c);
    if (sizes_[c] == 0 || sizes_[c] > Compressor::bound(count))
      return damaged("a column is empty, or longer than it can be");
    total += sizes_[c];
  }
  if (total > left_) return damaged("a block is cut off");
  count_ = count;
  after_ = number_ + 1;
  return {};
}

Result<void> StepReader::read_columns(StepRoom &room) {
  const uint64_t size = std::accumulate(sizes_, sizes_ + columns(), uint64_t{0});
  std::byte *packed = room.packed.take(size);
  ST_TRY(read_(packed, size));
  left_ -= size;
  room.columns.begin(width_, count_);
  for (uint32_t c = 0; c < columns(); ++c) {
    if (!room.compressor.expand(room.columns.column(c), count_, packed, sizes_[c]))
      return damaged("a column does not hold what its block says");
    packed += sizes_[c];
  }
  return {};
}

Result<void> StepReader::take(std::span<std::byte> block, StepRoom &room) {
  ST_TRY(read_columns(room));
  turn_ ^= 1;
  uint32_t *const places = places_[turn_].take(count_);
  const bool inside = as_wide_as(width_, [&](auto word) {
    return step<decltype(word)>(room.columns, count_, block.data(), block.size() / sizeof word, places);
  });
  if (!inside) return damaged("a step lies behind its block");
  taken_ = count_;
  return read_head();
}

}  // namespace st::store
