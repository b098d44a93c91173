// URLs in messages.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "base/ascii.h"

namespace st {

// A store with a scheme of its own takes the path of a URL as a name, whatever bytes it has.
inline bool is_scheme_of_names(std::string_view scheme) {
  constexpr std::string_view stores[] = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "hf"};
  return std::find(std::begin(stores), std::end(stores), lower(scheme)) != std::end(stores);
}

// Where the query of a URL begins, or what else follows its path. A name of a store ends at a '?' only if a signature
// or a version follows: other names may have one.
inline size_t end_of_path(std::string_view url) {
  if (!is_scheme_of_names(url.substr(0, url.find("://")))) return std::min(url.find_first_of("?#"), url.size());
  constexpr std::string_view parts[] = {"sig=", "signature=", "token=", "versionid=", "generation=", "snapshot="};
  // Google's own tools write a version behind a '#'.
  if (const size_t hash = url.rfind('#'); lower(url.substr(0, 1)) == "g" && hash != url.npos && hash + 1 < url.size() &&
                                          url.find_first_not_of("0123456789", hash + 1) == url.npos)
    return hash;
  const size_t mark = url.find('?');
  if (mark == url.npos) return url.size();
  const std::string query = lower(url.substr(mark));
  const auto has = [&](std::string_view part) { return query.find(part) != query.npos; };
  return std::any_of(std::begin(parts), std::end(parts), has) ? mark : url.size();
}

// A URL as it may be shown: without a user's name and password, and without what follows the path. What comes before
// an '@' is a secret of a store's URL only if it has a password. Bindings do the same: tests/unit/base/url_test.cpp.
inline std::string without_secrets(std::string_view url) {
  const size_t colon = url.find("://");
  const std::string_view rest = url.substr(0, end_of_path(url));
  if (colon >= rest.size()) return std::string(rest);
  const size_t begin = colon + 3;
  const std::string_view host = rest.substr(begin, rest.substr(begin).find('/'));
  const size_t user = host.rfind('@');
  const bool is_secret =
      user != host.npos && (!is_scheme_of_names(url.substr(0, colon)) || host.substr(0, user).find(':') != host.npos);
  return std::string(rest.substr(0, begin)) + std::string(rest.substr(is_secret ? begin + user + 1 : begin));
}

}  // namespace st
