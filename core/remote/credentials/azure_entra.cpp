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
            if (answer.cut != Cut::none || answer.head.code == 400 || answer.head.code == 404)
              return Granted{.ends = now + nobody_there};
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
