#include "delta/steps.h"

#include <algorithm>
#include <bit>
#include <cstring>

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

// A row for each element that differs. Answers how many.
template <class Word>
uint32_t fill(const StepColumns &columns, const std::byte *old, const std::byte *fresh, uint64_t n, uint32_t *places) {
  const uint32_t count = find_differing<Word>(old, fresh, n, places);
  if (count == 0) return 0;
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
  return count;
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

Failure damaged(std::string_view what) {
  return fail(Status::delta, "the steps are damaged: ", what, "; make the delta anew");
}

}  // namespace

uint32_t step_width(Dtype dtype) {
  return std::max(dtype_bits(dtype), 8u) / 8;
}

StepColumns::StepColumns(uint32_t width)
    : width_(width),
      room_(step_block_bytes / width),
      bytes_(std::make_unique_for_overwrite<std::byte[]>(room_ * columns())) {}

StepWriter::StepWriter(Dtype dtype)
    : columns_(step_width(dtype)),
      places_(std::make_unique_for_overwrite<uint32_t[]>(step_block_bytes / columns_.width() + at_once)),
      out_(std::make_unique_for_overwrite<std::byte[]>(
          columns_.head_bytes() + columns_.columns() * Compressor::bound(step_block_bytes / columns_.width()))) {}

std::span<const std::byte> StepWriter::steps_of(uint64_t number, std::span<const std::byte> old,
                                                std::span<const std::byte> fresh) {
  const uint32_t count = as_wide_as(columns_.width(), [&](auto word) {
    return fill<decltype(word)>(columns_, old.data(), fresh.data(), old.size() / sizeof word, places_.get());
  });
  if (count == 0) return {};
  store_u64le(out_.get(), number);
  store_u32le(out_.get() + 8, count);
  uint64_t n = columns_.head_bytes();
  for (uint32_t c = 0; c < columns_.columns(); ++c) {
    const uint64_t size = compressor_.compress(out_.get() + n, columns_.column(c), count);
    store_u32le(out_.get() + 12 + sizeof(uint32_t) * c, static_cast<uint32_t>(size));
    n += size;
  }
  return {out_.get(), static_cast<size_t>(n)};
}

StepReader::StepReader(Dtype dtype, uint64_t tensor_bytes, uint64_t step_bytes, Read read)
    : columns_(step_width(dtype)),
      tensor_bytes_(tensor_bytes),
      left_(step_bytes),
      read_(std::move(read)),
      squeezed_(std::make_unique_for_overwrite<std::byte[]>(Compressor::bound(step_block_bytes / columns_.width()))) {
  for (auto &places : places_) places = std::make_unique_for_overwrite<uint32_t[]>(step_block_bytes / columns_.width());
}

Result<StepReader> StepReader::begin(Dtype dtype, uint64_t tensor_bytes, uint64_t step_bytes, Read read) {
  StepReader reader(dtype, tensor_bytes, step_bytes, std::move(read));
  ST_TRY(reader.read_head());
  return reader;
}

Result<void> StepReader::read_head() {
  count_ = 0;
  if (left_ == 0) return {};
  std::byte head[12 + 4 * std::size(decltype(sizes_){})];
  if (left_ < columns_.head_bytes()) return damaged("a block is cut off");
  ST_TRY(read_(head, columns_.head_bytes()));
  left_ -= columns_.head_bytes();
  number_ = load_u64le(head);
  if (number_ < after_) return damaged("the blocks do not ascend");
  if (number_ >= tensor_bytes_ / step_block_bytes + 1 || number_ * step_block_bytes >= tensor_bytes_)
    return damaged("a block lies behind the tensor");
  const uint64_t elements = std::min(step_block_bytes, tensor_bytes_ - number_ * step_block_bytes) / columns_.width();
  const uint32_t count = load_u32le(head + 8);
  if (count == 0 || count > elements) return damaged("a block has no steps, or more than elements");
  uint64_t total = 0;
  for (uint32_t c = 0; c < columns_.columns(); ++c) {
    sizes_[c] = load_u32le(head + 12 + sizeof(uint32_t) * c);
    if (sizes_[c] > Compressor::bound(count)) return damaged("a column is longer than it can be");
    total += sizes_[c];
  }
  if (total > left_) return damaged("a block is cut off");
  count_ = count;
  after_ = number_ + 1;
  return {};
}

Result<void> StepReader::read_columns() {
  for (uint32_t c = 0; c < columns_.columns(); ++c) {
    ST_TRY(read_(squeezed_.get(), sizes_[c]));
    left_ -= sizes_[c];
    if (!compressor_.expand(columns_.column(c), count_, squeezed_.get(), sizes_[c]))
      return damaged("a column does not hold what its block says");
  }
  return {};
}

Result<void> StepReader::take(std::span<std::byte> block) {
  ST_TRY(read_columns());
  turn_ ^= 1;
  const bool inside = as_wide_as(columns_.width(), [&](auto word) {
    return step<decltype(word)>(columns_, count_, block.data(), block.size() / sizeof word, places_[turn_].get());
  });
  if (!inside) return damaged("a step lies behind its block");
  taken_ = count_;
  return read_head();
}

}  // namespace st::store
