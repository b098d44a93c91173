// AWS Signature Version 4, in the Authorization field, of a request without a body.
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace st::remote {

struct Keys {
  std::string id, secret, token;  // the token is empty but for temporary ones
};

// 20130524T000000Z
std::string amz_date(int64_t unix_time);

// In lower-case hex.
std::string sha256_hex(std::string_view text);

struct ToSign {
  std::string method = "GET";
  std::string path;                           // as it is sent: encoded
  std::string query = {};                     // as it is sent: encoded, sorted
  std::map<std::string, std::string> fields;  // names in lower case, with `host`; x-amz-… are added
};

// `fields` and what signs them, as "name: value"; without `host`, which the transport sends.
std::vector<std::string> signed_fields(ToSign request, const Keys &keys, std::string_view region, int64_t unix_time);

}  // namespace st::remote
