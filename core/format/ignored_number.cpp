#include "format/ignored_number.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"

namespace st {
namespace {

class IgnoredNumber {
 public:
  static bool is_valid(std::string_view token) { return IgnoredNumber(token).parse(); }

 private:
  explicit IgnoredNumber(std::string_view token) : at_(token.data()), end_(at_ + token.size()) {}

  bool more() const { return at_ != end_; }
  bool digit() const { return more() && *at_ >= '0' && *at_ <= '9'; }
  bool fits(uint64_t d) const { return significand_ <= (UINT64_MAX - d) / 10; }
  void add(uint64_t d) { significand_ = significand_ * 10 + d; }

  bool parse() {
    if (more() && *at_ == '-') ++at_;
    if (!whole() || !fraction() || !exponent() || more()) return false;
    return refuse_ ? significand_ == 0 || !huge_ : scales();
  }
  bool whole() {
    if (!digit()) return false;
    if (*at_ == '0') return ++at_, !digit();
    for (bool full = false; digit(); ++at_) {
      const auto d = static_cast<uint64_t>(*at_ - '0');
      full = full || !fits(d);
      if (full)
        ++exponent_;
      else
        add(d);
    }
    return true;
  }
  bool fraction() {
    if (!more() || *at_ != '.') return true;
    ++at_;
    if (!digit()) return false;
    for (bool full = false; digit(); ++at_) {
      const auto d = static_cast<uint64_t>(*at_ - '0');
      full = full || !fits(d);
      if (full) continue;
      add(d);
      --exponent_;
    }
    return true;
  }
  bool exponent() {
    if (!more() || (*at_ != 'e' && *at_ != 'E')) return true;
    ++at_;
    bool negative = false;
    if (more() && (*at_ == '-' || *at_ == '+')) negative = *at_++ == '-';
    if (!digit()) return false;
    int32_t n = 0;
    for (; digit(); ++at_)
      if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *at_ - '0', &n)) {
        refuse_ = true;
        n = 0;
      }
    huge_ = !negative;
    exponent_ += negative ? -int64_t{n} : int64_t{n};
    return true;
  }
  bool scales() const {
    double f = static_cast<double>(significand_);
    for (int64_t e = std::clamp<int64_t>(exponent_, INT32_MIN, INT32_MAX); e < -308; e += 308) {
      f /= 1e308;
      if (f == 0) return true;
    }
    if (exponent_ > 308) return f == 0;
    return exponent_ < 0 || std::isfinite(f * std::strtod(text("1e", exponent_).c_str(), nullptr));
  }

  const char *at_, *end_;
  uint64_t significand_ = 0;
  int64_t exponent_ = 0;
  bool refuse_ = false, huge_ = false;  // an exponent beyond 32 bits, and its sign
};

}  // namespace

bool is_acceptable_number(std::string_view token) {
  return IgnoredNumber::is_valid(token);
}

}  // namespace st
