// A program of the user's that writes keys.
// https://docs.aws.amazon.com/sdkref/latest/guide/feature-process-credentials.html
#include "remote/credentials/aws_keys.h"
#include "remote/credentials/program.h"

namespace st::remote {

Origin credential_process(const Surroundings &from, const std::string &profile, const std::string &command) {
  const std::string by = "the credential_process of the AWS profile " + in_quotes(profile);
  return {text("process ", command), [=](int64_t) -> Result<Granted> {
            const auto words = words_of(command);
            if (words.empty()) return fail(Status::permission, by, " is no command");
            auto said = from.run({words});
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

}  // namespace st::remote
