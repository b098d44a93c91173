// Steps: how a tensor's old bytes become its new ones, where few elements change. README.md has the grammar. A step is
// the xor of the old element and the new one, so the same steps lead forth and back.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "base/error.h"
#include "delta/compression.h"
#include "format/dtype.h"

namespace st::store {

// Steps are taken of so many bytes of a tensor at a time.
inline constexpr uint64_t step_block_bytes = uint64_t{1} << 20;

// Bytes of what changes as one: an element, or a byte of smaller ones.
uint32_t step_width(Dtype dtype);

// The columns of a block: a row for each changed element, of bytes that are compressed column by column.
class StepColumns {
 public:
  static constexpr uint32_t gap_columns = 3;

  explicit StepColumns(uint32_t width);
  uint32_t width() const { return width_; }
  uint32_t columns() const { return gap_columns + width_; }
  std::byte *column(uint32_t c) const { return bytes_.get() + c * room_; }
  uint64_t head_bytes() const { return 12 + 4 * uint64_t{columns()}; }

 private:
  uint32_t width_;
  uint64_t room_;  // of a column
  std::unique_ptr<std::byte[]> bytes_;
};

// Makes steps. One thread.
class StepWriter {
 public:
  explicit StepWriter(Dtype dtype);
  // The steps from `old` to `fresh`, the bytes of block `number`: nothing if they are the same. What was answered
  // before is gone.
  std::span<const std::byte> steps_of(uint64_t number, std::span<const std::byte> old,
                                      std::span<const std::byte> fresh);

 private:
  StepColumns columns_;
  Compressor compressor_;
  const std::unique_ptr<uint32_t[]> places_;  // of the elements that differ
  const std::unique_ptr<std::byte[]> out_;
};

// Takes steps, block by block. Whatever they are, it neither reads nor writes outside of the block. One thread.
class StepReader {
 public:
  // The next n bytes of the steps, of which there are so many.
  using Read = std::function<Result<void>(void *to, uint64_t n)>;
  // For a tensor of so many bytes. Status delta: they are damaged.
  static Result<StepReader> begin(Dtype dtype, uint64_t tensor_bytes, uint64_t step_bytes, Read read);

  // Changes block `number` of the tensor, these bytes, if there are steps of it. Blocks are given in their order.
  bool has(uint64_t number) const { return count_ > 0 && number_ == number; }
  Result<void> take(std::span<std::byte> block);
  // Which elements of that block were changed, ascending. They stay while the next block is taken.
  uint32_t width() const { return columns_.width(); }
  std::span<const uint32_t> places() const { return {places_[turn_].get(), taken_}; }

 private:
  StepReader(Dtype dtype, uint64_t tensor_bytes, uint64_t step_bytes, Read read);
  Result<void> read_head();
  Result<void> read_columns();

  StepColumns columns_;
  Compressor compressor_;
  uint64_t tensor_bytes_;
  uint64_t left_;  // bytes of the steps
  Read read_;
  std::unique_ptr<std::byte[]> squeezed_;  // a column
  std::unique_ptr<uint32_t[]> places_[2];
  size_t turn_ = 0;
  uint32_t taken_ = 0;
  uint32_t sizes_[StepColumns::gap_columns + 8] = {};
  uint64_t number_ = 0;
  uint64_t after_ = 0;  // the least number that the next block can have
  uint32_t count_ = 0;  // of the block that comes next; 0: there is none
};

}  // namespace st::store
