// Multiples of a page, a block, a sector.
#pragma once

#include <type_traits>

namespace st {

template <class N>
constexpr N round_down(N n, std::type_identity_t<N> unit) {
  static_assert(std::is_unsigned_v<N>);
  return n / unit * unit;
}

// Wraps where the multiple is beyond N.
template <class N>
constexpr N round_up(N n, std::type_identity_t<N> unit) {
  return round_down(static_cast<N>(n + (unit - 1)), unit);
}

}  // namespace st
