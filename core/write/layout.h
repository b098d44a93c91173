// In which order a file that we write has its tensors, and where they may begin.
#pragma once

#include <cstdint>
#include <string_view>

#include "error.h"
#include "format/dtype.h"

namespace st::write {

enum class Layout : uint32_t {
  keep = 0,       // as given, or as the file has them
  canonical = 1,  // descending dtype, then name
  stock = 2,      // canonical, and data aligned to 8: byte for byte what safetensors 0.8 writes
};

// Does a stand before b in canonical order? Names compare by their bytes.
inline bool canonical_before(Dtype a, std::string_view a_name, Dtype b, std::string_view b_name) {
  return a != b ? a > b : a_name < b_name;
}

// At a multiple of `alignment`, behind so many spare bytes in the header: statuses
// invalid_argument, header_too_large.
Result<void> check_data_begin(uint64_t alignment, uint64_t reserve);

}  // namespace st::write
