// The services beside a program in AWS's cloud: that of a container, and that of an instance.
// https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html
#include "base/ascii.h"
#include "remote/credentials/aws_keys.h"
#include "remote/url.h"

namespace st::remote {
namespace {

constexpr AwsNames metadata_names = {"/AccessKeyId", "/SecretAccessKey", "/Token", "/Expiration"};

Question beside(std::string url, std::vector<std::string> fields) {
  Question out = get(std::move(url), std::move(fields));
  out.request.no_proxy = true;
  return out;
}

// A token goes to hosts of this machine alone, unless it is encrypted.
bool is_trusted(const std::string &url) {
  const std::string host = host_of(url);
  return url.starts_with("https://") || is_loopback(host) || host == "169.254.170.2" || host == "169.254.170.23" ||
         host == "[fd00:ec2::23]";
}

}  // namespace

Result<Origin> container(const Surroundings &from) {
  const auto path = from.variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  const std::string url =
      path ? "http://169.254.170.2" + *path : from.variable("AWS_CONTAINER_CREDENTIALS_FULL_URI").value_or("");
  if (host_of(url).empty() || !is_trusted(url))
    return fail(Status::permission, "keys of a container are asked for by https://, or of this machine; ",
                in_quotes(without_secrets(url)), " is neither");
  return Origin{"container " + url, [from, url](int64_t) -> Result<Granted> {
                  constexpr std::string_view service = "the service of the container that gives keys";
                  Secret token = from.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN").value_or("");
                  if (const auto file = from.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")) {
                    auto text = from.file(*file);
                    if (!text)
                      return fail(Status::permission, in_quotes(*file),
                                  ", which AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE names, cannot be read");
                    token = std::string(trimmed(*text));
                    wipe(*text);
                  }
                  if (token.shown_to_the_store().find_first_of("\r\n") != std::string::npos)
                    return fail(Status::permission, "the token for ", service, " has several lines");
                  Question question = beside(url, {});
                  if (!token.empty()) question.request.fields.push_back("authorization: " + token.shown_to_the_store());
                  Answer answer = from.ask(question);
                  const auto json = json_of(answer);
                  auto out = json ? keys_in(*json, metadata_names, "the container") : std::nullopt;
                  if (!out) return refused_by(service, answer);
                  return *std::move(out);
                }};
}

Origin instance(const Surroundings &from) {
  if (from.is_true("AWS_EC2_METADATA_DISABLED")) return nobodys_keys();
  const bool six = lower(from.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE").value_or("")) == "ipv6";
  const std::string endpoint = without_slash(from.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT")
                                                 .value_or(six ? "http://[fd00:ec2::254]" : "http://169.254.169.254"));
  const uint64_t within_ms = from.number("AWS_METADATA_SERVICE_TIMEOUT", 1) * 1000;
  const auto tries = static_cast<uint32_t>(from.number("AWS_METADATA_SERVICE_NUM_ATTEMPTS", 1));
  return {"instance " + endpoint, [=](int64_t now) -> Result<Granted> {
            const Granted nobody{.ends = now + nobody_there};
            const auto ask = [&](const std::string &path, const char *method, std::string field) {
              Question question = beside(endpoint + path, {std::move(field)});
              question.request.method = method;
              question.within_ms = within_ms;
              question.tries = tries;
              return from.ask(question);
            };
            Answer answer = ask("/latest/api/token", "PUT", "x-aws-ec2-metadata-token-ttl-seconds: 21600");
            constexpr std::string_view service = "the metadata service of this instance";
            const int code = answer.head.code;
            if (answer.cut == Cut::none && (code == 429 || code >= 500)) return refused_by(service, answer);
            if (answer.cut != Cut::none || code != 200) return nobody;  // a machine of another kind
            const Secret field = "x-aws-ec2-metadata-token: " + answer.text;
            wipe(answer.text);
            const std::string roles = "/latest/meta-data/iam/security-credentials/";
            answer = ask(roles, "GET", field.shown_to_the_store());
            if (answer.cut == Cut::none && answer.head.code == 404) return nobody;  // an instance without a role
            const std::string role(trimmed(answer.text.substr(0, answer.text.find('\n'))));
            if (answer.cut != Cut::none || answer.head.code != 200 || role.empty()) return refused_by(service, answer);
            answer = ask(roles + role, "GET", field.shown_to_the_store());
            const auto json = json_of(answer);
            auto out = json ? keys_in(*json, metadata_names, "this instance's role " + in_quotes(role)) : std::nullopt;
            if (!out) return refused_by(service, answer);
            return *std::move(out);
          }};
}

}  // namespace st::remote
