// Identity federation: a token of another provider, from a file, a URL or a program, becomes one of Google's.
// https://google.aip.dev/auth/4117
#include "base/ascii.h"
#include "remote/credentials/google_token.h"
#include "remote/credentials/times.h"
#include "remote/url.h"

namespace st::remote {
namespace {

// The question for the token at a URL, with the fields that the file has for it. Any may be a secret, as the answer is.
Result<Question> question_of(const Surroundings &from, const Json &file, const std::string &url) {
  const bool beside = is_beside(host_of(url));
  if (!beside && !from.may_be_plain(url))
    return fail(Status::permission, "the external account's token is asked for at ", in_quotes(without_secrets(url)),
                ", which is not encrypted");
  Question out = get(url, {});
  out.request.no_proxy = beside;
  for (auto &[given, value] : file.texts("/credential_source/headers")) {
    const std::string name = lower(given);
    if (name.empty() || name.find_first_of(": \r\n") != name.npos || value.find_first_of("\r\n") != value.npos)
      return fail(Status::permission, "the external account's headers have one that is none, or has several lines");
    std::string field;
    field.reserve(name.size() + value.size() + 2);  // a string that grows leaves its bytes behind
    field.append(name).append(": ").append(value);
    wipe(value);
    out.request.fields.push_back(std::move(field));
  }
  return out;
}

// The token that is exchanged: a text, or a part of a JSON document.
Result<Secret> subject_token(const Surroundings &from, const Json &file) {
  if (!file.text("/credential_source/executable/command").empty()) return token_of_program(from, file);
  // Its URL says a role, and no token.
  if (const std::string cloud = file.text("/credential_source/environment_id"); !cloud.empty())
    return fail(Status::permission, "the external account is of ", in_quotes(cloud),
                ": keys of AWS, which libst does not exchange; use another kind of credentials");
  const std::string path = file.text("/credential_source/file"), url = file.text("/credential_source/url");
  std::string said;
  if (!path.empty()) {
    auto text = from.file(path);
    if (!text) return fail(Status::permission, in_quotes(path), ", which the external account names, cannot be read");
    said = *std::move(text);
  } else if (!url.empty()) {
    ST_TRY(const auto question, question_of(from, file, url));
    Answer answer = from.ask(question);
    if (answer.cut != Cut::none || answer.head.code != 200)
      return refused_by("the service that the external account names", answer);
    said = std::move(answer.text);
  } else {
    return fail(Status::permission, "the external account has a token from neither a file, nor a URL, nor a program");
  }
  Secret token = std::string(trimmed(said));
  if (file.text("/credential_source/format/type") == "json") {
    const auto json = Json::parse(said);
    token = json ? json->text("/" + file.text("/credential_source/format/subject_token_field_name")) : "";
  }
  wipe(said);
  if (token.empty()) return fail(Status::permission, "the external account's token is empty");
  return token;
}

}  // namespace

Result<Granted> external_account(const Surroundings &from, const Json &file) {
  const std::string url = file.text("/token_url"), as = file.text("/service_account_impersonation_url");
  for (const std::string &asked : {url, as})
    if (!asked.empty() && !from.may_be_plain(asked))
      return fail(Status::permission, "the external account is asked for at ", in_quotes(without_secrets(asked)),
                  ", which is not encrypted");
  ST_TRY(const auto subject, subject_token(from, file));
  const int64_t now = from.unix_time();
  // A person belongs to no project, so the file may name one that pays.
  const std::string pays = file.text("/workforce_pool_user_project");
  const std::string options = pays.empty() ? "" : json_of_texts({{"userProject", pays}});
  const Question question = post(url, form({{"grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"},
                                            {"audience", file.text("/audience")},
                                            {"scope", as.empty() ? google_scope : cloud_platform},
                                            {"requested_token_type", "urn:ietf:params:oauth:token-type:access_token"},
                                            {"subject_token", subject.shown_to_the_store()},
                                            {"subject_token_type", file.text("/subject_token_type")},
                                            {"options", options}}));
  ST_TRY(auto exchanged, token_in(from.ask(question), now, "Google's STS", "the external account"));
  if (as.empty()) return exchanged;

  return impersonated(from, file, exchanged, "the external account's service account");
}

Result<Granted> impersonated(const Surroundings &from, const Json &file, const Granted &by, const char *found_in) {
  const std::string as = file.text("/service_account_impersonation_url");
  if (!from.may_be_plain(as))
    return fail(Status::permission, "the service account is asked for at ", in_quotes(without_secrets(as)),
                ", which is not encrypted");
  std::string delegates;
  for (int i = 0;; ++i) {
    const std::string one = file.text(text("/delegates/", i));
    if (one.empty()) break;
    if (one.find_first_of("\"\\\n") != one.npos)
      return fail(Status::permission, in_quotes(one), " is no name of a service account");
    delegates += text(delegates.empty() ? "\"" : ",\"", one, "\"");
  }
  Question impersonate;
  impersonate.request.method = "POST";
  impersonate.request.url = as;
  impersonate.request.fields = {"content-type: application/json",
                                "authorization: Bearer " + by.keys->token.shown_to_the_store()};
  impersonate.request.body = text(R"({"delegates":[)", delegates, R"(],"scope":[")", google_scope, R"("]})");
  Answer answer = from.ask(impersonate);
  const auto json = json_of(answer);
  Secret token = json ? json->text("/accessToken") : "";
  if (token.empty()) return refused_by("Google's IAM, asked for a service account,", answer);
  return Granted{Keys{{}, {}, std::move(token)}, found_in, parse_iso_time(json->text("/expireTime"))};
}

}  // namespace st::remote
