// The element types of the format; dtype_list.h has them.
#pragma once

#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

namespace st {

enum class Dtype : uint32_t {
#define ST_DTYPE(name, number, bits, rank) name = (number),
#include "format/dtype_list.h"
#undef ST_DTYPE
};
inline constexpr Dtype dtypes[] = {
#define ST_DTYPE(name, number, bits, rank) Dtype::name,
#include "format/dtype_list.h"
#undef ST_DTYPE
};
inline constexpr uint32_t dtype_count = std::size(dtypes);

bool is_dtype(uint32_t number);
std::string_view dtype_name(Dtype);  // NUL-terminated
uint32_t dtype_bits(Dtype);
uint32_t dtype_rank(Dtype);  // writers sort tensors by it
std::optional<Dtype> parse_dtype(std::string_view name);

}  // namespace st
