// The files of profiles that AWS's own tools read, and region and endpoint as they and the environment say.
// https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-files.html
#pragma once

#include <map>
#include <string>

#include "base/error.h"
#include "remote/surroundings.h"

namespace st::remote {

class AwsProfiles {
 public:
  AwsProfiles() = default;
  ~AwsProfiles();
  AwsProfiles(AwsProfiles &&) = default;
  AwsProfiles &operator=(AwsProfiles &&) = default;

  // Statuses: permission (AWS_PROFILE names one that is not there).
  static Result<AwsProfiles> read(const Surroundings &from);

  // AWS_PROFILE, or "default".
  const std::string &name() const { return name_; }
  bool has(const std::string &profile) const { return all_.count(profile) > 0; }
  // Empty: there is none.
  std::string value(const std::string &profile, const char *key) const;

 private:
  std::string name_;
  // What both files say; the credentials' file counts first. Also "sso-session NAME".
  std::map<std::string, std::map<std::string, std::string>> all_;
};

// AWS_REGION, and so on; "us-east-1".
std::string aws_region(const Surroundings &from, const AwsProfiles &profiles);
// Is AWS_NAME true, or `name` in the profile? As "use_fips_endpoint".
bool aws_wants(const Surroundings &from, const AwsProfiles &profiles, const std::string &name);
// For a service, as "S3": AWS_ENDPOINT_URL_S3, and so on. Without a slash at its end. Empty: Amazon's.
std::string aws_endpoint(const Surroundings &from, const AwsProfiles &profiles, const std::string &service);
// "https://sts.us-east-1.amazonaws.com"
std::string amazon(const std::string &service, const std::string &region);

}  // namespace st::remote
