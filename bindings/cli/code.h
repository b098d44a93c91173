// Elements as codes, the integers of their bits; and what the codes of floats of at most 16 bits mean.
#pragma once

#include <st/st.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace stctl {

// Element i of packed little-endian elements. Those of 4 and 6 bits are packed from the low bits up.
uint64_t load_code(st_dtype dtype, std::string_view bytes, uint64_t i);

// A float of at most 16 bits: sign, exponent, mantissa.
struct SmallFloat {
  enum Specials {
    ieee,      // the highest exponent is infinity and NaN
    nan_only,  // all ones is NaN, no infinity
    fnuz,      // the code of -0 is NaN, no infinity
    none,      // neither
  };
  int exponent_bits;
  int mantissa_bits;
  int bias;
  Specials specials;

  uint64_t sign() const { return uint64_t{1} << (exponent_bits + mantissa_bits); }
  uint64_t infinity() const { return ((uint64_t{1} << exponent_bits) - 1) << mantissa_bits; }
  uint64_t highest() const {  // code of the largest finite value
    return specials == ieee ? infinity() - 1 : specials == nan_only ? sign() - 2 : sign() - 1;
  }
};

std::optional<SmallFloat> small_float(st_dtype dtype);

// libst may be newer than stctl, and know a dtype more: what its elements are nobody has said here.
[[noreturn]] void refuse_elements(st_dtype dtype);

double decode(const SmallFloat &f, uint64_t code);

// The nearest element, ties to even; nothing if there is none.
std::optional<uint64_t> encode(const SmallFloat &f, double v);

// The same of an F32's code, and much faster.
std::optional<uint64_t> encode_f32(const SmallFloat &f, uint32_t code);

inline constexpr uint64_t e8m0_nan = 0xff;
inline constexpr int e8m0_bias = 127;

}  // namespace stctl
