// A string as JSON spells it, in the way of the stock writers.
#pragma once

#include <string>
#include <string_view>

namespace st {

// With its quotes, as serde_json writes it; `s` is UTF-8.
void append_json_string(std::string &out, std::string_view s);
// The same as Python's json.dumps writes it: in ASCII. What is no UTF-8 stays as it is, for a check that follows.
void append_ascii_json_string(std::string &out, std::string_view s);

}  // namespace st
