// A string as JSON spells it, in the way of the stock writer (serde_json).
#pragma once

#include <string>
#include <string_view>

namespace st {

// With its quotes; `s` is UTF-8.
void append_json_string(std::string &out, std::string_view s);

}  // namespace st
