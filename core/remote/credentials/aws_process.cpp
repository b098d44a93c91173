// A program of the user's that writes keys, and the keys of `aws login`.
// https://docs.aws.amazon.com/sdkref/latest/guide/feature-process-credentials.html
#include "remote/credentials/aws_keys.h"
#include "remote/credentials/program.h"
#include "remote/sigv4.h"

namespace st::remote {

Origin credential_process(const Surroundings &from, const std::string &profile, const std::string &command) {
  const std::string by = "the credential_process of the AWS profile " + in_quotes(profile);
  return {text("process ", command), [=](int64_t) -> Result<Granted> {
            auto words = words_of(command);
            if (words.empty()) return fail(Status::permission, by, " is no command");
            auto said = from.run({std::move(words)});
            if (!said) return fail(Status::permission, by, " gave no keys: ", said.error().message);
            const auto json = Json::parse(*said);
            wipe(*said);
            auto out = json && json->number("/Version") == 1
                           ? keys_in(*json, {"/AccessKeyId", "/SecretAccessKey", "/SessionToken", "/Expiration"}, by)
                           : std::nullopt;
            if (!out) return fail(Status::permission, by, " wrote no keys in JSON of version 1");
            return *std::move(out);
          }};
}

// https://docs.aws.amazon.com/sdkref/latest/guide/feature-login-credentials.html
Origin console_login(const Surroundings &from, const std::string &profile, const std::string &session) {
  std::string folder = from.path("AWS_LOGIN_CACHE_DIRECTORY");
  if (folder.empty()) folder = from.variable("HOME").value_or("") + "/.aws/login/cache";
  const std::string file = text(folder, "/", sha256_hex(session), ".json");
  const std::string by = "`aws login` for the AWS profile " + in_quotes(profile);
  return {text("login ", file), [=](int64_t now) -> Result<Granted> {
            const auto kept = from.json_in(file);
            auto out = kept ? keys_in(*kept,
                                      {"/accessToken/accessKeyId", "/accessToken/secretAccessKey",
                                       "/accessToken/sessionToken", "/accessToken/expiresAt"},
                                      by)
                            : std::nullopt;
            if (!out)
              return fail(Status::permission, "nobody is logged in for the AWS profile ", in_quotes(profile),
                          "; run `aws login --profile ", profile, "`");
            // AWS's own tools have the key that renews them, and write them here.
            if (out->ends.value_or(0) <= now)
              return fail(Status::permission, "the keys of ", by, " have ended; run `aws login --profile ", profile,
                          "`, or any command of aws that renews them");
            return *std::move(out);
          }};
}

}  // namespace st::remote
