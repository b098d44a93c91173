// Numbers by the grammar of JSON alone. They may be of any size, though a parser holds those of 64 bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace st {

bool is_json_number(std::string_view token);

// The value, if it is a whole number below 2^64: 160, also as it is spelled by 160.0 or 1.6e2.
std::optional<uint64_t> whole_number(std::string_view token);

// The same JSON with 0 and spaces in the place of each number: so a parser that cannot hold one judges all else.
std::string without_numbers(std::string_view json);

}  // namespace st
