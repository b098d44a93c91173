#include "remote/error_body.h"

#include <algorithm>
#include <pugixml.hpp>

#include "base/error.h"
#include "base/ascii.h"
#include "base/visible.h"
#include "remote/credentials/json.h"

namespace st::remote {

std::string printable(std::string_view text) {
  constexpr size_t longest = 200;
  std::string out;
  for (std::string_view left = text.substr(0, longest); !left.empty();) {
    const Character c = take_character(&left);
    if (c.is_visible)
      out += c.bytes;
    else
      out += ' ';
  }
  return out;
}

namespace {

// OAuth says {"error": NAME, "error_description": …}; Google {"error": {"status": NAME, "message": …}}; AWS and
// Azure {"code": NAME, "message": …} where they do not say XML.
ErrorBody of_json(std::string_view text) {
  const auto json = Json::parse(text);
  if (!json) return {};
  const auto first = [&](std::initializer_list<const char *> pointers) {
    for (const char *pointer : pointers)
      if (const std::string found = json->text(pointer); !found.empty()) return printable(found);
    return std::string();
  };
  return {first({"/error", "/error/status", "/error/code", "/code", "/Code", "/__type"}),
          first({"/error_description", "/error/message", "/message", "/Message"}),
          {}};
}

// A server may repeat the URL that it was asked for, and with it a signature.
std::string without_queries(std::string text) {
  for (size_t mark = text.find('?'); mark != text.npos; mark = text.find('?', mark + 1)) {
    const size_t end = std::min(text.find_first_of(" \t\"'<>)", mark), text.size());
    if (text.find('=', mark) < end) text.replace(mark + 1, end - mark - 1, "...");
  }
  return text;
}

}  // namespace

ErrorBody parse_error_body(std::string_view text) {
  if (trimmed(text).starts_with('{')) return of_json(text);
  pugi::xml_document document;
  if (!document.load_buffer(text.data(), text.size(), pugi::parse_minimal | pugi::parse_escapes)) return {};
  // STS puts it inside an ErrorResponse.
  pugi::xml_node error = document.child("Error");
  if (!error) error = document.child("ErrorResponse").child("Error");
  return {printable(error.child_value("Code")), printable(error.child_value("Message")),
          printable(error.child_value("Region"))};
}

std::string request_id(const Head &head) {
  for (const char *name :
       {"x-amz-request-id", "x-amzn-requestid", "x-request-id", "x-ms-request-id", "x-guploader-uploadid"})
    if (const std::string_view id = head.field(name); !id.empty()) return " (request id " + printable(id) + ")";
  return {};
}

bool says_keys_ended(std::string_view code) {
  return code == "ExpiredToken" || code == "InvalidToken" || code == "RequestExpired" || code == "TokenRefreshRequired";
}

std::string said(const Answer &answer) {
  ErrorBody body = parse_error_body(answer.text);
  if (body.code.empty()) body.code = printable(answer.head.field("x-error-code"));  // the Hub
  if (body.message.empty()) body.message = printable(answer.head.field("x-error-message"));
  std::string out = text(answer.head.code);
  if (!body.code.empty()) out += " " + body.code;
  if (!body.message.empty()) out += ": " + without_queries(std::move(body.message));
  return out + request_id(answer.head);
}

}  // namespace st::remote
