#include "format/json_string.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace st {
namespace {

void append_unit(std::string &out, uint32_t unit) {
  constexpr char hex[] = "0123456789abcdef";
  out += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) out += hex[unit >> shift & 15];
}

void append_char(std::string &out, char c) {
  switch (c) {
    case '"': out += "\\\""; break;
    case '\\': out += "\\\\"; break;
    case '\b': out += "\\b"; break;
    case '\f': out += "\\f"; break;
    case '\n': out += "\\n"; break;
    case '\r': out += "\\r"; break;
    case '\t': out += "\\t"; break;
    default:
      if (static_cast<unsigned char>(c) < 0x20)
        append_unit(out, static_cast<unsigned char>(c));
      else
        out += c;
  }
}

struct CodePoint {
  uint32_t value;
  size_t bytes;  // 0: no UTF-8
};

CodePoint first_of(std::string_view s) {
  constexpr uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  const auto lead = static_cast<unsigned char>(s.front());
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead < 0xC0 || lead >= 0xF8 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (bytes == 0 || bytes > s.size()) return {0, 0};
  uint32_t value = lead & (0x7Fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(s[i]);
    if ((next & 0xC0) != 0x80) return {0, 0};
    value = value << 6 | (next & 0x3Fu);
  }
  const bool is_surrogate = value >= 0xD800 && value < 0xE000;
  return {value, value < least[bytes] || value > 0x10FFFF || is_surrogate ? 0 : bytes};
}

void append_code_point(std::string &out, uint32_t point) {
  if (point < 0x10000) return append_unit(out, point);
  append_unit(out, 0xD800 + ((point - 0x10000) >> 10));
  append_unit(out, 0xDC00 + ((point - 0x10000) & 0x3FF));
}

}  // namespace

void append_json_string(std::string &out, std::string_view s) {
  out += '"';
  for (char c : s) append_char(out, c);
  out += '"';
}

void append_ascii_json_string(std::string &out, std::string_view s) {
  constexpr char last_shown = '~';
  const auto is_plain = [](char c) { return c >= ' ' && c <= last_shown && c != '"' && c != '\\'; };
  out += '"';
  while (!s.empty()) {
    const auto plain = static_cast<size_t>(std::find_if_not(s.begin(), s.end(), is_plain) - s.begin());
    out += s.substr(0, plain);
    s.remove_prefix(plain);
    if (s.empty()) break;
    const CodePoint first = first_of(s);
    if (first.bytes == 0)
      out += s.front();
    else if (first.value <= last_shown)
      append_char(out, s.front());
    else
      append_code_point(out, first.value);
    s.remove_prefix(first.bytes == 0 ? 1 : first.bytes);
  }
  out += '"';
}

}  // namespace st
