#include "remote/credentials/azure_keys.h"

#include "remote/credentials/jwt.h"
#include "remote/sigv4.h"
#include "remote/url.h"

namespace st::remote {

Result<Origin> azure_keys(const Surroundings &from, const AzureAccount &account) {
  if (!account.key.empty()) {
    if (!from_base64(account.key.shown_to_the_store()))
      return fail(Status::permission, "the key of Azure's account ", in_quotes(account.name), " is not in Base64");
    return Origin{{}, [account](int64_t) { return Granted{Keys{account.name, account.key, {}}, account.found_in}; }};
  }
  if (!account.sas.empty()) return Origin{{}, [account](int64_t) { return Granted{Keys{}, account.found_in}; }};
  // A token of a sovereign cloud goes to no host of the public one.
  const std::string authority = host_of(from.variable("AZURE_AUTHORITY_HOST").value_or(""));
  const std::string host = host_of(account.endpoint);
  const bool is_sovereign = authority.ends_with(".us") || authority.ends_with(".cn");
  const bool is_public = host.ends_with(".core.windows.net") || host.ends_with(".fabric.microsoft.com");
  return is_sovereign && is_public ? nobodys_keys() : entra_token(from);
}

std::optional<std::string> shared_key(const Keys &keys, const std::string &path,
                                      const std::map<std::string, std::string> &fields) {
  const auto key = from_base64(keys.secret.shown_to_the_store());
  if (!key) return std::nullopt;
  const auto field = [&](const char *name) {
    const auto found = fields.find(name);
    return found == fields.end() ? std::string() : found->second;
  };
  // Encoding, language, length, MD5, type, date and If-Modified-Since of no body, then two conditions, and two that are
  // not made.
  std::string to_sign = text("GET\n\n\n\n\n\n\n\n", field("if-match"), "\n\n\n", field("range"), "\n");
  for (const auto &[name, value] : fields)
    if (name.starts_with("x-ms-")) to_sign += text(name, ":", value, "\n");
  to_sign += text("/", keys.id, path);
  return text("SharedKey ", keys.id, ":", base64(hmac_sha256(key->shown_to_the_store(), to_sign)));
}

}  // namespace st::remote
