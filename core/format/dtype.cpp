#include "format/dtype.h"

namespace st {
namespace {

struct Row {
  std::string_view name;
  uint32_t bits;
};

constexpr Row rows[dtype_count] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};

const Row &row(Dtype d) {
  return rows[static_cast<uint32_t>(d) - 1];
}

}  // namespace

bool is_dtype(uint32_t number) {
  return number >= 1 && number <= dtype_count;
}
std::string_view dtype_name(Dtype d) {
  return row(d).name;
}
uint32_t dtype_bits(Dtype d) {
  return row(d).bits;
}

std::optional<Dtype> parse_dtype(std::string_view name) {
  for (uint32_t i = 0; i < dtype_count; ++i)
    if (rows[i].name == name) return static_cast<Dtype>(i + 1);
  return std::nullopt;
}

}  // namespace st
