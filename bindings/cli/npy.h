// NumPy's .npy files, version 1 to 3, for the dtypes that NumPy and ml_dtypes have: little-endian and C order only.
// Source: numpy.lib.format's specification.
#pragma once

#include <st/st.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace stctl {

// "<f4"; of a dtype that NumPy has from ml_dtypes, what that writes: "<V2" for BF16, "<V1" for elements of a byte and
// less.
std::string npy_descr(st_dtype dtype);

// What stands before the elements, a multiple of 64 bytes. Elements of 4 and 6 bits are to follow a byte each (cast.h).
std::string npy_header(st_dtype dtype, const std::vector<uint64_t> &shape);

struct Npy {
  st_dtype dtype;
  std::vector<uint64_t> shape;
  std::string_view data;  // of `file`, or of `packed`
  std::unique_ptr<std::string> packed;
};

// How many bytes a .npy file has, as far as its first ones tell: without those that show it, a part of it.
uint64_t npy_size(std::string_view first);

// Does parse_npy look at each element then?
bool looks_at_elements(st_dtype unnamed);

// Failure, with `path` in its sentence, for what is no .npy file or one that a safetensors tensor can't be.
// `unnamed` is the dtype of elements that the file calls "<V1"; 0: not known, which is a Failure.
Npy parse_npy(std::string_view file, const std::string &path, st_dtype unnamed);

}  // namespace stctl
