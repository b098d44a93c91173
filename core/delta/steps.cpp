#include "delta/steps.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/little_endian.h"

namespace st::store {
namespace {

constexpr uint64_t group = 8;  // elements that are looked at together

// Which elements differ, and for each a row. Answers how many.
template <class Word>
uint32_t fill(const StepColumns &columns, const std::byte *old, const std::byte *fresh, uint64_t n, uint8_t *differs) {
  for (uint64_t i = 0; i < n; ++i) {
    Word a, b;
    std::memcpy(&a, old + i * sizeof a, sizeof a);
    std::memcpy(&b, fresh + i * sizeof b, sizeof b);
    differs[i] = a != b;
  }
  std::memset(differs + n, 0, group);
  std::byte *to[StepColumns::gap_columns + sizeof(Word)];
  for (uint32_t c = 0; c < std::size(to); ++c) to[c] = columns.column(c);
  uint32_t count = 0;
  uint64_t behind = 0;  // the element after the last that differs
  for (uint64_t i = 0; i < n; i += group)
    for (uint64_t some = load_u64le(differs + i); some != 0; some &= some - 1) {
      const uint64_t at = i + static_cast<uint64_t>(std::countr_zero(some)) / 8, gap = at - behind;
      behind = at + 1;
      for (uint32_t c = 0; c < StepColumns::gap_columns; ++c) to[c][count] = static_cast<std::byte>(gap >> (8 * c));
      for (uint32_t c = 0; c < sizeof(Word); ++c)
        to[StepColumns::gap_columns + c][count] = old[at * sizeof(Word) + c] ^ fresh[at * sizeof(Word) + c];
      ++count;
    }
  return count;
}

// False: the rows lead out of the block.
template <class Word>
bool step(const StepColumns &columns, uint32_t count, std::byte *block, uint64_t n) {
  const std::byte *from[StepColumns::gap_columns + sizeof(Word)];
  for (uint32_t c = 0; c < std::size(from); ++c) from[c] = columns.column(c);
  uint64_t at = 0;
  for (uint32_t i = 0; i < count; ++i, ++at) {
    for (uint32_t c = 0; c < StepColumns::gap_columns; ++c) at += std::to_integer<uint64_t>(from[c][i]) << (8 * c);
    if (at >= n) return false;
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
      differs_(std::make_unique_for_overwrite<uint8_t[]>(step_block_bytes / columns_.width() + group)),
      out_(std::make_unique_for_overwrite<std::byte[]>(
          columns_.head_bytes() + columns_.columns() * Compressor::bound(step_block_bytes / columns_.width()))) {}

std::span<const std::byte> StepWriter::steps_of(uint64_t number, std::span<const std::byte> old,
                                                std::span<const std::byte> fresh) {
  const uint32_t count = as_wide_as(columns_.width(), [&](auto word) {
    return fill<decltype(word)>(columns_, old.data(), fresh.data(), old.size() / sizeof word, differs_.get());
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
  return {out_.get(), n};
}

StepReader::StepReader(Dtype dtype, uint64_t tensor_bytes, uint64_t step_bytes, Read read)
    : columns_(step_width(dtype)),
      tensor_bytes_(tensor_bytes),
      left_(step_bytes),
      read_(std::move(read)),
      squeezed_(std::make_unique_for_overwrite<std::byte[]>(Compressor::bound(step_block_bytes / columns_.width()))) {}

Result<StepReader> StepReader::begin(Dtype dtype, uint64_t tensor_bytes, uint64_t step_bytes, Read read) {
  if (!Compressor::is_there())
    return fail(
        Status::unsupported,
        "the delta holds steps of elements, and this libst was built without zstd, which they are packed by; use "
        "one that was built with it");
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
  const bool inside = as_wide_as(columns_.width(), [&](auto word) {
    return step<decltype(word)>(columns_, count_, block.data(), block.size() / sizeof word);
  });
  if (!inside) return damaged("a step lies behind its block");
  return read_head();
}

}  // namespace st::store
