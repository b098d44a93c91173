#include "remote/credentials/azure_account.h"

#include <algorithm>

#include "base/ascii.h"
#include "remote/url.h"

namespace st::remote {
namespace {

constexpr std::string_view blobs = ".blob.core.windows.net";

// Azurite has them, as every emulator before it; in Microsoft's documentation.
constexpr const char *emulator = "devstoreaccount1";
constexpr const char *emulators_key =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

// A part of "AccountName=a;AccountKey=b==", whose names are in any case.
std::string part_of(std::string_view connection, std::string_view name) {
  while (!connection.empty()) {
    const std::string_view part = connection.substr(0, connection.find(';'));
    connection.remove_prefix(std::min(part.size() + 1, connection.size()));
    const size_t equals = std::min(part.find('='), part.size());
    if (equals < part.size() && lower(trimmed(part.substr(0, equals))) == lower(name))
      return std::string(part.substr(equals + 1));
  }
  return {};
}

AzureAccount of_connection(const std::string &connection) {
  const auto part = [&](const char *name) { return part_of(connection, name); };
  AzureAccount out{.name = part("AccountName"),
                   .endpoint = part("BlobEndpoint"),
                   .key = part("AccountKey"),
                   .sas = part("SharedAccessSignature"),
                   .found_in = "AZURE_STORAGE_CONNECTION_STRING"};
  if (lower(part("UseDevelopmentStorage")) == "true")
    out = {emulator, text("http://127.0.0.1:10000/", emulator), emulators_key, {}, out.found_in};
  if (out.endpoint.empty() && !out.name.empty()) {
    const std::string protocol = part("DefaultEndpointsProtocol"), suffix = part("EndpointSuffix");
    out.endpoint = text(protocol.empty() ? "https" : protocol, "://", out.name, ".blob.",
                        suffix.empty() ? "core.windows.net" : suffix);
  }
  return out;
}

AzureAccount of_variables(const Surroundings &from) {
  if (const auto connection = from.variable("AZURE_STORAGE_CONNECTION_STRING")) return of_connection(*connection);
  AzureAccount out{.name = from.first({"AZURE_STORAGE_ACCOUNT", "AZURE_STORAGE_ACCOUNT_NAME"}).value_or(""),
                   .endpoint = from.variable("AZURE_STORAGE_SERVICE_ENDPOINT").value_or(""),
                   .key = from.first({"AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY"}).value_or(""),
                   .sas = from.variable("AZURE_STORAGE_SAS_TOKEN").value_or("")};
  if (const auto azurite = from.variable("AZURITE_BLOB_STORAGE_URL"); azurite && out.name.empty())
    out = {emulator, text(without_slash(*azurite), "/", emulator), emulators_key, {}, {}};
  out.found_in = out.key.empty() ? "AZURE_STORAGE_SAS_TOKEN" : "the account " + in_quotes(out.name);
  if (out.endpoint.empty() && !out.name.empty()) out.endpoint = text("https://", out.name, blobs);
  return out;
}

AzureAccount tidied(AzureAccount account) {
  account.endpoint = without_slash(account.endpoint);
  std::string sas = account.sas.shown_to_the_store();
  if (sas.starts_with('?')) account.sas = sas.substr(1);
  wipe(sas);
  return account;
}

}  // namespace

Result<AzureAccount> azure_account(const Surroundings &from) {
  auto out = tidied(of_variables(from));
  if (host_of(out.endpoint).empty())
    return fail(Status::invalid_argument,
                "no account of Azure's storage is named; set AZURE_STORAGE_ACCOUNT or "
                "AZURE_STORAGE_CONNECTION_STRING, or write az://CONTAINER@ACCOUNT/BLOB");
  if (!from.may_be_plain(out.endpoint))
    return fail(Status::unsupported, "the endpoint of Azure's storage, ", in_quotes(without_secrets(out.endpoint)),
                ", is not encrypted; use https://, or set ST_ALLOW_HTTP=1");
  return out;
}

Result<AzureAccount> azure_account_in(const Surroundings &from, const std::string &shown, const std::string &host) {
  const std::string name = host.substr(0, host.find('.')), zone = host.substr(name.size());
  std::string of_blobs = zone.empty() ? std::string(blobs) : zone;
  if (of_blobs.starts_with(".dfs.")) of_blobs.replace(0, 5, ".blob.");
  AzureAccount own = tidied(of_variables(from));
  // Tokens are of one cloud: hosts of another are known where the variables name them.
  const bool is_known =
      of_blobs == blobs || of_blobs == ".blob.fabric.microsoft.com" || own.endpoint == text("https://", name, of_blobs);
  if (name.empty() || name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") != name.npos || !is_known)
    return fail(Status::invalid_argument, in_quotes(shown),
                " names no account of Azure's; a URL is "
                "az://CONTAINER@ACCOUNT/BLOB or abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/BLOB");
  // An emulator's account, or one behind another endpoint, is where the variables say.
  if (zone.empty() && own.name == name && from.may_be_plain(own.endpoint)) return own;
  return azure_account_of(from, name + of_blobs);
}

AzureAccount azure_account_of(const Surroundings &from, const std::string &host) {
  AzureAccount own = tidied(of_variables(from));
  const std::string endpoint = "https://" + host;
  if (own.endpoint == endpoint) return own;
  return {.name = host.substr(0, host.find('.')), .endpoint = endpoint};
}

}  // namespace st::remote
