// Which account of Azure's storage is asked, where, and with which key or signature, as the variables of Azure's own
// tools say. https://learn.microsoft.com/azure/storage/common/storage-configure-connection-string
#pragma once

#include <string>

#include "base/error.h"
#include "remote/credentials/secret.h"
#include "remote/surroundings.h"

namespace st::remote {

struct AzureAccount {
  std::string name;
  std::string endpoint;  // "https://NAME.blob.core.windows.net", without a slash at its end
  Secret key = {};       // in Base64; empty: none
  Secret sas = {};       // a query that has a signature; empty: none
  std::string found_in = {};
};

// Statuses: invalid_argument (no account is named), unsupported (an endpoint that is not encrypted).
Result<AzureAccount> azure_account(const Surroundings &from);
// The one that a URL names behind an '@', as "account", or by its host, as "account.dfs.core.windows.net". `shown` is
// the URL, for messages. It has a key or a signature where the variables are of the same account. Status
// invalid_argument: this is no host of Azure's, so no token may go there.
Result<AzureAccount> azure_account_in(const Surroundings &from, const std::string &shown, const std::string &host);
// The account of a URL's host. It has a key or a signature where the variables are of the same account.
AzureAccount azure_account_of(const Surroundings &from, const std::string &host);

}  // namespace st::remote
