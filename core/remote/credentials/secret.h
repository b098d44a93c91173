// Keys and tokens in memory: wiped when they are freed, and nothing that is made for messages takes one.
#pragma once

#include <openssl/crypto.h>

#include <string>
#include <string_view>

namespace st::remote {

// All of its memory: a short text lies inside the string, and one that was longer leaves bytes behind its end.
inline void wipe(std::string &text) {
  text.resize(text.capacity());
  OPENSSL_cleanse(text.data(), text.size());
  text.clear();
}

class Secret {
 public:
  Secret() = default;
  // The text that is given is wiped.
  Secret(std::string text) : text_(text) { wipe(text); }
  Secret(const char *text) : text_(text) {}
  Secret(const Secret &other) = default;
  Secret(Secret &&other) noexcept : Secret() { text_.swap(other.text_); }
  Secret &operator=(Secret other) noexcept {
    text_.swap(other.text_);
    return *this;
  }
  ~Secret() { wipe(text_); }

  bool operator==(const Secret &) const = default;
  bool empty() const { return text_.empty(); }
  const std::string &shown_to_the_store() const { return text_; }

 private:
  std::string text_;
};

}  // namespace st::remote
