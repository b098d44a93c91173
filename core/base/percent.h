// Percent-encoding, of what stands in a URL (RFC 3986).
#pragma once

#include <string>
#include <string_view>

namespace st {

// Each byte but A-Z a-z 0-9 - . _ ~ as %XX; '/' too, if asked for.
inline std::string percent_encoded(std::string_view text, bool slash_too) {
  constexpr char digits[] = "0123456789ABCDEF";
  constexpr std::string_view plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
  std::string out;
  for (const char c : text) {
    if (plain.find(c) != plain.npos || (c == '/' && !slash_too)) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += '%';
      out += digits[byte >> 4];
      out += digits[byte & 15];
    }
  }
  return out;
}

}  // namespace st
