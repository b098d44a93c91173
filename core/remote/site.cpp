#include "remote/site.h"

namespace st::remote {

Request Site::request(uint64_t first, uint64_t n, const Version &version, int64_t unix_time) const {
  Request out = addressed("GET", {{"range", text("bytes=", first, "-", first + n - 1)}}, version, unix_time);
  out.room = n;
  return out;
}

Request Site::head_request(const Version &version, int64_t unix_time) const {
  return addressed("HEAD", {}, version, unix_time);
}

Request Site::addressed(std::string method, std::map<std::string, std::string> fields, const Version &version,
                        int64_t unix_time) const {
  // A weak ETag matches nothing, and there are servers that hold fractions of a second against If-Unmodified-Since. In
  // these cases the answer tells its version, which is compared (judge.cpp).
  if (!version.etag.empty() && !version.etag.starts_with("W/")) fields["if-match"] = version.etag;
  Request out;
  out.method = std::move(method);
  address(&out, std::move(fields), version, unix_time);
  out.no_proxy = stays_here(out.url);
  out.fields.emplace_back("accept-encoding: identity");
  return out;
}

Result<std::shared_ptr<Credentials>> credentials_of(const Url &url, const Surroundings &from, Result<Origin> origin) {
  const auto about = [&](Error error) {
    error.message = text("cannot read ", in_quotes(url.shown), ": ", error.message);
    return Failure(std::move(error));
  };
  if (!origin) return about(std::move(origin.error()));
  auto credentials = from.kept ? from.kept->of(*std::move(origin)) : std::make_shared<Credentials>(*std::move(origin));
  if (auto have = credentials->have(from.unix_time()); !have) return about(std::move(have.error()));
  return credentials;
}

Result<std::shared_ptr<const Site>> site_of(const std::string &text, const Surroundings &from) {
  ST_TRY(auto url, parse_url(text));
  if (url.scheme == "s3") return s3_site(url, from);
  if (url.scheme == "gs") return gs_site(url, from);
  if (url.scheme == "az" || is_azure(url)) return az_site(url, from);
  return http_site(url, from);
}

}  // namespace st::remote
