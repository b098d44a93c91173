#include "code.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "failure.h"

namespace stctl {
namespace {

// scaled * 2^(exponent - mantissa bits), which is at least 0; rounding may have made it a power of two.
std::optional<uint64_t> joined_code(const SmallFloat &f, uint64_t sign, int exponent, uint64_t scaled) {
  // A subnormal has no leading one, and its exponent's code is 0 instead of 1: both together are
  // this one formula. A significand rounded up to a power of two carries into the exponent.
  const uint64_t magnitude = (static_cast<uint64_t>(exponent + f.bias - 1) << f.mantissa_bits) + scaled;
  if (magnitude > f.highest()) return std::nullopt;
  if (magnitude == 0 && f.specials == SmallFloat::fnuz) return 0;
  return sign | magnitude;
}

}  // namespace

uint64_t load_code(st_dtype dtype, std::string_view bytes, uint64_t i) {
  const uint32_t bits = st_dtype_bits(dtype);
  const uint64_t bit = i * bits;
  uint64_t code = 0;
  const uint64_t first = bit / 8;
  const uint64_t last = (bit + bits - 1) / 8;
  for (uint64_t at = first; at <= last; ++at) {
    code |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[at])) << (8 * (at - first));
  }
  return bits == 64 ? code : (code >> bit % 8) & ((uint64_t{1} << bits) - 1);
}

std::optional<SmallFloat> small_float(st_dtype dtype) {
  switch (dtype) {
    case ST_DTYPE_F4: return SmallFloat{2, 1, 1, SmallFloat::none};
    case ST_DTYPE_F6_E2M3: return SmallFloat{2, 3, 1, SmallFloat::none};
    case ST_DTYPE_F6_E3M2: return SmallFloat{3, 2, 3, SmallFloat::none};
    case ST_DTYPE_F8_E5M2: return SmallFloat{5, 2, 15, SmallFloat::ieee};
    case ST_DTYPE_F8_E4M3: return SmallFloat{4, 3, 7, SmallFloat::nan_only};
    case ST_DTYPE_F8_E4M3FNUZ: return SmallFloat{4, 3, 8, SmallFloat::fnuz};
    case ST_DTYPE_F8_E5M2FNUZ: return SmallFloat{5, 2, 16, SmallFloat::fnuz};
    case ST_DTYPE_F16: return SmallFloat{5, 10, 15, SmallFloat::ieee};
    case ST_DTYPE_BF16: return SmallFloat{8, 7, 127, SmallFloat::ieee};
    default: return std::nullopt;
  }
}

void refuse_elements(st_dtype dtype) {
  throw Failure(exit_failed, fmt::format("this stctl does not know the elements of {}; use a newer one, or raw bytes",
                                         st_dtype_name(dtype)));
}

double decode(const SmallFloat &f, uint64_t code) {
  const bool negative = code & f.sign();
  const uint64_t magnitude = code & (f.sign() - 1);
  const double sign = negative ? -1 : 1;
  if (f.specials == SmallFloat::fnuz && code == f.sign()) return NAN;
  if (f.specials == SmallFloat::ieee && magnitude == f.infinity()) return sign * INFINITY;
  if (magnitude > f.highest()) return NAN;
  const int exponent = static_cast<int>(magnitude >> f.mantissa_bits);
  const uint64_t fraction = magnitude & ((uint64_t{1} << f.mantissa_bits) - 1);
  const uint64_t significand = exponent == 0 ? fraction : fraction + (uint64_t{1} << f.mantissa_bits);
  return sign * std::ldexp(static_cast<double>(significand), std::max(exponent, 1) - f.bias - f.mantissa_bits);
}

std::optional<uint64_t> encode(const SmallFloat &f, double v) {
  const uint64_t sign = std::signbit(v) ? f.sign() : 0;
  if (std::isnan(v)) {
    if (f.specials == SmallFloat::none) return std::nullopt;
    if (f.specials == SmallFloat::fnuz) return f.sign();
    if (f.specials == SmallFloat::nan_only) return sign | (f.sign() - 1);
    return sign | f.infinity() | uint64_t{1} << (f.mantissa_bits - 1);  // quiet
  }
  if (std::isinf(v)) {
    if (f.specials != SmallFloat::ieee) return std::nullopt;
    return sign | f.infinity();
  }
  if (v == 0) return f.specials == SmallFloat::fnuz ? 0 : sign;
  int exponent = 0;
  std::frexp(v, &exponent);  // v = m * 2^exponent, 1/2 <= m < 1
  exponent = std::max(exponent - 1, 1 - f.bias);
  const double scaled = std::nearbyint(std::ldexp(std::fabs(v), f.mantissa_bits - exponent));
  return joined_code(f, sign, exponent, static_cast<uint64_t>(scaled));
}

std::optional<uint64_t> encode_f32(const SmallFloat &f, uint32_t code) {
  constexpr int mantissa_bits = 23, bias = 127;
  const int exponent_code = static_cast<int>(code >> mantissa_bits & 0xff);
  const uint32_t fraction = code & ((uint32_t{1} << mantissa_bits) - 1);
  const bool is_special = exponent_code == 0xff || (exponent_code == 0 && fraction == 0);
  if (is_special) return encode(f, std::bit_cast<float>(code));
  const uint32_t significand = exponent_code == 0 ? fraction : fraction | uint32_t{1} << mantissa_bits;
  const int own = std::max(exponent_code, 1) - bias, exponent = std::max(own, 1 - f.bias);
  // What is shifted further is nearest to 0, too.
  const int shift = std::min(mantissa_bits - f.mantissa_bits + exponent - own, mantissa_bits + 2);
  const uint32_t odd = significand >> shift & 1, below_half = (uint32_t{1} << (shift - 1)) - 1;
  return joined_code(f, code >> 31 ? f.sign() : 0, exponent, (significand + below_half + odd) >> shift);
}

}  // namespace stctl
