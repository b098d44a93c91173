// A JSON document, walked as it is parsed. simdjson does not look whether it got the memory into which it unescapes
// strings; this does.
#pragma once

#include <simdjson.h>

namespace st {

class JsonDocument : public simdjson::ondemand::document {
 public:
  // `json`: what parser.iterate() takes. MEMALLOC also where the parser has no memory for strings.
  template <class... Json>
  simdjson::error_code parse(simdjson::ondemand::parser &parser, const Json &...json) {
    const auto code = parser.iterate(json...).get(static_cast<simdjson::ondemand::document &>(*this));
    return code == simdjson::SUCCESS && !iter.string_buf_loc() ? simdjson::MEMALLOC : code;
  }
};

}  // namespace st
