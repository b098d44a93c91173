// The catalogue of one file: names, dtypes, shapes, offsets and metadata, in
// one allocation per kind however many tensors there are. Built once by the
// header parser, immutable afterwards, so any thread may read it.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/huge_memory.h"
#include "format/dtype.h"

namespace st {

// What the index knows of a tensor. Views live as long as the index.
struct TensorView {
  std::string_view name;  // NUL-terminated in memory
  Dtype dtype;
  std::span<const uint64_t> shape;  // data() is never null
  uint64_t begin;                   // from the start of the data
  uint64_t nbytes;
};

// How many elements a tensor of that shape has.
inline uint64_t elements(std::span<const uint64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
}

class Index {
 public:
  size_t size() const { return entries_.size(); }
  TensorView at(size_t i) const {  // by offset
    ST_ASSERT(i < entries_.size());
    const Entry &e = entries_[i];
    return {string_at(e.name, e.name_len), e.dtype(), {dims_.data() + e.shape, e.rank()}, e.begin, e.end - e.begin};
  }
  std::optional<size_t> find(std::string_view name) const;

  size_t metadata_size() const { return metadata_.size(); }
  std::pair<std::string_view, std::string_view> metadata_at(size_t i) const;  // in header order
  std::optional<std::string_view> metadata_find(std::string_view key) const;

  // All names, each with its NUL, where they lie in this order in one piece; else nothing. So it is where the header
  // has the tensors in the order of their data.
  std::optional<std::string_view> names() const;

  uint64_t data_bytes() const { return data_bytes_; }
  size_t memory_bytes() const;

 private:
  friend class IndexBuilder;

  // 32 bytes a tensor. A name or shape is shorter than the header, which is
  // shorter than 10^8 bytes, so 32 bits (27 for the rank) reach.
  static constexpr uint32_t dtype_width = 5;  // bits
  static_assert(dtype_count < 1u << dtype_width, "the number of every dtype fits");
  struct Entry {
    uint64_t begin;
    uint64_t end;
    uint32_t name;
    uint32_t name_len;
    uint32_t shape;
    uint32_t rank_and_dtype;

    Entry(uint64_t begin, uint64_t end, uint32_t name, uint32_t name_len, uint32_t shape, uint32_t rank, Dtype dtype)
        : begin(begin),
          end(end),
          name(name),
          name_len(name_len),
          shape(shape),
          rank_and_dtype(rank << dtype_width | static_cast<uint32_t>(dtype)) {}
    uint32_t rank() const { return rank_and_dtype >> dtype_width; }
    Dtype dtype() const { return static_cast<Dtype>(rank_and_dtype & ((1u << dtype_width) - 1)); }
  };
  struct Pair {
    uint32_t key, key_len, value, value_len;
  };

  std::string_view string_at(uint32_t offset, uint32_t len) const { return {&strings_[offset], len}; }
  uint64_t hash(std::string_view name) const;

  template <class T>
  using Array = std::vector<T, HugeAllocator<T>>;
  Array<char> strings_;           // every name and metadata string, each NUL-terminated
  Array<uint64_t> dims_;          // every shape
  Array<Entry> entries_;          // sorted by (begin, end)
  Array<uint64_t> slots_;         // open addressing: high half hash, low half index + 1
  std::vector<Pair> metadata_;    // in header order
  std::vector<uint32_t> by_key_;  // metadata, sorted by key
  uint64_t seed_ = 0;
  uint64_t data_bytes_ = 0;
  bool names_together_ = false;
};

// Collects what a header says; finish() sorts, checks the layout rules of the
// format (contiguous from 0, sizes match) and builds the lookup.
class IndexBuilder {
 public:
  // `seed` must be unpredictable to the file's author: names that collide
  // under one seed do not under another.
  IndexBuilder(uint64_t seed, size_t header_bytes);

  void begin_tensor(std::string_view name) {
    name_ = add_string(name);
    name_len_ = static_cast<uint32_t>(name.size());
    shape_ = static_cast<uint32_t>(index_.dims_.size());
  }
  void add_dim(uint64_t dim) { index_.dims_.push_back(dim); }
  void end_tensor(Dtype dtype, uint64_t begin, uint64_t end) {
    index_.entries_.emplace_back(begin, end, name_, name_len_, shape_,
                                 static_cast<uint32_t>(index_.dims_.size() - shape_), dtype);
  }
  // They take back a tensor that has begun and not ended.
  void drop_shape() { index_.dims_.resize(shape_); }
  void drop_tensor() {
    drop_shape();
    index_.strings_.resize(name_);
  }

  void add_metadata(std::string_view key, std::string_view value);
  void drop_metadata();

  Result<Index> finish();

 private:
  uint32_t add_string(std::string_view s) {
    const auto offset = static_cast<uint32_t>(index_.strings_.size());
    index_.strings_.resize(offset + s.size() + 1);
    std::memcpy(&index_.strings_[offset], s.data(), s.size());
    index_.strings_.back() = '\0';
    return offset;
  }
  bool lies_in_order();
  Result<void> check_layout();
  Result<void> build_lookup();
  void finish_metadata();

  Index index_;
  uint32_t name_ = 0, name_len_ = 0, shape_ = 0;
};

// Bytes that a tensor of this dtype and shape takes: overflow-checked in the
// order of the dimensions, as the reference does (so [2^63, 4, 0] overflows).
Result<uint64_t> tensor_nbytes(Dtype dtype, std::span<const uint64_t> shape);

}  // namespace st
