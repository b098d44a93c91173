// Part of a tensor as NumPy writes it ("0:2,:,::2", "-1", "...,0"): parsed, fitted to a
// tensor, and read in pieces.
#pragma once

#include <st/st.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "command_line.h"
#include "handle.h"

namespace stctl {

// An empty --slice is a shell's variable that is not set, and never means the whole tensor. UsageFailure.
void refuse_empty_slice(const Option &option, const std::string &text);

class Slice {
 public:
  // `text` is --slice, or "" for the whole tensor. UsageFailure if it can't be read, Failure if it does not fit.
  // Its elements are cast to `dtype` (cast.h); 0: left as they are.
  Slice(const File &file, size_t index, const std::string &text, st_dtype dtype = 0);

  const st_tensor &tensor() const { return tensor_; }
  st_dtype dtype() const { return dtype_; }
  uint64_t nbytes() const { return (elements_ * st_dtype_bits(dtype_) + 7) / 8; }
  uint64_t elements() const { return elements_; }
  std::vector<uint64_t> shape() const;  // without the dimensions that an index took away
  // As C has it: one range a dimension, and the entries of each.
  const std::vector<st_range> &ranges() const { return ranges_; }
  const std::vector<uint64_t> &counts() const { return counts_; }

  // Calls use(bytes) with the bytes in C order, in pieces of whole elements and of about `piece`
  // bytes. One piece, where 4- or 6-bit elements don't allow a cut.
  void read(uint64_t piece, const std::function<void(std::string_view)> &use) const;

  // The parts of which read() reads one after the other; counts are the entries of each dimension.
  struct Part {
    std::vector<st_range> ranges;
    std::vector<uint64_t> counts;
    uint64_t nbytes;
  };
  void each_part(uint64_t piece, const std::function<void(const Part &)> &use) const;

  // A corner of the slice, for display: of each dimension with more than 2 * edge
  // entries, only the first and last `edge`.
  struct Corner {
    std::vector<uint64_t> shape;  // as shape(), at most 2 * edge where cut
    std::vector<bool> cut;
    std::vector<std::string> cells;  // each element as text
  };
  Corner corner(uint64_t edge) const;

 private:
  // Entries [from, to) of dimension d of the slice.
  st_range range_of(size_t d, uint64_t from, uint64_t to) const;
  void read_pieces(uint64_t piece, const std::function<void(std::string_view)> &use) const;
  void read_part(const std::vector<st_range> &ranges, uint64_t nbytes, std::string &into) const;
  uint64_t bytes_below(size_t d) const;  // of one entry of dimension d - 1; 0 if not whole bytes

  const File &file_;
  st_tensor tensor_;
  st_dtype dtype_;
  std::vector<st_range> ranges_;  // one a dimension; start is not negative
  std::vector<uint64_t> counts_;  // entries of each dimension
  std::vector<bool> indexed_;     // by a number: not in shape()
  uint64_t nbytes_ = 0;
  uint64_t elements_ = 0;
};

}  // namespace stctl
