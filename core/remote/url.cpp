#include "remote/url.h"

#include <curl/curl.h>

#include <algorithm>
#include <memory>
#include <new>

#include "base/ascii.h"

namespace st::remote {
namespace {

// A part that could not be had for want of memory is not an empty one: without its query a URL is another.
struct Parsed {
  std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> url{curl_url(), curl_url_cleanup};

  Parsed() {
    if (!url) throw std::bad_alloc();
  }
  static bool is_done(CURLUcode code) {
    if (code == CURLUE_OUT_OF_MEMORY) throw std::bad_alloc();
    return code == CURLUE_OK;
  }
  bool set(CURLUPart part, const std::string &text) const {
    return is_done(curl_url_set(url.get(), part, text.c_str(), 0));
  }
  std::string get(CURLUPart part) const {
    char *text = nullptr;
    if (!is_done(curl_url_get(url.get(), part, &text, 0))) return {};
    const std::unique_ptr<char, decltype(&curl_free)> owner(text, curl_free);
    return text;
  }
};

constexpr const char *has_user = " has a user's name in it; libst sends none, give the URL without it";

std::string host_with_port(const Parsed &url) {
  const std::string port = url.get(CURLUPART_PORT);
  return lower(url.get(CURLUPART_HOST)) + (port.empty() ? "" : ":" + port);
}

// How the URLs of a store are made; empty: it is none.
std::string_view form_of(std::string_view scheme) {
  constexpr std::pair<std::string_view, std::string_view> forms[] = {{"s3", "s3://BUCKET/KEY"},
                                                                     {"gs", "gs://BUCKET/OBJECT"},
                                                                     {"az", "az://CONTAINER/BLOB"},
                                                                     {"hf", "hf://OWNER/MODEL/FILE"}};
  for (const auto &[name, form] : forms)
    if (name == scheme) return form;
  return {};
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  const size_t colon = text.find("://");
  Url out;
  out.scheme = lower(text.substr(0, colon));
  const std::string_view rest = text.substr(colon + 3);
  const size_t slash = std::min(rest.find('/'), rest.size());
  const std::string_view form = form_of(out.scheme);
  if (!form.empty()) {
    out.shown = without_secrets(text);
    if (out.shown.size() != text.size()) return fail(Status::invalid_argument, in_quotes(out.shown), has_user);
    out.host = std::string(rest.substr(0, slash));
    out.path = std::string(rest.substr(std::min(slash + 1, rest.size())));
    if (out.host.empty() || out.path.empty())
      return fail(Status::invalid_argument, in_quotes(text), " names no ", out.scheme == "hf" ? "file" : "object",
                  "; a URL is ", form);
    // It becomes a part of a host's name, or of a path that is signed.
    if (out.scheme != "hf" && out.host.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                         "0123456789.-_$") != out.host.npos)
      return fail(Status::invalid_argument, in_quotes(out.host), " is no name of a bucket");
    return out;
  }
  out.shown = without_secrets(text);
  if (out.scheme != "https" && out.scheme != "http")
    return fail(Status::unsupported, "libst reads no ", in_quotes(out.scheme),
                " URLs; it reads https://, http://, s3://, gs://, az:// and hf://");
  const Parsed url;
  if (!url.set(CURLUPART_URL, std::string(text)) || url.get(CURLUPART_HOST).empty())
    return fail(Status::invalid_argument,
                // Where nobody knows what is the host, nobody knows what is a password.
                in_quotes(text.find('@') == text.npos ? out.shown : out.scheme + "://..."), " is no URL of a file",
                out.shown.find(' ') == out.shown.npos ? "" : "; a blank is written as %20");
  out.host = host_with_port(url);
  const std::string query = url.get(CURLUPART_QUERY);
  out.path = url.get(CURLUPART_PATH) + (query.empty() ? "" : "?" + query);
  if (!url.get(CURLUPART_USER).empty() || !url.get(CURLUPART_PASSWORD).empty())
    return fail(Status::unsupported, in_quotes(out.shown), has_user);
  return out;
}

std::string resolved(const std::string &from, std::string_view location) {
  const Parsed url;
  // A second URL is taken relative to the first.
  if (location.empty() || !url.set(CURLUPART_URL, from) || !url.set(CURLUPART_URL, std::string(location))) return {};
  return url.get(CURLUPART_URL);
}

std::string origin_of(const std::string &text) {
  const Parsed url;
  if (!url.set(CURLUPART_URL, text)) return {};
  return url.get(CURLUPART_SCHEME) + "://" + host_with_port(url);
}

std::string host_of(const std::string &text) {
  const Parsed url;
  return url.set(CURLUPART_URL, text) ? host_with_port(url) : std::string();
}

std::string without_slash(std::string text) {
  while (text.ends_with('/')) text.pop_back();
  return text;
}

bool is_azure(const Url &url) {
  return url.scheme == "https" && url.host.ends_with(".blob.core.windows.net") && url.path.find('?') == url.path.npos;
}

bool is_loopback(std::string_view host) {
  if (host.starts_with("[::1]")) return true;
  host = host.substr(0, host.find(':'));
  return host == "localhost" || (host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos);
}

bool may_be_asked(const std::string &url, bool allows_http) {
  return url.starts_with("https://") || is_loopback(host_of(url)) || allows_http;
}

}  // namespace st::remote
