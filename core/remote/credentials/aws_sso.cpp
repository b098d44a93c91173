// IAM Identity Center: what `aws sso login` has left in a file gives keys of a role.
// https://docs.aws.amazon.com/singlesignon/latest/PortalAPIReference/API_GetRoleCredentials.html
#include <openssl/evp.h>

#include "remote/credentials/aws_keys.h"
#include "remote/credentials/aws_login.h"
#include "remote/sigv4.h"
#include "remote/url.h"

namespace st::remote {
namespace {

// The file is called by SHA-1 of the session's name, or of the URL.
std::string sha1_hex(const std::string &text) {
  unsigned char digest[20];
  EVP_Digest(text.data(), text.size(), digest, nullptr, EVP_sha1(), nullptr);
  return hex_of({reinterpret_cast<const char *>(digest), sizeof digest});
}

std::string own_or_amazons(const Surroundings &from, const char *own, const char *service, const std::string &region) {
  return without_slash(from.variable(own).value_or(amazon(service, region)));
}

}  // namespace

Result<Origin> sso(const Surroundings &from, const AwsProfiles &profiles, const std::string &profile) {
  const std::string session = profiles.value(profile, "sso_session");
  const std::string section = session.empty() ? profile : "sso-session " + session;
  const std::string start = profiles.value(section, "sso_start_url"), region = profiles.value(section, "sso_region");
  const std::string account = profiles.value(profile, "sso_account_id"),
                    role = profiles.value(profile, "sso_role_name");
  if (start.empty() || region.empty() || account.empty() || role.empty())
    return fail(Status::permission, "the AWS profile ", in_quotes(profile),
                " wants sso_start_url, sso_region, sso_account_id and sso_role_name; `aws configure sso` writes them");
  AwsLogin login{text(from.variable("HOME").value_or(""), "/.aws/sso/cache/",
                      sha1_hex(session.empty() ? start : session), ".json"),
                 profile};
  if (!session.empty()) {
    login.start_url = start;
    login.region = region;
    login.endpoint = own_or_amazons(from, "AWS_ENDPOINT_URL_SSO_OIDC", "oidc", region);
  }
  const std::string url = own_or_amazons(from, "AWS_ENDPOINT_URL_SSO", "portal.sso", region) +
                          "/federation/credentials?" + form({{"account_id", account}, {"role_name", role}});

  return Origin{text("sso ", url, " ", login.file), [=](int64_t now) -> Result<Granted> {
                  ST_TRY(const auto token, token_of(login, from, now));
                  Answer answer = from.ask(get(url, {"x-amz-sso_bearer_token: " + token.shown_to_the_store()}));
                  const auto json = json_of(answer);
                  auto out = json ? keys_in(*json,
                                            {"/roleCredentials/accessKeyId", "/roleCredentials/secretAccessKey",
                                             "/roleCredentials/sessionToken", ""},
                                            "the profile " + in_quotes(profile))
                                  : std::nullopt;
                  if (!out) return refused_by("AWS's Identity Center", answer);
                  if (const auto ends = json->number("/roleCredentials/expiration")) out->ends = *ends / 1000;
                  return *std::move(out);
                }};
}

}  // namespace st::remote
