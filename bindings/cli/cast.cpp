#include "cast.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <optional>

#include "code.h"
#include "failure.h"
#include "handle.h"
#include "number.h"
#include "text.h"

namespace stctl {
namespace {

// A double holds every number of every dtype but integers of more than 53 bits. `long double` holds these on some
// platforms alone.
struct Value {
  double real = 0, imaginary = 0;
  std::optional<uint64_t> magnitude = {};  // of an integer
};

// An integer of more than 53 bits is rounded to odd: it becomes the next double towards 0, with the last bit set. To
// round that double to 51 bits or fewer is to round the integer.
double to_odd(uint64_t magnitude) {
  const int extra = static_cast<int>(std::bit_width(magnitude)) - 53;
  if (extra <= 0) return static_cast<double>(magnitude);
  const uint64_t kept = magnitude >> extra, is_more = kept << extra != magnitude;
  return std::ldexp(static_cast<double>(kept | is_more), extra);
}

Value unsigned_integer(uint64_t v) {
  return {to_odd(v), 0, v};
}

Value signed_integer(int64_t v) {
  const uint64_t bits = static_cast<uint64_t>(v);
  return v < 0 ? Value{-to_odd(-bits), 0, -bits} : unsigned_integer(bits);
}

Value value_of(st_dtype dtype, uint64_t code) {
  const auto f32 = [](uint64_t bits) { return double{std::bit_cast<float>(static_cast<uint32_t>(bits))}; };
  if (const std::optional<SmallFloat> f = small_float(dtype)) return {decode(*f, code)};
  switch (dtype) {
    case ST_DTYPE_BOOL: return {code != 0 ? 1.0 : 0.0};
    case ST_DTYPE_I8: return signed_integer(static_cast<int8_t>(code));
    case ST_DTYPE_I16: return signed_integer(static_cast<int16_t>(code));
    case ST_DTYPE_I32: return signed_integer(static_cast<int32_t>(code));
    case ST_DTYPE_I64: return signed_integer(static_cast<int64_t>(code));
    case ST_DTYPE_F8_E8M0: return {code == e8m0_nan ? NAN : std::ldexp(1.0, static_cast<int>(code) - e8m0_bias)};
    case ST_DTYPE_F32: return {f32(code)};
    case ST_DTYPE_F64: return {std::bit_cast<double>(code)};
    case ST_DTYPE_C64: return {f32(code & UINT32_MAX), f32(code >> 32)};
    case ST_DTYPE_U8:
    case ST_DTYPE_U16:
    case ST_DTYPE_U32:
    case ST_DTYPE_U64: return unsigned_integer(code);
    default: refuse_elements(dtype);
  }
}

std::optional<uint64_t> integer_code(st_dtype dtype, const Value &v) {
  const bool has_sign = st_dtype_name(dtype)[0] == 'I';
  const int bits = static_cast<int>(st_dtype_bits(dtype));
  const double nearest = std::nearbyint(v.real);  // of a NaN a NaN, which fails both
  const double above = std::ldexp(1.0, has_sign ? bits - 1 : bits);
  if (!(nearest >= (has_sign ? -above : 0) && nearest < above)) return std::nullopt;
  const uint64_t magnitude = v.magnitude ? *v.magnitude : static_cast<uint64_t>(std::fabs(nearest));
  return nearest < 0 ? -magnitude : magnitude;
}

uint64_t f64_code(const Value &v) {
  return std::bit_cast<uint64_t>(v.magnitude ? std::copysign(static_cast<double>(*v.magnitude), v.real) : v.real);
}

// The significand is one bit, always 1: so of two powers as near the larger is the even one.
std::optional<uint64_t> e8m0_code(double v) {
  if (std::isnan(v)) return e8m0_nan;
  if (!(v > 0) || std::isinf(v)) return std::nullopt;
  int exponent = 0;
  const double half_to_one = std::frexp(v, &exponent);
  const int code = exponent - (half_to_one < 0.75 ? 1 : 0) + e8m0_bias;
  if (code < 0 || code >= static_cast<int>(e8m0_nan)) return std::nullopt;
  return static_cast<uint64_t>(code);
}

uint64_t f32_code(double v) {
  return std::bit_cast<uint32_t>(static_cast<float>(v));
}

// What is beyond the range lies there, where there is one.
std::optional<uint64_t> or_infinity(const SmallFloat &f, std::optional<uint64_t> code, bool negative) {
  if (code || f.specials != SmallFloat::ieee) return code;
  return f.infinity() | (negative ? f.sign() : 0);
}

std::optional<uint64_t> code_of(st_dtype dtype, const Value &value) {
  const double v = value.real;
  if (dtype == ST_DTYPE_C64) return f32_code(v) | f32_code(value.imaginary) << 32;
  if (value.imaginary != 0) return std::nullopt;  // a NaN, too
  if (const std::optional<SmallFloat> f = small_float(dtype)) return or_infinity(*f, encode(*f, v), std::signbit(v));
  switch (dtype) {
    case ST_DTYPE_BOOL: return v != 0;
    case ST_DTYPE_F8_E8M0: return e8m0_code(v);
    case ST_DTYPE_F32: return f32_code(v);
    case ST_DTYPE_F64: return f64_code(value);
    case ST_DTYPE_I8:
    case ST_DTYPE_I16:
    case ST_DTYPE_I32:
    case ST_DTYPE_I64:
    case ST_DTYPE_U8:
    case ST_DTYPE_U16:
    case ST_DTYPE_U32:
    case ST_DTYPE_U64: return integer_code(dtype, value);
    default: refuse_elements(dtype);
  }
}

uint64_t packed_size(uint32_t bits, uint64_t elements) {
  return elements / 8 * bits + (elements % 8 * bits + 7) / 8;
}

// Elements of so many bits, one behind the other; the last byte is filled up with zeros.
class Packer {
 public:
  Packer(uint32_t bits, uint64_t elements) : bits_(bits), out_(packed_size(bits, elements), '\0') {}

  void add(uint64_t code) {
    for (uint32_t done = 0; done < bits_;) {
      const uint32_t shift = static_cast<uint32_t>(at_ % 8), taken = std::min(8 - shift, bits_ - done);
      const uint64_t part = (code >> done) & ((uint64_t{1} << taken) - 1);
      out_[at_ / 8] = static_cast<char>(static_cast<uint8_t>(out_[at_ / 8]) | part << shift);
      done += taken;
      at_ += taken;
    }
  }
  std::string take() { return std::move(out_); }

 private:
  uint32_t bits_;
  uint64_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string cast(st_dtype from, std::string_view bytes, st_dtype to) {
  if (from == to) return std::string(bytes);
  const uint64_t n = elements_of(from, bytes.size());
  Packer out(st_dtype_bits(to), n);
  // By bits, as most casts are of this kind.
  const std::optional<SmallFloat> f = from == ST_DTYPE_F32 ? small_float(to) : std::nullopt;
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t old = load_code(from, bytes, i);
    const std::optional<uint64_t> code =
        f ? or_infinity(*f, encode_f32(*f, static_cast<uint32_t>(old)), old >> 31) : code_of(to, value_of(from, old));
    if (!code) {
      throw Failure(exit_failed, fmt::format("{} has no element for the {} {}", st_dtype_name(to), st_dtype_name(from),
                                             element_text(from, bytes, i)));
    }
    out.add(*code);
  }
  return out.take();
}

std::string cast(std::string_view name, const st_tensor &tensor, st_dtype to) {
  // A shape without a size is refused by libst.
  const std::optional<uint64_t> size = size_of(tensor.dtype, tensor.shape, tensor.rank);
  if (size && *size != tensor.nbytes) {
    throw Failure(exit_failed,
                  fmt::format("tensor '{}' has {} bytes, but {} of its shape {} has {}", escape(name), tensor.nbytes,
                              st_dtype_name(tensor.dtype), shape_text(tensor.shape, tensor.rank), *size),
                  ST_E_NBYTES_MISMATCH);
  }
  return cast(tensor.dtype, {static_cast<const char *>(tensor.data), tensor.nbytes}, to);
}

std::optional<uint64_t> size_of(st_dtype dtype, const uint64_t *shape, size_t rank) {
  uint64_t bits = st_dtype_bits(dtype);
  bool overflow = false;
  for (size_t d = 0; d < rank; ++d) overflow |= __builtin_mul_overflow(bits, shape[d], &bits);
  if (overflow) return std::nullopt;
  return bits / 8 + (bits % 8 != 0);
}

uint64_t cast_size(st_dtype from, uint64_t nbytes, st_dtype to) {
  return from == to ? nbytes : packed_size(st_dtype_bits(to), elements_of(from, nbytes));
}

std::string cast_text(st_dtype from, st_dtype to) {
  return fmt::format("cast from {} to {}, each to the nearest, ties to even", st_dtype_name(from), st_dtype_name(to));
}

std::string packed(st_dtype dtype, std::string_view bytes) {
  if (st_dtype_bits(dtype) >= 8) return std::string(bytes);
  Packer out(st_dtype_bits(dtype), bytes.size());
  for (const char byte : bytes) out.add(static_cast<uint8_t>(byte) & ((1u << st_dtype_bits(dtype)) - 1));
  return out.take();
}

std::string unpacked(st_dtype dtype, std::string_view bytes) {
  if (st_dtype_bits(dtype) >= 8) return std::string(bytes);
  std::string out(elements_of(dtype, bytes.size()), '\0');
  for (uint64_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>(load_code(dtype, bytes, i));
  return out;
}

}  // namespace stctl
