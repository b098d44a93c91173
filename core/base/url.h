// URLs in messages.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "base/ascii.h"

namespace st {

// A URL as it may be shown: without a user's name and password, and without what follows the path. A
// store with a scheme of its own takes all of the path as a name. What comes before an '@' is a secret there only if it
// has a password.
inline std::string without_secrets(std::string_view url) {
  const size_t colon = url.find("://");
  constexpr std::string_view stores[] = {"s3", "gs", "az", "hf"};
  const bool is_name = std::find(std::begin(stores), std::end(stores), lower(url.substr(0, colon))) != std::end(stores);
  const std::string_view rest = is_name ? url : url.substr(0, url.find_first_of("?#"));
  if (colon >= rest.size()) return std::string(rest);
  const size_t begin = colon + 3;
  const std::string_view host = rest.substr(begin, rest.substr(begin).find('/'));
  const size_t user = host.rfind('@');
  const bool is_secret = user != host.npos && (!is_name || host.substr(0, user).find(':') != host.npos);
  return std::string(rest.substr(0, begin)) + std::string(rest.substr(is_secret ? begin + user + 1 : begin));
}

}  // namespace st
