#include "remote/error_body.h"

#include <pugixml.hpp>

namespace st::remote {

std::string printable(std::string_view text) {
  constexpr size_t longest = 200;
  std::string out;
  for (const char c : text.substr(0, longest)) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  return out;
}

ErrorBody parse_error_body(std::string_view text) {
  pugi::xml_document document;
  if (!document.load_buffer(text.data(), text.size(), pugi::parse_minimal | pugi::parse_escapes)) return {};
  const pugi::xml_node error = document.child("Error");
  return {printable(error.child_value("Code")), printable(error.child_value("Message"))};
}

}  // namespace st::remote
