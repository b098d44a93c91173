#include "remote/sigv4.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <array>
#include <cstdint>
#include <ctime>

#include "base/error.h"

namespace st::remote {
namespace {

using Digest = std::array<unsigned char, 32>;

std::string_view bytes_of(const Digest &d) {
  return {reinterpret_cast<const char *>(d.data()), d.size()};
}

std::string hex_of(const Digest &d) {
  constexpr char digits[] = "0123456789abcdef";
  std::string out;
  for (const unsigned char c : d) {
    out += digits[c >> 4];
    out += digits[c & 15];
  }
  return out;
}

Digest sha256(std::string_view text) {
  Digest out{};
  EVP_Digest(text.data(), text.size(), out.data(), nullptr, EVP_sha256(), nullptr);
  return out;
}

Digest hmac(std::string_view key, std::string_view text) {
  Digest out{};
  unsigned length = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char *>(text.data()),
       text.size(), out.data(), &length);
  return out;
}

}  // namespace

std::string amz_date(int64_t unix_time) {
  const auto seconds = static_cast<time_t>(unix_time);
  struct tm utc = {};
  gmtime_r(&seconds, &utc);
  char text[32];
  return {text, strftime(text, sizeof text, "%Y%m%dT%H%M%SZ", &utc)};
}

std::string sha256_hex(std::string_view text) {
  return hex_of(sha256(text));
}

std::vector<std::string> signed_fields(ToSign request, const Keys &keys, std::string_view region, int64_t unix_time) {
  const std::string date = amz_date(unix_time), day = date.substr(0, 8), no_body = sha256_hex("");
  request.fields["x-amz-content-sha256"] = no_body;
  request.fields["x-amz-date"] = date;
  if (!keys.token.empty()) request.fields["x-amz-security-token"] = keys.token;

  std::string canonical = request.method + '\n' + request.path + '\n' + request.query + '\n';
  std::string names;
  for (const auto &[name, value] : request.fields) {
    canonical += text(name, ":", value, "\n");
    names += names.empty() ? name : ';' + name;
  }
  canonical += '\n' + names + '\n' + no_body;

  const std::string scope = day + '/' + std::string(region) + "/s3/aws4_request";
  const std::string to_sign = "AWS4-HMAC-SHA256\n" + date + '\n' + scope + '\n' + sha256_hex(canonical);
  Digest key = hmac("AWS4" + keys.secret, day);
  for (const std::string_view part : {region, std::string_view("s3"), std::string_view("aws4_request")})
    key = hmac(bytes_of(key), part);

  std::vector<std::string> out;
  for (const auto &[name, value] : request.fields)
    if (name != "host") out.push_back(text(name, ": ", value));
  out.push_back("authorization: AWS4-HMAC-SHA256 Credential=" + keys.id + '/' + scope + ",SignedHeaders=" + names +
                ",Signature=" + hex_of(hmac(bytes_of(key), to_sign)));
  return out;
}

}  // namespace st::remote
