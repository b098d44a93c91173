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

// Each %XX as the byte that it stands for.
inline std::string percent_decoded(std::string_view text) {
  constexpr std::string_view digits = "0123456789ABCDEFabcdef";
  const auto value = [&](size_t at) {
    const size_t digit = at < text.size() ? digits.find(text[at]) : digits.npos;
    return digit < 16 ? digit : digit == digits.npos ? digit : digit - 6;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_byte = text[i] == '%' && value(i + 1) < 16 && value(i + 2) < 16;
    out += is_byte ? static_cast<char>(value(i + 1) << 4 | value(i + 2)) : text[i];
    if (is_byte) i += 2;
  }
  return out;
}

}  // namespace st
