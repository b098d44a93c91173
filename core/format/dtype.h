// The element types of the format: names, numbers and bits. The numbers are
// those of st.h, and their order is the reference's order of alignment, by
// which writers sort tensors.
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
std::optional<Dtype> parse_dtype(std::string_view name);

}  // namespace st
