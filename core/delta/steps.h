// Steps: how a tensor's old bytes become its new ones, where few elements change. README.md has the grammar. A step is
// the xor of the old element and the new one, so the same steps lead forth and back.
#pragma once

#include <algorithm>
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

// Uninitialised memory that grows as it is needed, and is used again: small tensors want little, and many want it.
template <class T>
class Reused {
 public:
  // Room for n of them. What was in it is gone.
  T *take(uint64_t n) {
    if (n > size_) {
      const uint64_t more = std::max(n, 2 * size_);
      size_ = 0;
      items_.reset();
      items_ = std::make_unique_for_overwrite<T[]>(more);
      size_ = more;
    }
    return items_.get();
  }
  const T *get() const { return items_.get(); }

 private:
  uint64_t size_ = 0;
  std::unique_ptr<T[]> items_;
};

// The columns of a block: a row for each changed element, of bytes that are compressed column by column.
class StepColumns {
 public:
  static constexpr uint32_t gap_columns = 3;
  static constexpr uint32_t count_of(uint32_t width) { return gap_columns + width; }

  // For so many rows of elements of that width. What was in them is gone.
  void begin(uint32_t width, uint64_t rows) {
    rows_ = rows;
    bytes_ = memory_.take(rows * count_of(width));
  }
  std::byte *column(uint32_t c) const { return bytes_ + c * rows_; }

 private:
  uint64_t rows_ = 0;
  std::byte *bytes_ = nullptr;
  Reused<std::byte> memory_;
};

// Makes steps, of blocks of any tensors. One thread.
class StepWriter {
 public:
  // The steps from `old` to `fresh`, the bytes of block `number`: nothing if they are the same. What was answered
  // before is gone.
  std::span<const std::byte> steps_of(Dtype dtype, uint64_t number, std::span<const std::byte> old,
                                      std::span<const std::byte> fresh);

 private:
  StepColumns columns_;
  Compressor compressor_;
  Reused<uint32_t> places_;  // of the elements that differ
  Reused<std::byte> out_;
};

// What readers take steps with, one block after the other: they share it, whatever tensor and delta each is of.
struct StepRoom {
  StepColumns columns;
  Compressor compressor;
  Reused<std::byte> packed;  // all columns of a block
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
  Result<void> take(std::span<std::byte> block, StepRoom &room);
  // Which elements of that block were changed, ascending. They stay while the next block is taken.
  uint32_t width() const { return width_; }
  std::span<const uint32_t> places() const { return {places_[turn_].get(), taken_}; }

 private:
  StepReader(Dtype dtype, uint64_t tensor_bytes, uint64_t step_bytes, Read read);
  Result<void> read_head();
  Result<void> read_columns(StepRoom &room);
  uint32_t columns() const { return StepColumns::count_of(width_); }

  uint32_t width_;
  uint64_t tensor_bytes_;
  uint64_t left_;  // bytes of the steps
  Read read_;
  Reused<uint32_t> places_[2];
  size_t turn_ = 0;
  uint32_t taken_ = 0;
  uint32_t sizes_[StepColumns::gap_columns + 8] = {};
  uint64_t number_ = 0;
  uint64_t after_ = 0;  // the least number that the next block can have
  uint32_t count_ = 0;  // of the block that comes next; 0: there is none
};

}  // namespace st::store
