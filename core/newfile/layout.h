// In which order a file that we write has its tensors, and where they may begin.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "format/dtype.h"

namespace st::write {

inline constexpr uint64_t default_alignment = 64;  // of the first data byte, in files that we write

enum class Layout : uint32_t {
  keep = 0,       // as given, or as the file has them; but see align()
  canonical = 1,  // descending dtype, then name
  stock = 2,      // canonical, and data aligned to 8: byte for byte what safetensors 0.8 writes
};

// Does a stand before b in canonical order? Names compare by their bytes.
inline bool canonical_before(Dtype a, std::string_view a_name, Dtype b, std::string_view b_name) {
  return a != b ? dtype_rank(a) > dtype_rank(b) : a_name < b_name;
}

// The format knows no holes between tensors, so where one begins follows from the order. An element of less than a byte
// counts as one.
inline uint64_t element_bytes(Dtype dtype) {
  return std::max(dtype_bits(dtype) / 8, 1u);
}

// Does each tensor begin at a multiple of its element's size, where data does? `form` answers its dtype and nbytes.
template <class Tensor, class Form = std::identity>
bool is_aligned(const std::vector<Tensor> &tensors, Form form = {}) {
  uint64_t at = 0;
  return std::all_of(tensors.begin(), tensors.end(), [&](const Tensor &t) {
    const uint64_t nbytes = form(t).nbytes;
    const bool aligned = nbytes == 0 || at % element_bytes(form(t).dtype) == 0;
    at += nbytes;
    return aligned;
  });
}

// If not: wide elements before narrow ones, and else the order that they have.
template <class Tensor, class Form = std::identity>
void align(std::vector<Tensor> *tensors, Form form = {}) {
  if (is_aligned(*tensors, form)) return;
  std::stable_sort(tensors->begin(), tensors->end(), [&](const Tensor &a, const Tensor &b) {
    return element_bytes(form(a).dtype) > element_bytes(form(b).dtype);
  });
}

}  // namespace st::write
