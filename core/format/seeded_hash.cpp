#include "format/seeded_hash.h"

#include "base/hash.h"

namespace st {

size_t SeededHash::operator()(std::string_view name) const {
  return static_cast<size_t>(hash64(name.data(), name.size(), seed));
}

}  // namespace st
