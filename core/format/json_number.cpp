#include "format/json_number.h"

#include <algorithm>
#include <charconv>

namespace st {
namespace {

constexpr std::string_view digits = "0123456789";

std::string_view take_digits(std::string_view *left) {
  const std::string_view taken = left->substr(0, left->find_first_not_of(digits));
  left->remove_prefix(taken.size());
  return taken;
}

bool take(std::string_view *left, std::string_view one_of) {
  if (left->empty() || one_of.find(left->front()) == std::string_view::npos) return false;
  left->remove_prefix(1);
  return true;
}

struct Parts {
  bool is_negative = false;
  std::string_view whole, fraction;
  bool has_small_exponent = false;  // below 0
  std::string_view exponent;        // without its sign
};

std::optional<Parts> take_apart(std::string_view token) {
  Parts parts;
  parts.is_negative = take(&token, "-");
  parts.whole = take_digits(&token);
  if (parts.whole.empty() || (parts.whole.size() > 1 && parts.whole.front() == '0')) return std::nullopt;
  if (take(&token, ".") && (parts.fraction = take_digits(&token)).empty()) return std::nullopt;
  if (take(&token, "eE")) {
    parts.has_small_exponent = token.starts_with('-');
    take(&token, "+-");
    if ((parts.exponent = take_digits(&token)).empty()) return std::nullopt;
  }
  return token.empty() ? std::optional(parts) : std::nullopt;
}

}  // namespace

bool is_json_number(std::string_view token) {
  return take_apart(token).has_value();
}

std::optional<uint64_t> whole_number(std::string_view token) {
  const auto parts = take_apart(token);
  if (!parts) return std::nullopt;
  // As digits and a number of zeros, which is less than 0 where digits stand behind the point.
  std::string all(parts->whole);
  all += parts->fraction;
  const size_t last = all.find_last_not_of('0');
  if (last == std::string::npos) return 0;
  if (parts->is_negative) return std::nullopt;
  int32_t power = 0;
  const std::string_view exponent = parts->exponent;
  if (!exponent.empty() && std::from_chars(exponent.data(), exponent.data() + exponent.size(), power).ec != std::errc())
    return std::nullopt;  // no text has the digits that would make up for that
  const int64_t zeros = (parts->has_small_exponent ? -int64_t{power} : int64_t{power}) +
                        static_cast<int64_t>(all.size() - 1 - last) - static_cast<int64_t>(parts->fraction.size());
  constexpr int64_t longest = 20;  // 2^64 - 1
  if (zeros < 0 || zeros > longest) return std::nullopt;
  all.resize(last + 1);
  all.append(static_cast<size_t>(zeros), '0');
  uint64_t n = 0;
  if (std::from_chars(all.data(), all.data() + all.size(), n).ec != std::errc()) return std::nullopt;
  return n;
}

std::string without_numbers(std::string_view json) {
  std::string out(json);
  for (size_t at = 0; at < out.size();) {
    if (out[at] == '"') {
      for (++at; at < out.size() && out[at] != '"'; ++at) at += out[at] == '\\';
      ++at;
      continue;
    }
    const size_t end = std::min(out.find_first_not_of("0123456789+-.eE", at), out.size());
    if (is_json_number(std::string_view(out).substr(at, end - at))) {
      out[at] = '0';
      std::fill(out.begin() + static_cast<ptrdiff_t>(at) + 1, out.begin() + static_cast<ptrdiff_t>(end), ' ');
    }
    at = std::max(end, at + 1);
  }
  return out;
}

}  // namespace st
