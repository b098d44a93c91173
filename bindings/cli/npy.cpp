#include "npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

#include "cast.h"
#include "failure.h"
#include "text.h"

namespace stctl {
namespace {

constexpr std::string_view magic = "\x93NUMPY";

struct Kind {
  st_dtype dtype;
  std::string_view descr;
};
constexpr Kind kinds[] = {
    {ST_DTYPE_BOOL, "|b1"}, {ST_DTYPE_U8, "|u1"},  {ST_DTYPE_I8, "|i1"},  {ST_DTYPE_I16, "<i2"},  {ST_DTYPE_U16, "<u2"},
    {ST_DTYPE_F16, "<f2"},  {ST_DTYPE_I32, "<i4"}, {ST_DTYPE_U32, "<u4"}, {ST_DTYPE_F32, "<f4"},  {ST_DTYPE_C64, "<c8"},
    {ST_DTYPE_F64, "<f8"},  {ST_DTYPE_I64, "<i8"}, {ST_DTYPE_U64, "<u8"}, {ST_DTYPE_BF16, "<V2"},
};
// What ml_dtypes writes for its dtypes of one byte, and for those of 4 and 6 bits, which take a byte each there. Only
// for float8_e5m2 it writes "<f1", which NumPy does not read.
constexpr std::string_view one_byte = "<V1", e5m2 = "<f1";

constexpr size_t shortest_npy = magic.size() + 4;  // with the version, and a header's length of two bytes

// Where the header begins and ends; nothing if it has another version.
struct HeaderBounds {
  uint64_t begin, end;
};
std::optional<HeaderBounds> header_of(std::string_view file) {
  const int version = static_cast<uint8_t>(file[magic.size()]);
  if (version < 1 || version > 3) return std::nullopt;
  const size_t length_bytes = version == 1 ? 2 : 4;
  size_t at = magic.size() + 2;
  uint64_t length = 0;
  for (size_t i = 0; i < length_bytes && at < file.size(); ++i, ++at) {
    length |= static_cast<uint64_t>(static_cast<uint8_t>(file[at])) << (8 * i);
  }
  return HeaderBounds{at, at + length};
}

// What stands behind 'key': in the header's Python dict, between `begin` and `end`.
std::optional<std::string_view> value_of(std::string_view dict, std::string_view key, std::string_view begin,
                                         std::string_view end) {
  const std::string quoted = fmt::format("'{}':", key);
  size_t at = dict.find(quoted);
  if (at == dict.npos) return std::nullopt;
  dict.remove_prefix(at + quoted.size());
  dict.remove_prefix(std::min(dict.find_first_not_of(' '), dict.size()));
  if (!dict.starts_with(begin)) return std::nullopt;
  dict.remove_prefix(begin.size());
  at = dict.find(end);
  if (at == dict.npos) return std::nullopt;
  return dict.substr(0, at);
}

// "2, 3" or "2," or ""
std::optional<std::vector<uint64_t>> parse_shape(std::optional<std::string_view> tuple) {
  if (!tuple) return std::nullopt;
  std::string_view text = *tuple;
  std::vector<uint64_t> shape;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(" ,"), text.size()));
    if (text.empty()) return shape;
    uint64_t n = 0;
    const std::from_chars_result result = std::from_chars(text.data(), text.data() + text.size(), n);
    if (result.ec != std::errc()) return std::nullopt;
    shape.push_back(n);
    text.remove_prefix(static_cast<size_t>(result.ptr - text.data()));
  }
}

std::optional<std::string> descr_of(std::string_view dict) {
  const std::optional<std::string_view> said = value_of(dict, "descr", "'", "'");
  if (!said) return std::nullopt;
  std::string descr(*said);
  if (descr.starts_with("|V")) descr.front() = '<';  // as older versions write it
  return descr;
}

bool fits_bits(std::string_view bytes, uint32_t bits) {
  return std::none_of(bytes.begin(), bytes.end(), [bits](char byte) { return static_cast<uint8_t>(byte) >> bits; });
}

}  // namespace

std::string npy_descr(st_dtype dtype) {
  for (const Kind &kind : kinds) {
    if (kind.dtype == dtype) return std::string(kind.descr);
  }
  return std::string(one_byte);
}

std::string npy_header(st_dtype dtype, const std::vector<uint64_t> &shape) {
  std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", npy_descr(dtype),
                                 fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  const size_t before = magic.size() + 4;
  dict.append(63 - (before + dict.size()) % 64, ' ');
  dict += '\n';
  std::string header(magic);
  if (dict.size() > 65535) throw Failure(exit_failed, "a shape too long for a .npy file");
  header += {'\1', '\0', static_cast<char>(dict.size() & 0xff), static_cast<char>(dict.size() >> 8)};
  return header + dict;
}

uint64_t npy_size(std::string_view first) {
  if (first.size() < shortest_npy + 2) return magic.starts_with(first.substr(0, magic.size())) ? shortest_npy + 2 : 0;
  if (!first.starts_with(magic)) return 0;
  const std::optional<HeaderBounds> header = header_of(first);
  if (!header || header->end > first.size()) return header ? header->end : 0;
  const std::string_view dict = first.substr(header->begin, header->end - header->begin);
  const std::optional<std::string> descr = descr_of(dict);
  const std::optional<std::vector<uint64_t>> shape = parse_shape(value_of(dict, "shape", "(", ")"));
  st_dtype dtype = descr == one_byte || descr == e5m2 ? ST_DTYPE_U8 : 0;
  for (const Kind &kind : kinds) {
    if (kind.descr == descr) dtype = kind.dtype;
  }
  if (!shape || dtype == 0) return header->end;
  // Where there is no such size, libst says so when it is given the shape.
  const uint64_t size = size_of(dtype, shape->data(), shape->size()).value_or(0);
  return size > UINT64_MAX - header->end ? header->end : header->end + size;
}

bool looks_at_elements(st_dtype unnamed) {
  return unnamed && st_dtype_bits(unnamed) < 8;
}

Npy parse_npy(std::string_view file, const std::string &path, st_dtype unnamed) {
  const auto refuse = [&path](const std::string &why) {
    return Failure(exit_failed, fmt::format("'{}' {}", escape(path), why));
  };
  if (!file.starts_with(magic) || file.size() < shortest_npy) throw refuse("is no .npy file");
  const std::optional<HeaderBounds> header = header_of(file);
  if (!header) {
    throw refuse(fmt::format("is a .npy file of the unknown version {}", static_cast<uint8_t>(file[magic.size()])));
  }
  if (header->end > file.size()) throw refuse("ends inside its .npy header");
  const std::string_view dict = file.substr(header->begin, header->end - header->begin);

  const std::optional<std::string> descr = descr_of(dict);
  Npy npy = {0, {}, file.substr(header->end), {}};
  for (const Kind &kind : kinds) {
    // One byte has no order, and NumPy writes "|"; "=" is never written.
    if (kind.descr == descr) npy.dtype = kind.dtype;
  }
  if (descr == e5m2) npy.dtype = ST_DTYPE_F8_E5M2;
  if (descr == one_byte) {
    if (unnamed == 0 || npy_descr(unnamed) != one_byte) {
      throw refuse("holds elements of one byte whose dtype NumPy does not name: say which, as in --dtype F8_E4M3");
    }
    npy.dtype = unnamed;
  }
  if (npy.dtype == 0) {
    throw refuse(
        fmt::format("holds elements of type '{}', which no safetensors dtype is "
                    "(use --from-raw for the bytes)",
                    descr ? escape(*descr) : "structure"));
  }
  const std::optional<std::vector<uint64_t>> shape = parse_shape(value_of(dict, "shape", "(", ")"));
  if (!shape) throw refuse("has a .npy header without a shape");
  npy.shape = *shape;
  if (descr == one_byte && looks_at_elements(unnamed)) {
    // Packed bytes do not tell what was missing, nor what was in the bits that are left out. A shape without a size is
    // refused by libst.
    const std::optional<uint64_t> size = size_of(ST_DTYPE_U8, npy.shape.data(), npy.shape.size());
    if (size && *size != npy.data.size()) {
      throw refuse(fmt::format("has {}, which are not those of its shape", counted(npy.data.size(), "element")));
    }
    if (!fits_bits(npy.data, st_dtype_bits(unnamed))) {
      throw refuse(fmt::format("holds bytes that are no elements of {}", st_dtype_name(unnamed)));
    }
    npy.packed = std::make_unique<std::string>(packed(unnamed, npy.data));
    npy.data = *npy.packed;
  }
  const bool c_order = value_of(dict, "fortran_order", "", ",") == "False";
  if (!c_order && npy.shape.size() > 1) throw refuse("is in Fortran order: save numpy.ascontiguousarray(x) instead");
  return npy;
}

}  // namespace stctl
