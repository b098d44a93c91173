#include "remote/credentials/aws_keys.h"

#include <set>

#include "remote/credentials/times.h"

namespace st::remote {
namespace {

Result<Granted> of_environment(const Surroundings &from) {
  const auto id = from.variable("AWS_ACCESS_KEY_ID"), secret = from.variable("AWS_SECRET_ACCESS_KEY");
  if (id.has_value() != secret.has_value())
    return fail(Status::permission, "of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY only one is set; set both");
  if (!id) return Granted{};
  return Granted{Keys{*id, *secret, from.variable("AWS_SESSION_TOKEN").value_or("")}, "the environment"};
}

Result<Granted> of_profile(const AwsProfiles &profiles, const std::string &name) {
  const std::string id = profiles.value(name, "aws_access_key_id");
  Secret secret = profiles.value(name, "aws_secret_access_key");
  if (!id.empty() && secret.empty())
    return fail(Status::permission, "the AWS profile ", in_quotes(name),
                " has an aws_access_key_id without an aws_secret_access_key");
  return Granted{Keys{id, std::move(secret), profiles.value(name, "aws_session_token")},
                 "the profile " + in_quotes(name)};
}

class Chain {
 public:
  Chain(const Surroundings &from, const AwsProfiles &profiles)
      : from_(from), profiles_(profiles), sts_{aws_endpoint(from, profiles, "STS"), aws_region(from, profiles)} {
    if (sts_.endpoint.empty())
      sts_.endpoint = amazon(aws_wants(from, profiles, "use_fips_endpoint") ? "sts-fips" : "sts", sts_.region);
  }

  Result<Origin> find() {
    ST_TRY(const auto given, of_environment(from_));
    if (given.keys) return environment();
    const std::string &name = profiles_.name();
    if (!is_role(name)) {
      if (const auto file = from_.variable("AWS_WEB_IDENTITY_TOKEN_FILE")) {
        const auto arn = from_.variable("AWS_ROLE_ARN");
        if (!arn) return fail(Status::permission, "AWS_WEB_IDENTITY_TOKEN_FILE is set without AWS_ROLE_ARN; set both");
        return web_identity(from_, sts_, {*arn, from_.variable("AWS_ROLE_SESSION_NAME").value_or(""), {}, {}}, *file);
      }
    }
    ST_TRY(auto own, of(name));
    if (own) return *std::move(own);
    if (from_.first({"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"}))
      return container(from_);
    return instance(from_);
  }

 private:
  std::string value(const std::string &profile, const char *key) const { return profiles_.value(profile, key); }
  bool is_role(const std::string &profile) const {
    return !value(profile, "role_arn").empty() && value(profile, "web_identity_token_file").empty();
  }

  Origin environment() const {
    return {{}, [from = from_](int64_t) { return of_environment(from); }};
  }

  // Read anew each time: there are tools that put keys there which end.
  Origin keys_of(const std::string &profile) const {
    return {{}, [from = from_, profile](int64_t) -> Result<Granted> {
              ST_TRY(const auto now, AwsProfiles::read(from));
              return of_profile(now, profile);
            }};
  }

  // Nothing: this profile has no keys.
  Result<std::optional<Origin>> of(const std::string &profile) {
    if (is_role(profile)) {
      ST_TRY(auto made, role(profile));
      return std::optional(std::move(made));
    }
    if (const std::string file = value(profile, "web_identity_token_file"); !file.empty())
      return std::optional(web_identity(from_, sts_, role_of(profile), file));
    if (!value(profile, "sso_session").empty() || !value(profile, "sso_start_url").empty()) {
      ST_TRY(auto made, sso(from_, profiles_, profile));
      return std::optional(std::move(made));
    }
    if (!value(profile, "aws_access_key_id").empty()) {
      ST_TRY(of_profile(profiles_, profile));
      return std::optional(keys_of(profile));
    }
    if (const std::string session = value(profile, "login_session"); !session.empty())
      return std::optional(console_login(from_, profile, session));
    if (const std::string command = value(profile, "credential_process"); !command.empty())
      return std::optional(credential_process(from_, profile, command));
    return std::nullopt;
  }

  AwsRole role_of(const std::string &profile) const {
    return {value(profile, "role_arn"), value(profile, "role_session_name"), value(profile, "external_id"),
            value(profile, "duration_seconds")};
  }

  Result<Origin> role(const std::string &profile) {
    const std::string source = value(profile, "source_profile"), service = value(profile, "credential_source");
    if (!value(profile, "mfa_serial").empty())
      return fail(Status::permission, "the AWS profile ", in_quotes(profile),
                  " wants a code of a device (mfa_serial), for which libst cannot ask; run `aws configure "
                  "export-credentials --format env` and export what it says");
    if (source.empty()) {
      ST_TRY(auto origin, of_service(profile, service));
      return assumed_role(from_, sts_, role_of(profile), origin);
    }
    if (!profiles_.has(source))
      return fail(Status::permission, "the AWS profile ", in_quotes(profile), " has the source_profile ",
                  in_quotes(source), ", which is not there");
    // A profile may be the source of itself: by its own keys.
    if (source == profile) return assumed_role(from_, sts_, role_of(profile), keys_of(profile));
    if (!seen_.insert(profile).second)
      return fail(Status::permission, "the AWS profile ", in_quotes(profile), " is a source_profile of its own source");
    ST_TRY(auto origin, of(source));
    if (!origin)
      return fail(Status::permission, "the AWS profile ", in_quotes(source), ", source_profile of ", in_quotes(profile),
                  ", has no keys");
    return assumed_role(from_, sts_, role_of(profile), *std::move(origin));
  }

  Result<Origin> of_service(const std::string &profile, const std::string &service) const {
    if (service == "Environment") return environment();
    if (service == "EcsContainer") return container(from_);
    if (service == "Ec2InstanceMetadata") return instance(from_);
    return fail(Status::permission, "the AWS profile ", in_quotes(profile),
                " has a role_arn with neither a source_profile nor a credential_source that is Environment, "
                "EcsContainer or Ec2InstanceMetadata");
  }

  const Surroundings &from_;
  const AwsProfiles &profiles_;
  Sts sts_;
  std::set<std::string> seen_;
};

}  // namespace

std::optional<Granted> keys_in(const Json &json, const AwsNames &names, std::string found_in) {
  Granted out{Keys{json.text(names.id), json.text(names.secret), json.text(names.token)}, std::move(found_in),
              parse_iso_time(json.text(names.ends))};
  return out.keys->id.empty() || out.keys->secret.empty() ? std::nullopt : std::optional(std::move(out));
}

Result<Origin> aws_keys(const Surroundings &from, const AwsProfiles &profiles) {
  return Chain(from, profiles).find();
}

}  // namespace st::remote
