#include "remote/sigv4.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <ctime>

#include "base/error.h"

namespace st::remote {
namespace {

std::string sha256(std::string_view text) {
  std::string out(32, '\0');
  EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char *>(out.data()), nullptr, EVP_sha256(), nullptr);
  return out;
}

}  // namespace

std::string hex_of(std::string_view bytes) {
  constexpr char digits[] = "0123456789abcdef";
  std::string out;
  for (const unsigned char c : bytes) {
    out += digits[c >> 4];
    out += digits[c & 15];
  }
  return out;
}

std::string hmac_sha256(std::string_view key, std::string_view text) {
  std::string out(32, '\0');
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char *>(text.data()),
       text.size(), reinterpret_cast<unsigned char *>(out.data()), nullptr);
  return out;
}

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

std::string authorization(const ToSign &request, const Keys &keys, std::string_view region) {
  const std::string &date = request.fields.at("x-amz-date"), day = date.substr(0, 8);
  std::string canonical, names;
  size_t longest = request.method.size() + request.path.size() + request.query.size() + 100;
  for (const auto &[name, value] : request.fields) longest += 2 * name.size() + value.size() + 3;
  canonical.reserve(longest);  // a string that grows leaves its bytes behind, and one of them is a token
  canonical.append(request.method).append("\n").append(request.path).append("\n").append(request.query).append("\n");
  for (const auto &[name, value] : request.fields) {
    canonical.append(name).append(":").append(value).append("\n");
    names += names.empty() ? name : ';' + name;
  }
  canonical.append("\n").append(names).append("\n").append(sha256_hex(request.body));

  const std::string scope = day + '/' + std::string(region) + '/' + std::string(request.service) + "/aws4_request";
  const std::string to_sign = "AWS4-HMAC-SHA256\n" + date + '\n' + scope + '\n' + sha256_hex(canonical);
  wipe(canonical);
  Secret key = "AWS4" + keys.secret.shown_to_the_store();
  for (const std::string_view part : {std::string_view(day), region, request.service, std::string_view("aws4_request")})
    key = hmac_sha256(key.shown_to_the_store(), part);
  return "AWS4-HMAC-SHA256 Credential=" + keys.id + '/' + scope + ",SignedHeaders=" + names +
         ",Signature=" + hex_of(hmac_sha256(key.shown_to_the_store(), to_sign));
}

std::vector<std::string> signed_fields(ToSign request, const Keys &keys, std::string_view region, int64_t unix_time) {
  request.fields["x-amz-content-sha256"] = sha256_hex(request.body);
  request.fields["x-amz-date"] = amz_date(unix_time);
  if (!keys.token.empty()) request.fields["x-amz-security-token"] = keys.token.shown_to_the_store();
  std::vector<std::string> out;
  // Also the host: libcurl would send it as the URL spells it, and what is signed is what is sent.
  for (const auto &[name, value] : request.fields) out.push_back(text(name, ": ", value));
  out.push_back("authorization: " + authorization(request, keys, region));
  wipe(request.fields["x-amz-security-token"]);
  return out;
}

}  // namespace st::remote
