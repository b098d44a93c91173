// The element types of the format: names, numbers, bits and ranks. The numbers
// are those of st.h; they say nothing of the order.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace st {

enum class Dtype : uint32_t {
  BOOL = 1,
  F4,
  F6_E2M3,
  F6_E3M2,
  U8,
  I8,
  F8_E5M2,
  F8_E4M3,
  F8_E8M0,
  F8_E4M3FNUZ,
  F8_E5M2FNUZ,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  C64,
  F64,
  I64,
  U64,
};
inline constexpr uint32_t dtype_count = 22;

bool is_dtype(uint32_t number);
std::string_view dtype_name(Dtype);  // NUL-terminated
uint32_t dtype_bits(Dtype);
// The place in the reference's order of alignment, from 0: writers sort tensors
// by it. A dtype that is added takes the next number, and a rank between others.
uint32_t dtype_rank(Dtype);
std::optional<Dtype> parse_dtype(std::string_view name);

}  // namespace st
