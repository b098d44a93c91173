// AWS Signature Version 4, in the Authorization field.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "remote/credentials/credentials.h"

namespace st::remote {

// 20130524T000000Z
std::string amz_date(int64_t unix_time);

// In lower case.
std::string hex_of(std::string_view bytes);
std::string sha256_hex(std::string_view text);
std::string hmac_sha256(std::string_view key, std::string_view text);

struct ToSign {
  std::string method = "GET";
  std::string path;                                // as it is sent: encoded
  std::string query = {};                          // as it is sent: encoded, sorted
  std::map<std::string, std::string> fields = {};  // names in lower case, with `host`
  std::string_view body = {};
  std::string_view service = "s3";
};

// What stands behind "authorization: ". Signs the fields as they are, of which x-amz-date is one.
std::string authorization(const ToSign &request, const Keys &keys, std::string_view region);

// `fields`, x-amz-… beside them, and what signs them all, as "name: value".
std::vector<std::string> signed_fields(ToSign request, const Keys &keys, std::string_view region, int64_t unix_time);

}  // namespace st::remote
