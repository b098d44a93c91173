// Tables by names that the author of a file chose. Under a seed that nobody knows before, none can be chosen that
// collide. Where there is no seed at hand, a table that is ordered serves: names cannot make that slow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace st {

struct SeededHash {
  using is_transparent = void;
  explicit SeededHash(uint64_t s = 0) : seed(s) {}
  uint64_t seed;
  size_t operator()(std::string_view name) const;
};

template <class Name, class T>
using SeededMap = std::unordered_map<Name, T, SeededHash, std::equal_to<>>;

}  // namespace st
