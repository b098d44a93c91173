// Names that std::hash takes for each other: an author of a file can choose them, as that hash has no seed.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

namespace st::testing {

// The i-th of them, by the arithmetic of libstdc++'s hash on 64 bits: of two words, the second undoes the first.
inline std::string colliding_name(uint64_t i) {
  constexpr uint64_t factor = 0xc6a4a7935bd1e995, seed = 0xc70f6907, wanted = 0x123456789abcdef;
  constexpr auto mixed = [](uint64_t n) { return n ^ n >> 47; };  // twice is not at all
  uint64_t inverse = factor;
  for (int k = 0; k < 6; ++k) inverse *= 2 - factor * inverse;
  const uint64_t first = ((seed ^ 16 * factor) ^ mixed(i * factor) * factor) * factor;
  const uint64_t words[] = {i, mixed((first ^ wanted) * inverse) * inverse};
  std::string name(sizeof words, '\0');
  std::memcpy(name.data(), words, sizeof words);
  return name;
}

inline bool names_collide() {
  return std::hash<std::string>()(colliding_name(1)) == std::hash<std::string>()(colliding_name(2));
}

}  // namespace st::testing
