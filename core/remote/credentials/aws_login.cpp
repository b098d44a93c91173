#include "remote/credentials/aws_login.h"

#include "remote/credentials/times.h"

namespace st::remote {
namespace {

constexpr int64_t renewed_before_its_end = int64_t{15} * 60;  // as AWS's own tools do

int64_t end_of(const Json &login) {
  return parse_iso_time(login.text("/expiresAt")).value_or(0);
}

// What was registered to ask for tokens has an end too.
bool can_renew(const AwsLogin &login, const Json &kept, int64_t now) {
  return !login.start_url.empty() && !kept.text("/refreshToken").empty() &&
         parse_iso_time(kept.text("/registrationExpiresAt")).value_or(0) > now;
}

// AWS's own tools read this file, so it is written as they write it. If the write fails, the token is used all the
// same.
void keep(const AwsLogin &login, const Surroundings &from, const Json &old, const Json &renewed, int64_t ends) {
  const Secret access = renewed.text("/accessToken"), refresh = renewed.text("/refreshToken"),
               secret = old.text("/clientSecret");
  Secret all = json_of_texts({{"startUrl", login.start_url},
                              {"region", login.region},
                              {"accessToken", access.shown_to_the_store()},
                              {"expiresAt", iso_time(ends)},
                              {"clientId", old.text("/clientId")},
                              {"clientSecret", secret.shown_to_the_store()},
                              {"registrationExpiresAt", old.text("/registrationExpiresAt")},
                              {"refreshToken", refresh.shown_to_the_store()}});
  from.keep_secret(login.file, all.shown_to_the_store());
}

Result<Secret> renew_login(const AwsLogin &login, const Surroundings &from, const Json &old, int64_t now) {
  const Secret secret = old.text("/clientSecret"), refresh = old.text("/refreshToken");
  Question question = post(login.endpoint + "/token", json_of_texts({{"grantType", "refresh_token"},
                                                                     {"clientId", old.text("/clientId")},
                                                                     {"clientSecret", secret.shown_to_the_store()},
                                                                     {"refreshToken", refresh.shown_to_the_store()}}));
  question.request.fields = {"content-type: application/json"};
  Answer answer = from.ask(question);
  const auto json = json_of(answer);
  Secret token = json ? json->text("/accessToken") : "";
  if (token.empty()) return refused_by("AWS's Identity Center, asked to renew the login,", answer);
  keep(login, from, old, *json, end_after(json->number("/expiresIn"), now));
  return token;
}

}  // namespace

Result<Secret> token_of(const AwsLogin &login, const Surroundings &from, int64_t now) {
  const std::string log_in = "; run `aws sso login --profile " + login.profile + "`";
  const auto kept = from.json_in(login.file);
  Secret token = kept ? kept->text("/accessToken") : "";
  if (token.empty())
    return fail(Status::permission, "nobody is logged in for the AWS profile ", in_quotes(login.profile), log_in);
  const int64_t ends = end_of(*kept);
  std::string why;
  Status status = Status::permission;
  if (ends - now <= renewed_before_its_end && can_renew(login, *kept, now)) {
    auto renewed = renew_login(login, from, *kept, now);
    if (renewed) return renewed;
    // Another process may have been first: then what renews it is of no use any more.
    if (const auto again = from.json_in(login.file); again && end_of(*again) > std::max(ends, now))
      return Secret(again->text("/accessToken"));
    status = renewed.error().status;
    why = ", and is not renewed: " + renewed.error().message;
  }
  if (ends > now) return token;
  return fail(status, "the login of the AWS profile ", in_quotes(login.profile), " has ended", why, log_in);
}

}  // namespace st::remote
