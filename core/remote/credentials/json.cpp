#include "remote/credentials/json.h"

#include <openssl/crypto.h>
#include <simdjson.h>

#include <charconv>
#include <new>

namespace st::remote {

struct Json::Document {
  explicit Document(std::string_view text) : copy(text), parsed(parser.parse(copy)) {
    if (copy.size() != text.size() || parsed.error() == simdjson::MEMALLOC) throw std::bad_alloc();
  }
  ~Document() {
    OPENSSL_cleanse(copy.data(), copy.size());
    // As much as document::allocate makes.
    if (parser.doc.string_buf) OPENSSL_cleanse(parser.doc.string_buf.get(), 5 * parser.doc.capacity() / 3);
  }
  Document(const Document &) = delete;
  Document &operator=(const Document &) = delete;

  simdjson::padded_string copy;
  simdjson::dom::parser parser;
  simdjson::simdjson_result<simdjson::dom::element> parsed;
};

std::optional<Json> Json::parse(std::string_view text) {
  auto document = std::make_shared<const Document>(text);
  if (document->parsed.error()) return std::nullopt;
  return Json(std::move(document));
}

std::string Json::text(std::string_view pointer) const {
  std::string_view found;
  return document_->parsed.at_pointer(pointer).get(found) ? std::string() : std::string(found);
}

std::optional<int64_t> Json::number(std::string_view pointer) const {
  const auto found = document_->parsed.at_pointer(pointer);
  int64_t value = 0;
  if (!found.get(value)) return value;
  std::string_view quoted;
  if (found.get(quoted)) return std::nullopt;
  const auto [end, failed] = std::from_chars(quoted.data(), quoted.data() + quoted.size(), value);
  return failed == std::errc() && end == quoted.data() + quoted.size() ? std::optional(value) : std::nullopt;
}

std::optional<bool> Json::truth(std::string_view pointer) const {
  bool value = false;
  return document_->parsed.at_pointer(pointer).get(value) ? std::nullopt : std::optional(value);
}

std::vector<std::pair<std::string, std::string>> Json::texts(std::string_view pointer) const {
  std::vector<std::pair<std::string, std::string>> out;
  simdjson::dom::object found;
  if (document_->parsed.at_pointer(pointer).get(found)) return out;
  for (const auto &[name, value] : found) {
    std::string_view text;
    if (!value.get(text)) out.emplace_back(name, text);
  }
  return out;
}

std::optional<Json> Json::part(std::string_view pointer) const {
  simdjson::dom::element found;
  if (document_->parsed.at_pointer(pointer).get(found)) return std::nullopt;
  std::string copy = simdjson::minify(found);
  auto out = parse(copy);
  OPENSSL_cleanse(copy.data(), copy.size());
  return out;
}

std::string json_of_texts(std::initializer_list<std::pair<std::string_view, std::string_view>> parts) {
  std::string out;
  size_t longest = 2;
  for (const auto &[name, value] : parts) longest += name.size() + 6 * value.size() + 6;
  out.reserve(longest);  // a string that grows leaves its bytes behind
  for (const auto &[name, value] : parts) {
    if (value.empty()) continue;
    out.append(out.empty() ? "{\"" : ",\"").append(name).append("\":\"");
    for (const char c : value) {
      if (c == '"' || c == '\\') out += '\\';
      if (static_cast<unsigned char>(c) >= 0x20) {
        out += c;
        continue;
      }
      constexpr const char *digits = "0123456789abcdef";
      out.append("\\u00").append(1, digits[c >> 4]).append(1, digits[c & 15]);
    }
    out += '"';
  }
  return out.append(out.empty() ? "{}" : "}");
}

}  // namespace st::remote
