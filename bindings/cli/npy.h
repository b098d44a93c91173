// NumPy's .npy files, version 1 to 3, for the dtypes that NumPy has: little-endian and C order only.
// Source: numpy.lib.format's specification.
#pragma once

#include <st/st.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stctl {

// "<f4"; nothing for a dtype that NumPy does not have (BF16, F8_…, F6_…, F4).
std::optional<std::string> npy_descr(st_dtype dtype);

// What stands before the elements, a multiple of 64 bytes. UsageFailure for a dtype that NumPy does not have.
std::string npy_header(st_dtype dtype, const std::vector<uint64_t> &shape);

struct Npy {
  st_dtype dtype;
  std::vector<uint64_t> shape;
  std::string_view data;  // of `file`
};

// Failure, with `path` in its sentence, for what is no .npy file or one that a safetensors tensor can't be.
Npy parse_npy(std::string_view file, const std::string &path);

}  // namespace stctl
