#include "format/dtype.h"

namespace st {
namespace {

struct Row {
  std::string_view name;
  uint32_t bits, rank;
};

// By number.
constexpr Row rows[dtype_count] = {
    {"BOOL", 8, 0},         {"F4", 4, 1},      {"F6_E2M3", 6, 2}, {"F6_E3M2", 6, 3}, {"U8", 8, 4},
    {"I8", 8, 5},           {"F8_E5M2", 8, 6}, {"F8_E4M3", 8, 7}, {"F8_E8M0", 8, 8}, {"F8_E4M3FNUZ", 8, 9},
    {"F8_E5M2FNUZ", 8, 10}, {"I16", 16, 11},   {"U16", 16, 12},   {"F16", 16, 13},   {"BF16", 16, 14},
    {"I32", 32, 15},        {"U32", 32, 16},   {"F32", 32, 17},   {"C64", 64, 18},   {"F64", 64, 19},
    {"I64", 64, 20},        {"U64", 64, 21},
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
uint32_t dtype_rank(Dtype d) {
  return row(d).rank;
}

std::optional<Dtype> parse_dtype(std::string_view name) {
  for (uint32_t i = 0; i < dtype_count; ++i)
    if (rows[i].name == name) return static_cast<Dtype>(i + 1);
  return std::nullopt;
}

}  // namespace st
