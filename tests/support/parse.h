// Headers from JSON in memory, as the parser wants them: with readable padding.
#pragma once

#include "format/header.h"
#include "format/scan_header.h"
#include "test_files.h"

namespace st::testing {

// The padding is no spaces: a parser that reads beyond the NUL finds rubbish.
inline std::string padded(std::string json) {
  return std::move(json.append(1, '\0').append(header_padding - 1, '"'));
}

inline Result<Header> parse(const std::string &json, uint64_t data_bytes, uint64_t seed = 1) {
  const std::string room = padded(json);
  return parse_header(room.data(), json.size(), length_bytes + json.size() + data_bytes, seed);
}

// Is the header of the plain form, which the fast reader takes?
inline bool is_plain(const std::string &json) {
  const std::string room = padded(json);
  IndexBuilder builder(1, json.size());
  return scan_header({room.data(), json.size()}, builder);
}

}  // namespace st::testing
