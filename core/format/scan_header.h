// A fast reader for headers as writers really spell them: plain strings without
// escapes, the three fields of a tensor in any order, numbers of ordinary size.
// It never refuses: whatever it does not expect it leaves to the full parser.
#pragma once

#include <string_view>

#include "format/index.h"

namespace st {

// True if the whole header was of the plain form; the builder then holds all of
// it. False: start over with a fresh builder and the full parser, which decides
// what is wrong, if anything. `json` must be followed by header_padding bytes
// and be valid UTF-8.
bool scan_header(std::string_view json, IndexBuilder &builder);

}  // namespace st
