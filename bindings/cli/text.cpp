#include "text.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace stctl {
namespace {

bool needs_escape(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == '\\' || c == bad_utf8 || c == 0xad ||
         c == 0x61c ||                                       // soft hyphen, Arabic letter mark
         (c >= 0x200b && c <= 0x200f) ||                     // zero width, direction marks
         (c >= 0x2028 && c <= 0x202e) ||                     // line ends, direction overrides
         (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||      // invisible operators, isolates
         (c >= 0xfff9 && c <= 0xfffb) || (c >> 8) == 0xe00;  // annotations, tags
}

// The blocks that matter, after Unicode's EastAsianWidth; wcwidth(3) would need a locale.
size_t columns_of(uint32_t c) {
  struct Block {
    uint32_t first, last;
  };
  static constexpr Block combining[] = {{0x300, 0x36f}, {0x1ab0, 0x1aff}, {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}};
  static constexpr Block wide[] = {{0x1100, 0x115f},   {0x2e80, 0xa4cf},   {0xac00, 0xd7a3},  {0xf900, 0xfaff},
                                   {0xfe30, 0xfe6f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},  {0x1f300, 0x1f64f},
                                   {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};
  const auto holds = [c](const Block &block) { return block.first <= c && c <= block.last; };
  if (std::any_of(std::begin(combining), std::end(combining), holds)) return 0;
  return std::any_of(std::begin(wide), std::end(wide), holds) ? 2 : 1;
}

void append_utf8(std::string &out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  }
}

// The hexadecimal number at the front of `s`, at most `max` digits.
std::optional<uint32_t> take_hex(std::string_view &s, size_t max) {
  uint32_t value = 0;
  size_t n = 0;
  for (; n < max && n < s.size(); ++n) {
    const char c = s[n];
    if (c >= '0' && c <= '9') {
      value = value * 16 + static_cast<uint32_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      value = value * 16 + static_cast<uint32_t>(c - 'a') + 10;
    } else {
      break;
    }
  }
  if (n == 0) return std::nullopt;
  s.remove_prefix(n);
  return value;
}

// One character off the front of a pattern: an escape as ls prints it, or \\c for any other c itself.
uint32_t take_literal(std::string_view &pattern) {
  std::string escaped;
  if (take_escape(pattern, escaped)) {
    std::string_view s = escaped;
    return take_code_point(s);
  }
  if (pattern[0] == '\\' && pattern.size() > 1) pattern.remove_prefix(1);
  return take_code_point(pattern);
}

// One "[…]" off the front of `pattern`; does it hold c? Nothing if it has no end.
std::optional<bool> take_class(std::string_view &pattern, uint32_t c) {
  std::string_view p = pattern.substr(1);
  const bool negated = !p.empty() && (p[0] == '!' || p[0] == '^');
  if (negated) p.remove_prefix(1);
  bool found = false;
  for (bool first = true; !p.empty(); first = false) {
    if (p[0] == ']' && !first) {
      pattern = p.substr(1);
      return found != negated;
    }
    const uint32_t low = take_literal(p);
    uint32_t high = low;
    if (p.size() > 1 && p[0] == '-' && p[1] != ']') {
      p.remove_prefix(1);
      high = take_literal(p);
    }
    found = found || (low <= c && c <= high);
  }
  return std::nullopt;
}

}  // namespace

uint32_t take_code_point(std::string_view &s) {
  const auto byte = [&s](size_t i) { return static_cast<uint8_t>(s[i]); };
  const uint32_t lead = byte(0);
  size_t n = lead < 0x80                   ? 1
             : lead >= 0xc2 && lead < 0xe0 ? 2
             : lead >= 0xe0 && lead < 0xf0 ? 3
             : lead >= 0xf0 && lead < 0xf5 ? 4
                                           : 0;
  uint32_t c = n == 1 ? lead : n == 0 ? 0 : lead & (0x7f >> n);
  bool good = n != 0 && n <= s.size();
  for (size_t i = 1; good && i < n; ++i) {
    good = (byte(i) & 0xc0) == 0x80;
    c = c << 6 | (byte(i) & 0x3f);
  }
  good = good && !(n == 3 && (c < 0x800 || (c >= 0xd800 && c < 0xe000))) && !(n == 4 && (c < 0x10000 || c > 0x10ffff));
  s.remove_prefix(good ? n : 1);
  return good ? c : bad_utf8;
}

namespace {

std::string escape_unless(bool has_escapes, std::string_view name) {
  std::string out;
  while (!name.empty()) {
    const std::string_view before = name;
    const uint32_t c = take_code_point(name);
    const std::string_view raw = before.substr(0, before.size() - name.size());
    if (!needs_escape(c) || (has_escapes && c == '\\')) {
      out += raw;
    } else if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c < 0x80 || c == bad_utf8) {
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(raw[0]));
    } else {
      out += fmt::format("\\u{{{:x}}}", c);
    }
  }
  return out;
}

}  // namespace

std::string escape(std::string_view name) {
  return escape_unless(false, name);
}

std::string escape_word(std::string_view name) {
  const bool is_plain = !name.empty() && name.find_first_of(" '") == std::string_view::npos;
  return is_plain ? escape(name) : "'" + escape(name) + "'";
}

std::string harmless(std::string_view sentence) {
  return escape_unless(true, sentence);
}

bool take_escape(std::string_view &text, std::string &out) {
  if (text.size() < 2 || text[0] != '\\') return false;
  const char kind = text[1];
  std::string_view rest = text.substr(2);
  if (kind == '\\') {
    out += '\\';
  } else if (kind == 'n') {
    out += '\n';
  } else if (kind == 'r') {
    out += '\r';
  } else if (kind == 't') {
    out += '\t';
  } else if (kind == 'x') {
    const size_t before = rest.size();
    const std::optional<uint32_t> value = take_hex(rest, 2);
    if (!value || before - rest.size() != 2) return false;
    out += static_cast<char>(*value);
  } else if (kind == 'u' && rest.starts_with('{')) {
    rest.remove_prefix(1);
    const std::optional<uint32_t> value = take_hex(rest, 6);
    if (!value || *value > 0x10ffff || !rest.starts_with('}')) return false;
    rest.remove_prefix(1);
    append_utf8(out, *value);
  } else {
    return false;
  }
  text = rest;
  return true;
}

std::optional<std::string> unescape(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    if (text[0] == '\\') {
      if (!take_escape(text, out)) return std::nullopt;
    } else {
      out += text[0];
      text.remove_prefix(1);
    }
  }
  return out;
}

namespace {

constexpr std::string_view of_schemes = "abcdefghijklmnopqrstuvwxyz0123456789+.-";

std::string lower(std::string text) {
  for (char &c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

}  // namespace

std::string plain_name(const std::string &name) {
  return name.find('\\') == std::string::npos ? name : unescape(name).value_or(name);
}

std::string scheme_of(const std::string &path) {
  const size_t end = path.find("://");
  if (end == path.npos) return {};
  const std::string scheme = lower(path.substr(0, end));
  return scheme.find_first_not_of(of_schemes) == scheme.npos && of_schemes.find(scheme[0]) < 26 ? scheme
                                                                                                : std::string();
}

// As core does: tests/unit/base/shown_urls.inc.
std::string shown(const std::string &path) {
  constexpr std::string_view digits = of_schemes.substr(26, 10);
  const std::string url = lower(path), scheme = scheme_of(path);
  if (scheme.empty()) return path;
  constexpr std::string_view stores[] = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "hf"};
  // There a name may have a '?', and an '@'.
  const bool is_name = std::find(std::begin(stores), std::end(stores), scheme) != std::end(stores);
  size_t end = is_name ? path.size() : path.find_first_of("?#");
  const size_t mark = url.find('?');
  for (const char *part : {"sig=", "signature=", "token=", "versionid=", "generation=", "snapshot="})
    if (mark != url.npos && url.find(part, mark) != url.npos) end = std::min(end, mark);
  const std::string begin = path.substr(0, scheme.size() + 3);
  std::string rest = path.substr(begin.size(), end == path.npos ? end : end - std::min(end, begin.size()));
  const size_t user = rest.rfind('@', rest.find('/'));
  if (user != rest.npos && (!is_name || rest.find(':') < user)) rest.erase(0, user + 1);
  const std::string host = rest.substr(0, rest.find('/'));
  const size_t colon = std::min(host.find(':'), host.size());
  const bool is_port = !is_name && host.find_first_not_of(digits, colon + 1) == host.npos;
  const bool is_known = colon == host.size() || is_port || host.starts_with(is_name ? "arn:" : "[");
  return begin + (is_known ? rest : "...");
}

std::string escape_short(std::string_view text, size_t max) {
  std::string_view rest = text;
  for (size_t n = 0; !rest.empty(); ++n) {
    if (n == max) return escape(text.substr(0, text.size() - rest.size())) + "…";
    take_code_point(rest);
  }
  return escape(text);
}

size_t width(std::string_view utf8) {
  size_t n = 0;
  while (!utf8.empty()) n += columns_of(take_code_point(utf8));
  return n;
}

std::string human_size(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  static constexpr const char *units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1023.995 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return fmt::format("{:.2f} {}", value, units[unit]);
}

std::string grouped(uint64_t n) {
  std::string out = std::to_string(n);
  for (size_t at = out.size(); at > 3;) out.insert(at -= 3, 1, ',');
  return out;
}

std::string counted(uint64_t n, const char *thing) {
  return fmt::format("{} {}{}", grouped(n), thing, n == 1 ? "" : "s");
}

std::string shape_text(const uint64_t *shape, size_t rank) {
  return fmt::format("[{}]", fmt::join(shape, shape + rank, ", "));
}

bool is_pattern(std::string_view word) {
  return word.find_first_of("*?[") != word.npos;
}

bool glob_matches(std::string_view pattern, std::string_view name) {
  return glob_stars(pattern, name).has_value();
}

std::optional<std::vector<std::string>> glob_stars(std::string_view pattern, std::string_view name) {
  // On a mismatch, go back to the last star and let it swallow one character more: with
  // that, only the last star ever needs another try.
  std::optional<std::string_view> star;
  std::string_view star_name;
  std::vector<std::string> stars;
  while (true) {
    if (!pattern.empty() && pattern[0] == '*') {
      pattern.remove_prefix(1);
      star = pattern;
      star_name = name;
      stars.emplace_back();
      continue;
    }
    if (pattern.empty() && name.empty()) return stars;
    if (!pattern.empty() && !name.empty()) {
      std::string_view p = pattern, n = name;
      const uint32_t c = take_code_point(n);
      bool match = false;
      std::optional<bool> in_class;
      if (p[0] == '?') {
        p.remove_prefix(1);
        match = true;
      } else if (p[0] == '[' && (in_class = take_class(p, c))) {
        match = *in_class;
      } else {
        match = take_literal(p) == c;
      }
      if (match) {
        pattern = p;
        name = n;
        continue;
      }
    }
    if (!star || star_name.empty()) return std::nullopt;
    const std::string_view before = star_name;
    take_code_point(star_name);
    stars.back() += before.substr(0, before.size() - star_name.size());
    pattern = *star;
    name = star_name;
  }
}

}  // namespace stctl
