#include "remote/url.h"

#include <curl/curl.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>

#include "base/ascii.h"
#include "base/percent.h"

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
  std::string get(CURLUPart part, unsigned flags = 0) const {
    char *text = nullptr;
    if (!is_done(curl_url_get(url.get(), part, &text, flags))) return {};
    const std::unique_ptr<char, decltype(&curl_free)> owner(text, curl_free);
    return text;
  }
  // "NAME:PASSWORD"; empty: there is none. Nothing: it has what no field of HTTP has.
  std::optional<Secret> user() const {
    std::string out;
    for (const CURLUPart part : {CURLUPART_USER, CURLUPART_PASSWORD}) {
      char *text = nullptr;
      const CURLUcode code = curl_url_get(url.get(), part, &text, CURLU_URLDECODE);
      const bool is_there = is_done(code);
      const std::unique_ptr<char, decltype(&curl_free)> owner(text, curl_free);
      const std::string_view own = is_there ? text : "";
      const bool fits = is_there || code == CURLUE_NO_USER || code == CURLUE_NO_PASSWORD;
      // In a name it would be the end of the name.
      if (!fits || (part == CURLUPART_USER && own.find(':') != own.npos)) return std::nullopt;
      if (part == CURLUPART_PASSWORD && (is_there || !out.empty())) out += ":";
      out += own;
    }
    return Secret(std::move(out));
  }
};

// Blanks and letters of other scripts behind the host, as every browser and most tools send them.
std::string encoded(std::string_view url) {
  const size_t colon = url.find("://");
  const bool is_relative = url.find_first_of("/?#") < colon || colon == url.npos;
  size_t at = is_relative ? 0 : std::min(url.find_first_of("/?#", colon + 3), url.size());
  std::string out(url.substr(0, at));
  for (; at < url.size(); ++at) {
    const std::string_view letter = url.substr(at, 1);
    out += letter == " " || static_cast<unsigned char>(letter[0]) >= 0x80 ? percent_encoded(letter, false)
                                                                          : std::string(letter);
  }
  return out;
}

// A port that the scheme has anyway is none: libcurl sends none in Host, and one origin has one name.
std::string host_with_port(const Parsed &url) {
  const std::string port = url.get(CURLUPART_PORT, CURLU_NO_DEFAULT_PORT);
  return lower(url.get(CURLUPART_HOST)) + (port.empty() ? "" : ":" + port);
}

// How the URLs of a store are made; empty: it is none.
std::string_view form_of(std::string_view scheme) {
  constexpr std::pair<std::string_view, std::string_view> forms[] = {
      {"s3", "s3://BUCKET/KEY"},
      {"gs", "gs://BUCKET/OBJECT"},
      {"az", "az://CONTAINER/BLOB, or az://CONTAINER@ACCOUNT/BLOB"},
      {"hf", "hf://OWNER/MODEL/FILE, or hf://OWNER/MODEL/ for the model in it"}};
  for (const auto &[name, form] : forms)
    if (name == scheme) return form;
  return {};
}

// Other tools' names of a store.
std::string usual(std::string scheme) {
  constexpr std::pair<std::string_view, std::string_view> others[] = {
      {"s3a", "s3"}, {"gcs", "gs"}, {"abfs", "az"}, {"abfss", "az"}};
  for (const auto &[name, ours] : others)
    if (name == scheme) return std::string(ours);
  return scheme;
}

constexpr std::string_view letters_of_a_bucket = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_$";

// An access point of S3: "arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME", or with ":NAME". The length of its name in
// front of "/KEY"; 0: it is none.
size_t length_of_arn(std::string_view text) {
  if (!text.starts_with("arn:")) return 0;
  size_t at = 0;
  for (int colons = 0; colons < 5; ++colons)
    if (at = text.find(':', at) + 1; at == 0) return 0;
  at = text.find_first_of(":/", at);
  return at == text.npos ? 0 : std::min(text.find('/', at + 1), text.size());
}

Result<Url> parse_store_url(Url out, std::string_view text) {
  const std::string_view form = form_of(out.scheme), all = text.substr(text.find("://") + 3);
  const std::string_view rest = all.substr(0, all.size() - (text.size() - end_of_path(text)));
  if (const std::string_view after = all.substr(rest.size()); !after.empty())
    out.query = st::text(after[0] == '#' ? "generation=" : "", after.substr(1));
  const size_t arn = out.scheme == "s3" ? length_of_arn(rest) : 0;
  const size_t slash = arn > 0 ? arn : std::min(rest.find('/'), rest.size());
  if (arn == 0 && rest.substr(0, slash).find(':') != rest.npos)
    return fail(Status::invalid_argument, in_quotes(out.shown),
                " has a user's name in it; libst sends none to a store, give the URL without it");
  out.host = std::string(rest.substr(0, slash));
  out.path = std::string(rest.substr(std::min(slash + 1, rest.size())));
  const std::string_view place = out.scheme == "az" ? "container" : "bucket";
  if (out.host.empty() || out.path.empty()) {
    const std::string_view lacks = out.scheme == "hf" ? "file" : out.host.empty() ? place : "object";
    return fail(Status::invalid_argument, in_quotes(out.shown), " names no ", lacks, "; a URL is ", form);
  }
  // It becomes a part of a host's name, or of a path that is signed.
  std::string_view bucket = out.host;
  if (out.scheme == "az") bucket = bucket.substr(0, bucket.find('@'));
  if (out.scheme != "hf" && arn == 0 && bucket.find_first_not_of(letters_of_a_bucket) != bucket.npos)
    return fail(Status::invalid_argument, in_quotes(out.shown), " has what is no name of a ", place, "; a URL is ",
                form);
  return out;
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  const size_t colon = text.find("://");
  Url out;
  out.scheme = lower(text.substr(0, colon));
  out.shown = without_secrets(text);
  if (is_scheme_of_names(out.scheme)) {
    out.scheme = usual(std::move(out.scheme));
    return parse_store_url(std::move(out), text);
  }
  if (out.scheme != "https" && out.scheme != "http")
    return fail(Status::unsupported, "libst reads no ", in_quotes(out.scheme),
                " URLs; it reads https://, http://, s3://, gs://, az:// and hf://");
  const Parsed url;
  if (!url.set(CURLUPART_URL, encoded(text)) || url.get(CURLUPART_HOST).empty())
    return fail(Status::invalid_argument,
                // Where nobody knows what is the host, nobody knows what is a password.
                in_quotes(text.find('@') == text.npos ? out.shown : out.scheme + "://..."), " is no URL of a file");
  out.host = host_with_port(url);
  const std::string query = url.get(CURLUPART_QUERY);
  out.path = url.get(CURLUPART_PATH) + (query.empty() ? "" : "?" + query);
  auto user = url.user();
  if (!user)
    return fail(Status::invalid_argument, in_quotes(out.shown),
                " has a user that cannot be sent: there is a control character, or a colon in the name");
  out.user = *std::move(user);
  return out;
}

std::string resolved(const std::string &from, std::string_view location) {
  const Parsed url;
  // A second URL is taken relative to the first.
  if (location.empty() || !url.set(CURLUPART_URL, from) || !url.set(CURLUPART_URL, encoded(location))) return {};
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
  return url.scheme == "https" && url.host.ends_with(".blob.core.windows.net") && url.user.empty() &&
         url.path.find('?') == url.path.npos;
}

bool is_loopback(std::string_view host) {
  if (host.starts_with("[::1]")) return true;
  host = host.substr(0, host.find(':'));
  return host == "localhost" || (host.starts_with("127.") && host.find_first_not_of("0123456789.") == host.npos);
}

bool is_beside(std::string_view host) {
  if (is_loopback(host) || host.starts_with("[fe80:") || host.starts_with("[fd00:ec2:")) return true;
  host = host.substr(0, host.find(':'));
  return host.starts_with("169.254.") && host.find_first_not_of("0123456789.") == host.npos;
}

bool stays_here(const std::string &url) {
  return lower(url.substr(0, 7)) == "http://" && is_loopback(host_of(url));
}

bool may_be_asked(const std::string &url, bool allows_http) {
  return url.starts_with("https://") || is_loopback(host_of(url)) || allows_http;
}

}  // namespace st::remote
