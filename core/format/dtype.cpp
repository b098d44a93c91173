#include "format/dtype.h"

namespace st {
namespace {

struct Row {
  std::string_view name;
  uint32_t bits, rank;
};

// By number.
constexpr Row rows[dtype_count] = {
#define ST_DTYPE(name, number, bits, rank) {#name, bits, rank},
#include "format/dtype_list.h"
#undef ST_DTYPE
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
