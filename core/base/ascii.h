// Text that others have written: fields of answers, URLs, profiles.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace st {

inline std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

// Without the blanks around it.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  const size_t from = text.find_first_not_of(blanks);
  return from == text.npos ? std::string_view() : text.substr(from, text.find_last_not_of(blanks) - from + 1);
}

}  // namespace st
