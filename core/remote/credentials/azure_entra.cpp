#include "base/ascii.h"
#include "remote/credentials/azure_keys.h"
#include "remote/credentials/oauth.h"
#include "remote/url.h"

namespace st::remote {
namespace {

constexpr const char *resource = "https://storage.azure.com/";

// An application that proves itself by a secret, or by the token of a cluster.
Origin application(const Surroundings &from, const std::string &tenant, const std::string &client) {
  const std::string url =
      text(without_slash(from.variable("AZURE_AUTHORITY_HOST").value_or("https://login.microsoftonline.com")), "/",
           tenant, "/oauth2/v2.0/token");
  return {text("entra ", url, " ", client), [=](int64_t now) -> Result<Granted> {
            if (!from.may_be_plain(url))
              return fail(Status::permission, "AZURE_AUTHORITY_HOST is not encrypted; use https://");
            const Secret secret = from.first({"AZURE_CLIENT_SECRET", "AZURE_STORAGE_CLIENT_SECRET"}).value_or("");
            Secret assertion;
            if (secret.empty()) {
              auto file = from.file(from.variable("AZURE_FEDERATED_TOKEN_FILE").value_or(""));
              if (!file)
                return fail(Status::permission, "the file that AZURE_FEDERATED_TOKEN_FILE names cannot be read");
              assertion = std::string(trimmed(*file));
              wipe(*file);
            }
            const Question question =
                post(url, form({{"grant_type", "client_credentials"},
                                {"client_id", client},
                                {"scope", std::string(resource) + ".default"},
                                {"client_secret", secret.shown_to_the_store()},
                                {"client_assertion_type",
                                 assertion.empty() ? "" : "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"},
                                {"client_assertion", assertion.shown_to_the_store()}}));
            return token_in(from.ask(question), now, "Entra", "the application " + in_quotes(client));
          }};
}

// https://learn.microsoft.com/azure/app-service/overview-managed-identity
Origin managed_by_service(const Surroundings &from, const std::string &endpoint, const std::string &client) {
  const std::string url =
      text(endpoint, "?", form({{"api-version", "2019-08-01"}, {"resource", resource}, {"client_id", client}}));
  return {"managed " + url, [=](int64_t now) -> Result<Granted> {
            const Secret header = from.variable("IDENTITY_HEADER").value_or("");
            Question question = get(url, {"x-identity-header: " + header.shown_to_the_store()});
            question.request.no_proxy = true;
            return token_in(from.ask(question), now, "the service of IDENTITY_ENDPOINT", "the managed identity");
          }};
}

// That of the person who has run `az login`. Nothing: there is no such program, or nobody has.
// https://learn.microsoft.com/cli/azure/account#az-account-get-access-token
std::optional<Granted> of_command_line(const Surroundings &from, int64_t now) {
  auto said = from.run(
      {.words = {"az", "account", "get-access-token", "--output", "json", "--resource", resource}, .within_ms = 10000});
  if (!said) return std::nullopt;
  const auto json = Json::parse(*said);
  wipe(*said);
  Secret token = json ? json->text("/accessToken") : "";
  if (token.empty()) return std::nullopt;
  return Granted{Keys{{}, {}, std::move(token)}, "`az login`",
                 json->number("/expires_on").value_or(now + nobody_there)};
}

// https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token
Origin managed_by_machine(const Surroundings &from, const std::string &client) {
  const std::string url =
      text(without_slash(from.variable("AZURE_POD_IDENTITY_AUTHORITY_HOST").value_or("http://169.254.169.254")),
           "/metadata/identity/oauth2/token?",
           form({{"api-version", "2018-02-01"}, {"resource", resource}, {"client_id", client}}));
  return {"managed " + url, [=](int64_t now) -> Result<Granted> {
            Question question = get(url, {"metadata: true"});
            question.request.no_proxy = true;
            question.within_ms = 1000;  // so that a laptop does not wait
            question.tries = 1;
            Answer answer = from.ask(question);
            // A machine of another kind, or one without an identity.
            if (answer.cut != Cut::none || answer.head.code == 400 || answer.head.code == 404) {
              const bool is_deployed = lower(from.variable("AZURE_TOKEN_CREDENTIALS").value_or("")) == "prod";
              auto own = is_deployed ? std::nullopt : of_command_line(from, now);
              return own ? *std::move(own) : Granted{.ends = now + nobody_there};
            }
            return token_in(std::move(answer), now, "the metadata service of this machine", "the managed identity");
          }};
}

}  // namespace

Origin entra_token(const Surroundings &from) {
  const std::string tenant = from.first({"AZURE_TENANT_ID", "AZURE_STORAGE_TENANT_ID"}).value_or(""),
                    client = from.first({"AZURE_CLIENT_ID", "AZURE_STORAGE_CLIENT_ID"}).value_or("");
  if (!tenant.empty() && !client.empty() &&
      from.first({"AZURE_CLIENT_SECRET", "AZURE_STORAGE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE"}))
    return application(from, tenant, client);
  const auto endpoint = from.variable("IDENTITY_ENDPOINT");
  if (endpoint && from.variable("IDENTITY_HEADER")) return managed_by_service(from, *endpoint, client);
  return managed_by_machine(from, client);
}

}  // namespace st::remote
