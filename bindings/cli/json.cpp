#include "json.h"

#include "text.h"

namespace stctl {
namespace {

// RFC 8259: quotes, backslash and controls escaped. What is not UTF-8 (a path, never a
// tensor's name) becomes U+FFFD.
std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::string_view before = text;
    const uint32_t c = take_code_point(text);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c < 0x20 || (c >= 0x7f && c < 0xa0)) {  // C1 controls too: a terminal may obey them
      out += fmt::format("\\u{:04x}", c);
    } else if (c == bad_utf8) {
      out += "\uFFFD";
    } else {
      out += before.substr(0, before.size() - text.size());
    }
  }
  return out += '"';
}

}  // namespace

void Json::comma() {
  if (!first_) out_.write(",");
  first_ = false;
}

void Json::open(char bracket) {
  comma();
  out_.write({&bracket, 1});
  first_ = true;
}

void Json::close(char bracket) {
  out_.write({&bracket, 1});
  first_ = false;
}

void Json::key(std::string_view name) {
  comma();
  out_.write(in_quotes(name) + ":");
  first_ = true;
}

void Json::value(std::string_view text) {
  raw(in_quotes(text));
}

void Json::raw(std::string_view json) {
  comma();
  out_.write(json);
}

}  // namespace stctl
