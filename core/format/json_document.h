// JSON for simdjson, which does not look everywhere whether it got its memory. What is here does.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>

namespace st {

// A copy with the padding that simdjson wants. Unlike simdjson::padded_string it throws where memory runs out; that one
// would be empty.
class PaddedJson {
 public:
  explicit PaddedJson(std::string_view json) : size_(json.size()) {
    padded_.reserve(size_ + simdjson::SIMDJSON_PADDING);
    padded_ = json;
    padded_.resize(size_ + simdjson::SIMDJSON_PADDING);
  }
  const char *data() const { return padded_.data(); }
  size_t size() const { return size_; }
  size_t capacity() const { return padded_.size(); }

 private:
  std::string padded_;
  size_t size_;
};

// A document, walked as it is parsed. simdjson does not look whether it got the memory into which it unescapes strings.
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
