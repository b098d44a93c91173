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

// "s3" of "S3://BUCKET/KEY". Empty: this is no URL but a path.
inline std::string scheme_of(std::string_view url) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789+.-";
  const std::string scheme = lower(url.substr(0, url.find("://")));
  const bool is_one =
      scheme.size() < url.size() && scheme.find_first_not_of(letters) == scheme.npos && letters.find(scheme[0]) < 26;
  return is_one ? scheme : std::string();
}

// The URL that a path was before two slashes were taken for one, as Python's pathlib does. Empty: it was none.
inline std::string url_before_path(std::string_view path) {
  const size_t colon = path.find(":/");
  if (colon == path.npos || !scheme_of(path).empty()) return {};
  const std::string url = std::string(path.substr(0, colon + 1)) + "/" + std::string(path.substr(colon + 1));
  const std::string scheme = scheme_of(url);
  return is_scheme_of_names(scheme) || scheme == "https" || scheme == "http" ? url : std::string();
}

// Where the query of a URL begins, or what else follows its path. A store's URL is a name up to its end, but for a
// version or a signature, as its own tools write them there.
inline size_t end_of_path(std::string_view url) {
  constexpr std::string_view version = "versionid=";
  const std::string scheme = scheme_of(url);
  if (!is_scheme_of_names(scheme)) return std::min(url.find_first_of("?#"), url.size());
  const size_t mark = url.rfind(scheme[0] == 'g' ? '#' : '?');
  const std::string after = mark == url.npos ? std::string() : lower(url.substr(mark + 1));
  bool ends = false;
  if (scheme[0] == 's')
    ends = after.starts_with(version) && after.size() > version.size() && after.find_first_of("/&") == after.npos;
  else if (scheme[0] == 'g')
    ends = !after.empty() && after.find_first_not_of("0123456789") == after.npos;
  else if (scheme[0] == 'a')
    ends = after.starts_with("sig=") || after.find("&sig=") != after.npos;
  return ends ? mark : url.size();
}

// A URL as it may be shown: without a user's name and password, and without what follows the path. A name of a store
// is shown up to a '?' with a secret behind it. What comes before an '@' is a secret there only if it has a password.
// Where a password may reach farther, only the scheme is shown. A path is shown as it is. Bindings do the same:
// tests/unit/base/shown_urls.inc.
inline std::string without_secrets(std::string_view url) {
  const std::string scheme = scheme_of(url);
  if (scheme.empty()) return std::string(url);
  const bool is_name = is_scheme_of_names(scheme);
  const size_t mark = std::min(url.find_first_of(is_name ? "?" : "?#"), url.size()), begin = scheme.size() + 3;
  constexpr std::string_view parts[] = {"sig=", "signature=", "token=", "versionid=", "generation=", "snapshot="};
  const std::string after = lower(url.substr(mark));
  const auto has = [&](std::string_view part) { return after.find(part) != after.npos; };
  const bool ends = !is_name || std::any_of(std::begin(parts), std::end(parts), has);
  std::string_view rest = url.substr(begin, ends ? mark - begin : url.npos);
  std::string_view host = rest.substr(0, rest.find('/'));
  const size_t user = host.rfind('@');
  if (user != host.npos && (!is_name || host.substr(0, user).find(':') != host.npos)) {
    rest.remove_prefix(user + 1);
    host.remove_prefix(user + 1);
  }
  const size_t colon = std::min(host.find(':'), host.size());
  const bool is_port = !is_name && host.find_first_not_of("0123456789", colon + 1) == host.npos;
  const bool is_known = colon == host.size() || is_port || host.starts_with(is_name ? "arn:" : "[");
  return std::string(url.substr(0, begin)) + std::string(is_known ? rest : "...");
}

}  // namespace st
