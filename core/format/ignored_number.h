// A JSON number that is read only to be ignored, in a field that the format does
// not know. serde_json refuses one whose magnitude it cannot hold, by arithmetic
// of its own: at most as many digits as fit 64 bits, scaled by powers of ten. So
// do we, digit for digit.
#pragma once

#include <string_view>

namespace st {

// Is this token a number of JSON's, and one that the reference takes?
bool is_acceptable_number(std::string_view token);

}  // namespace st
