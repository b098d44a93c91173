#include "number.h"

#include <ctype.h>
#include <errno.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

#include "code.h"
#include "failure.h"
#include "text.h"

namespace stctl {
namespace {

enum class For { people, programs };

// `shortest` is fmt's shortest text that reads back as v in v's own format.
std::string float_text(double v, const std::string &shortest) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  return std::fabs(v) < 1e16 && v == std::trunc(v) ? fmt::format("{:.1f}", v) : shortest;
}

std::string f32_text(uint64_t code) {
  const float v = std::bit_cast<float>(static_cast<uint32_t>(code));
  return float_text(v, fmt::format("{}", v));
}

std::string f64_text(uint64_t code) {
  const double v = std::bit_cast<double>(code);
  return float_text(v, fmt::format("{}", v));
}

std::string small_text(const SmallFloat &f, uint64_t code, For reader) {
  const double v = decode(f, code);
  const bool exact = reader == For::programs || f.exponent_bits + f.mantissa_bits < 8;
  if (exact || !std::isfinite(v)) {
    return float_text(v, fmt::format("{}", static_cast<float>(v)));  // a float holds them all
  }
  double shortest = v;
  for (int digits = 1; digits <= 9; ++digits) {
    shortest = strtod(fmt::format("{:.{}g}", v, digits).c_str(), nullptr);
    if (encode(f, shortest) == code) break;
  }
  return float_text(v, fmt::format("{}", shortest));
}

std::string e8m0_text(uint64_t code) {
  if (code == e8m0_nan) return "nan";
  const float v = std::ldexp(1.0f, static_cast<int>(code) - e8m0_bias);
  return float_text(v, fmt::format("{}", v));
}

std::string real_text(st_dtype dtype, uint64_t code, For reader) {
  if (const std::optional<SmallFloat> f = small_float(dtype)) return small_text(*f, code, reader);
  switch (dtype) {
    case ST_DTYPE_BOOL: return code ? "true" : "false";
    case ST_DTYPE_I8: return std::to_string(static_cast<int8_t>(code));
    case ST_DTYPE_I16: return std::to_string(static_cast<int16_t>(code));
    case ST_DTYPE_I32: return std::to_string(static_cast<int32_t>(code));
    case ST_DTYPE_I64: return std::to_string(static_cast<int64_t>(code));
    case ST_DTYPE_F8_E8M0: return e8m0_text(code);
    case ST_DTYPE_F32: return f32_text(code);
    case ST_DTYPE_F64: return f64_text(code);
    case ST_DTYPE_U8:
    case ST_DTYPE_U16:
    case ST_DTYPE_U32:
    case ST_DTYPE_U64: return std::to_string(code);
    default: refuse_elements(dtype);
  }
}

std::string as_json(const std::string &text) {
  if (text == "nan") return "\"NaN\"";
  if (text == "inf") return "\"Infinity\"";
  if (text == "-inf") return "\"-Infinity\"";
  return text;
}

UsageFailure no_number(st_dtype dtype, const std::string &text) {
  return UsageFailure(fmt::format("'{}' is no number that {} can hold", escape(text), st_dtype_name(dtype)));
}

template <class Int>
std::optional<uint64_t> parse_int(const std::string &text) {
  Int value = 0;
  const char *end = text.data() + text.size();
  const std::from_chars_result result = std::from_chars(text.data(), end, value);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return static_cast<std::make_unsigned_t<Int>>(value);
}

// The whole of `text` as a double or float; infinite only if the text says so.
template <class Float>
std::optional<Float> parse_float(const std::string &text, Float (*convert)(const char *, char **)) {
  if (text.empty() || isspace(static_cast<unsigned char>(text[0]))) return std::nullopt;
  char *end = nullptr;
  errno = 0;
  const Float value = convert(text.c_str(), &end);
  if (*end != '\0' || (errno == ERANGE && std::isinf(value))) return std::nullopt;
  return value;
}

std::optional<uint64_t> parse_f32(const std::string &text) {
  const std::optional<float> v = parse_float(text, strtof);
  if (!v) return std::nullopt;
  return std::bit_cast<uint32_t>(*v);
}

// As Python writes them: 1, 2j, 1+2j, 1e3-2e-3j.
std::optional<uint64_t> parse_complex(std::string text) {
  if (text.empty() || text.back() != 'j') return parse_f32(text);
  text.pop_back();
  size_t split = text.size();
  while (split > 0 && !((text[split - 1] == '+' || text[split - 1] == '-') &&
                        (split == 1 || (text[split - 2] != 'e' && text[split - 2] != 'E')))) {
    --split;
  }
  const size_t imaginary = split > 0 ? split - 1 : 0;
  const std::optional<uint64_t> re = imaginary == 0 ? 0 : parse_f32(text.substr(0, imaginary));
  const std::optional<uint64_t> im = parse_f32(text.substr(imaginary));
  if (!re || !im) return std::nullopt;
  return *re | *im << 32;
}

std::optional<uint64_t> parse(st_dtype dtype, const std::string &text) {
  switch (dtype) {
    case ST_DTYPE_BOOL:
      if (text == "true" || text == "1") return 1;
      if (text == "false" || text == "0") return 0;
      return std::nullopt;
    case ST_DTYPE_U8: return parse_int<uint8_t>(text);
    case ST_DTYPE_I8: return parse_int<int8_t>(text);
    case ST_DTYPE_I16: return parse_int<int16_t>(text);
    case ST_DTYPE_U16: return parse_int<uint16_t>(text);
    case ST_DTYPE_I32: return parse_int<int32_t>(text);
    case ST_DTYPE_U32: return parse_int<uint32_t>(text);
    case ST_DTYPE_I64: return parse_int<int64_t>(text);
    case ST_DTYPE_U64: return parse_int<uint64_t>(text);
    case ST_DTYPE_F32: return parse_f32(text);
    case ST_DTYPE_C64: return parse_complex(text);
    default: break;
  }
  const std::optional<SmallFloat> f = small_float(dtype);
  if (!f && dtype != ST_DTYPE_F64 && dtype != ST_DTYPE_F8_E8M0) refuse_elements(dtype);
  const std::optional<double> v = parse_float(text, strtod);
  if (!v) return std::nullopt;
  if (f) return encode(*f, *v);
  if (dtype == ST_DTYPE_F64) return std::bit_cast<uint64_t>(*v);
  if (std::isnan(*v)) return e8m0_nan;  // F8_E8M0: only powers of two, so nothing is rounded
  int exponent = 0;
  if (!std::isfinite(*v) || std::frexp(*v, &exponent) != 0.5) return std::nullopt;
  const int code = exponent - 1 + e8m0_bias;
  if (code < 0 || code >= static_cast<int>(e8m0_nan)) return std::nullopt;
  return static_cast<uint64_t>(code);
}

}  // namespace

std::string element_text(st_dtype dtype, std::string_view bytes, uint64_t i) {
  const uint64_t code = load_code(dtype, bytes, i);
  if (dtype != ST_DTYPE_C64) return real_text(dtype, code, For::people);
  const std::string im = f32_text(code >> 32);
  return f32_text(code & UINT32_MAX) + (im[0] == '-' ? "" : "+") + im + "j";
}

std::string element_json(st_dtype dtype, std::string_view bytes, uint64_t i) {
  const uint64_t code = load_code(dtype, bytes, i);
  if (dtype != ST_DTYPE_C64) return as_json(real_text(dtype, code, For::programs));
  return fmt::format("[{},{}]", as_json(f32_text(code & UINT32_MAX)), as_json(f32_text(code >> 32)));
}

std::string filled(st_dtype dtype, uint64_t nbytes, const std::string &text) {
  const std::optional<uint64_t> code = parse(dtype, text);
  if (!code) throw no_number(dtype, text);
  // A pattern of whole bytes: one element, or as many of 4 or 6 bits as fill three bytes.
  const uint32_t bits = st_dtype_bits(dtype);
  const uint32_t pattern_bits = bits < 8 ? 24 : bits;
  uint64_t pattern = *code;
  for (uint32_t at = bits; at < pattern_bits; at += bits) pattern |= *code << at;
  std::string out(nbytes, '\0');
  const uint64_t pattern_bytes = std::min<uint64_t>(pattern_bits / 8, nbytes);
  for (uint64_t at = 0; at < pattern_bytes; ++at) out[at] = static_cast<char>(pattern >> (8 * at));
  for (uint64_t done = pattern_bytes; done < nbytes; done *= 2) {
    std::memcpy(&out[done], &out[0], std::min(done, nbytes - done));
  }
  return out;
}

}  // namespace stctl
