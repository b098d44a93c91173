// How Azure's storage is asked: by an account's key, a shared access signature, or a token of Entra's.
#pragma once

#include <map>
#include <string>

#include "remote/credentials/azure_account.h"
#include "remote/credentials/credentials.h"

namespace st::remote {

// Keys: `id` and `secret` are an account's name and key; `token` is a bearer's. Both empty: a signature is in the URL.
// Statuses: permission.
Result<Origin> azure_keys(const Surroundings &from, const AzureAccount &account);

// Entra, in the order of Azure's own libraries (DefaultAzureCredential).
// https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow
Origin entra_token(const Surroundings &from);

// What a request that reads is signed by: "SharedKey ACCOUNT:…". `fields` has x-ms-date and x-ms-version, and no query
// is asked. https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
std::optional<std::string> shared_key(const Keys &keys, const std::string &path,
                                      const std::map<std::string, std::string> &fields);

}  // namespace st::remote
