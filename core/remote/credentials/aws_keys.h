// Where S3 takes keys from: the order of AWS's own tools, and each service that gives some.
// https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html
#pragma once

#include <optional>
#include <string>

#include "remote/credentials/aws_profiles.h"
#include "remote/credentials/credentials.h"

namespace st::remote {

// The first of them all that is there. Statuses: permission (a profile or a variable that cannot be right).
Result<Origin> aws_keys(const Surroundings &from, const AwsProfiles &profiles);

// The services, each in a file of its own.

struct AwsRole {
  std::string arn, session, external_id, duration;
};
// A place to ask STS at.
struct Sts {
  std::string endpoint, region;
};
Origin assumed_role(const Surroundings &from, const Sts &sts, const AwsRole &role, const Origin &source);
Origin web_identity(const Surroundings &from, const Sts &sts, const AwsRole &role, const std::string &token_file);

// `profile` has an sso_session, or an sso_start_url.
Result<Origin> sso(const Surroundings &from, const AwsProfiles &profiles, const std::string &profile);

// `profile` has a login_session.
Origin console_login(const Surroundings &from, const std::string &profile, const std::string &session);

Origin credential_process(const Surroundings &from, const std::string &profile, const std::string &command);

// Statuses: permission (a URL to which no token may go).
Result<Origin> container(const Surroundings &from);
// Anonymous where there is none.
Origin instance(const Surroundings &from);

// Keys that a document of JSON has by these names. Nothing: it has none.
struct AwsNames {
  const char *id, *secret, *token, *ends;
};
std::optional<Granted> keys_in(const Json &json, const AwsNames &names, std::string found_in);

}  // namespace st::remote
