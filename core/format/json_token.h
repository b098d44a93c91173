// A raw token of simdjson, which ends with the white space behind it.
#pragma once

#include <string_view>

namespace st {

inline std::string_view trimmed(std::string_view token) {
  while (!token.empty() &&
         (token.back() == ' ' || token.back() == '\t' || token.back() == '\n' || token.back() == '\r'))
    token.remove_suffix(1);
  return token;
}

}  // namespace st
