#include "base/ascii.h"
#include "remote/credentials/azure_keys.h"
#include "remote/credentials/oauth.h"
#include "remote/error_body.h"
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

// Other words of a 400 are of a question that could be put better: of several identities one has to be named.
bool says_no_identity(const Answer &answer) {
  return answer.cut == Cut::none && answer.head.code == 400 &&
         parse_error_body(answer.text).message.find("Identity not found") != std::string::npos;
}

// https://learn.microsoft.com/entra/identity/managed-identities-azure-resources/how-to-use-vm-token
Origin managed_by_machine(const Surroundings &from, const std::string &client) {
  const std::string url =
      text(without_slash(from.variable("AZURE_POD_IDENTITY_AUTHORITY_HOST").value_or("http://169.254.169.254")),
           "/metadata/identity/oauth2/token?",
           form({{"api-version", "2018-02-01"}, {"resource", resource}, {"client_id", client}}));
  return {"managed " + url, [=](int64_t now) -> Result<Granted> {
            constexpr std::string_view service = "the metadata service of this machine";
            const Granted nobody{.ends = now + nobody_there};
            // Is it there? Azure's refuses a question without the field, and so tells nothing, but soon. Those of other
            // clouds say that they know no such path, or not the one that asks.
            Question probe = get(url, {});
            probe.request.no_proxy = true;
            probe.within_ms = 1000;  // so that a laptop does not wait
            probe.tries = 1;
            const Answer there = from.ask(probe);
            const int code = there.head.code;
            if (there.cut != Cut::none || code == 401 || code == 403 || code == 404) return nobody;
            Question question = get(url, {"metadata: true"});
            question.request.no_proxy = true;
            question.absent_is_busy = true;  // while it is being changed
            Answer answer = from.ask(question);
            if (answer.cut == Cut::none && (answer.head.code == 404 || answer.head.code == 410))
              return fail(Status::io, service, " answered ", said(answer));
            if (says_no_identity(answer)) return nobody;
            return token_in(std::move(answer), now, service, "the managed identity");
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
