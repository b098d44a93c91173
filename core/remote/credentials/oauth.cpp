#include "remote/credentials/oauth.h"

#include "remote/credentials/times.h"

namespace st::remote {

Result<Granted> token_in(Answer answer, int64_t now, std::string_view service, const std::string &found_in) {
  const auto json = json_of(answer);
  Secret token = json ? json->text("/access_token") : "";
  if (token.empty()) return refused_by(service, answer);
  const auto ends = json->number("/expires_on"), lasts = json->number("/expires_in");
  return Granted{Keys{{}, {}, std::move(token)}, found_in, ends ? *ends : end_after(lasts, now)};
}

}  // namespace st::remote
