// Roles: AWS's Security Token Service gives keys for a while.
// https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
#include <cstring>
#include <pugixml.hpp>

#include "base/ascii.h"
#include "remote/credentials/aws_keys.h"
#include "remote/credentials/times.h"
#include "remote/sigv4.h"
#include "remote/url.h"

namespace st::remote {
namespace {

Result<Granted> keys_of(Answer answer, const Sts &sts, const AwsRole &role) {
  const std::string service = "AWS's STS, at " + in_quotes(host_of(sts.endpoint)) + ",";
  if (answer.cut != Cut::none || answer.head.code != 200) return refused_by(service, answer);
  pugi::xml_document document;
  document.load_buffer(answer.text.data(), answer.text.size());
  wipe(answer.text);
  const auto found =
      document.find_node([](const pugi::xml_node &node) { return std::strcmp(node.name(), "Credentials") == 0; });
  Granted out{
      Keys{found.child_value("AccessKeyId"), found.child_value("SecretAccessKey"), found.child_value("SessionToken")},
      "the role " + in_quotes(role.arn), parse_iso_time(found.child_value("Expiration"))};
  if (out.keys->id.empty() || out.keys->secret.empty()) return refused_by(service, answer);
  return out;
}

std::string session_of(const AwsRole &role, int64_t unix_time) {
  return role.session.empty() ? text("libst-", unix_time) : role.session;
}

}  // namespace

Origin assumed_role(const Surroundings &from, const Sts &sts, const AwsRole &role, const Origin &source) {
  const std::string name = text("sts ", sts.endpoint, " ", role.arn, " ", role.session, " ", role.external_id, " ",
                                role.duration, " ", source.name);
  return {name, [=](int64_t now) -> Result<Granted> {
            ST_TRY(const auto granted, source.grant(now));
            if (!granted.keys)  // where nobody was there, somebody may be by the next try
              return fail(granted.ends ? Status::io : Status::permission, "the role ", in_quotes(role.arn),
                          " cannot be had, as ", granted.ends ? "nobody answers who gives" : "there are no",
                          " keys to ask for it with");
            return keys_of(ask_at_its_time(from.ask, now,
                                           [&](int64_t time) {
                                             Question q = post(sts.endpoint + "/",
                                                               form({{"Action", "AssumeRole"},
                                                                     {"Version", "2011-06-15"},
                                                                     {"RoleArn", role.arn},
                                                                     {"RoleSessionName", session_of(role, now)},
                                                                     {"DurationSeconds", role.duration},
                                                                     {"ExternalId", role.external_id}}));
                                             q.request.fields = signed_fields(
                                                 {.method = "POST",
                                                  .path = "/",
                                                  .fields = {{"host", host_of(sts.endpoint)},
                                                             {"content-type", "application/x-www-form-urlencoded"}},
                                                  .body = q.request.body,
                                                  .service = "sts"},
                                                 *granted.keys, sts.region, time);
                                             return q;
                                           }),
                           sts, role);
          }};
}

Origin web_identity(const Surroundings &from, const Sts &sts, const AwsRole &role, const std::string &token_file) {
  const std::string name = text("web identity ", sts.endpoint, " ", role.arn, " ", role.session, " ", token_file);
  return {name, [=](int64_t now) -> Result<Granted> {
            auto token = from.file(token_file);
            if (!token)
              return fail(Status::permission, "the token of the web identity, ", in_quotes(token_file),
                          ", cannot be read");
            const Question question = post(sts.endpoint + "/", form({{"Action", "AssumeRoleWithWebIdentity"},
                                                                     {"Version", "2011-06-15"},
                                                                     {"RoleArn", role.arn},
                                                                     {"RoleSessionName", session_of(role, now)},
                                                                     {"WebIdentityToken", trimmed(*token)}}));
            wipe(*token);
            return keys_of(from.ask(question), sts, role);
          }};
}

}  // namespace st::remote
