// An external account whose token a program says. The account's file names the program, and the file may come from
// somebody else. So Google's own tools run the program only if a variable allows it.
// https://google.aip.dev/auth/4117#determining-the-subject-token-in-executable-sourced-credentials
#include <algorithm>

#include "remote/credentials/google_token.h"
#include "remote/credentials/program.h"
#include "remote/error_body.h"

namespace st::remote {
namespace {

constexpr const char *allowed = "GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES";
constexpr int64_t shortest_ms = 5000, usual_ms = 30000, longest_ms = 120000;

// What a program has said. Nothing: it cannot be used any more, and the program may say another.
Result<std::optional<Secret>> token_said(const Json &said, int64_t now, bool must_end) {
  const std::string by = "the program of the external account";
  const auto version = said.number("/version");
  const auto success = said.truth("/success");
  if (version != 1 || !success)
    return fail(Status::permission, by, " said no token in JSON of version 1, with the field 'success'");
  if (!*success) {
    const std::string code = printable(said.text("/code")), message = printable(said.text("/message"));
    return fail(Status::permission, by, " refused with ", in_quotes(code), ": ", message);
  }
  const auto ends = said.number("/expiration_time");
  if (ends ? *ends <= now : must_end) return std::nullopt;
  const std::string kind = said.text("/token_type");
  const bool is_saml = kind == "urn:ietf:params:oauth:token-type:saml2";
  if (!is_saml && kind != "urn:ietf:params:oauth:token-type:jwt" && kind != "urn:ietf:params:oauth:token-type:id_token")
    return fail(Status::permission, by, " said a token of the kind ", in_quotes(kind), ", which libst does not know");
  Secret token = said.text(is_saml ? "/saml_response" : "/id_token");
  if (token.empty()) return fail(Status::permission, by, " said an empty token");
  return std::optional(std::move(token));
}

// "me@x" of ".../serviceAccounts/me@x:generateAccessToken"
std::string mail_in(const std::string &impersonation_url) {
  const size_t begin = impersonation_url.rfind('/') + 1;
  return impersonation_url.substr(begin, impersonation_url.rfind(':') - begin);
}

}  // namespace

Result<Secret> token_of_program(const Surroundings &from, const Json &file) {
  const std::string command = file.text("/credential_source/executable/command"),
                    kept_in = file.text("/credential_source/executable/output_file"),
                    as = file.text("/service_account_impersonation_url");
  Program program{words_of(command)};
  if (program.words.empty())
    return fail(Status::permission, "the external account names a program by what is no command: a quote does not end");
  if (from.variable(allowed) != "1")
    return fail(Status::permission, "the external account names the program ", in_quotes(program.words[0]), "; set ",
                allowed, "=1 to let it run, if you trust the account's file");
  const int64_t within = file.number("/credential_source/executable/timeout_millis").value_or(usual_ms);
  if (within < shortest_ms || within > longest_ms)
    return fail(Status::permission, "timeout_millis of the external account is ", within, "; it must be from ",
                shortest_ms, " to ", longest_ms);
  const int64_t now = from.unix_time();
  // A refusal that is kept is an old one.
  if (const auto kept = from.json_in(kept_in); kept && kept->truth("/success") == true) {
    ST_TRY(auto token, token_said(*kept, now, true));
    if (token) return *std::move(token);
  }

  program.within_ms = static_cast<uint64_t>(within);
  program.variables = {{"GOOGLE_EXTERNAL_ACCOUNT_AUDIENCE", file.text("/audience")},
                       {"GOOGLE_EXTERNAL_ACCOUNT_TOKEN_TYPE", file.text("/subject_token_type")},
                       {"GOOGLE_EXTERNAL_ACCOUNT_INTERACTIVE", "0"},
                       {"GOOGLE_EXTERNAL_ACCOUNT_REVOKE", "0"}};
  if (!as.empty()) program.variables.emplace_back("GOOGLE_EXTERNAL_ACCOUNT_IMPERSONATED_EMAIL", mail_in(as));
  if (!kept_in.empty()) program.variables.emplace_back("GOOGLE_EXTERNAL_ACCOUNT_OUTPUT_FILE", kept_in);
  auto output = from.run(program);
  if (!output) return fail(Status::permission, "the external account has no token: ", output.error().message);
  // A program may write its file alone.
  const auto said = output->empty() ? from.json_in(kept_in) : Json::parse(*output);
  wipe(*output);
  if (!said) return fail(Status::permission, "the program of the external account said no JSON");
  ST_TRY(auto token, token_said(*said, now, false));
  if (!token) return fail(Status::permission, "the program of the external account said a token that has ended");
  return *std::move(token);
}

}  // namespace st::remote
