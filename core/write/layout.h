// In which order a file that we write has its tensors.
#pragma once

#include <cstdint>
#include <string_view>

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

}  // namespace st::write
