// Small JSON documents that services and files give: tokens, keys. Wiped when they are freed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace st::remote {

class Json {
 public:
  // Nothing where the text is no JSON.
  static std::optional<Json> parse(std::string_view text);
  // By a pointer of RFC 6901, as "/token/value". Empty: there is no such text.
  std::string text(std::string_view pointer) const;
  // A number, also one in quotes.
  std::optional<int64_t> number(std::string_view pointer) const;
  std::optional<bool> truth(std::string_view pointer) const;
  // The names and texts of the object there. What is no text is left out.
  std::vector<std::pair<std::string, std::string>> texts(std::string_view pointer) const;
  // What stands there, as a document of its own.
  std::optional<Json> part(std::string_view pointer) const;

 private:
  struct Document;
  explicit Json(std::shared_ptr<const Document> document) : document_(std::move(document)) {}
  std::shared_ptr<const Document> document_;
};

// An object of these texts. Those that are empty are left out.
std::string json_of_texts(std::initializer_list<std::pair<std::string_view, std::string_view>> parts);

}  // namespace st::remote
