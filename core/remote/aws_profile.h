// Keys, endpoint and region: as AWS's own tools find it, in the variables of the environment and then in the
// files of profiles. https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-files.html
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "remote/sigv4.h"
#include "remote/surroundings.h"

namespace st::remote {

struct AwsProfile {
  std::optional<Keys> keys;  // none: asks anonymously
  std::string found_in;      // where the keys are from, for messages; never a key
  std::string region = "us-east-1";
  std::string endpoint = {};  // "http://host:port", without a slash at its end; empty: Amazon's
};

// Statuses: permission (a profile that is not there, half a key, or a kind of credentials that is not known here).
Result<AwsProfile> aws_profile(const Surroundings &from);

}  // namespace st::remote
