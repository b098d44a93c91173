// What `aws sso login` has left in a file: a token of a person, and with an sso-session what renews it.
// https://docs.aws.amazon.com/singlesignon/latest/OIDCAPIReference/API_CreateToken.html
#pragma once

#include <cstdint>
#include <string>

#include "remote/surroundings.h"

namespace st::remote {

struct AwsLogin {
  std::string file, profile;
  // Logins by an sso-session can be renewed, and have these. The older kind has none of them.
  std::string start_url = {}, region = {}, endpoint = {};
};

// The token, renewed in its last quarter of an hour or after its end, and then kept in the file for AWS's own tools.
// Statuses: permission (nobody is logged in, or the login has ended), io (nobody renewed it).
Result<Secret> token_of(const AwsLogin &login, const Surroundings &from, int64_t now);

}  // namespace st::remote
