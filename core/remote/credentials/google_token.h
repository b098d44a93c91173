// Where gs:// takes a token from: application default credentials, in the order of Google's own libraries.
// https://cloud.google.com/docs/authentication/application-default-credentials
#pragma once

#include <string>

#include "remote/credentials/credentials.h"
#include "remote/credentials/oauth.h"
#include "remote/surroundings.h"

namespace st::remote {

// Keys::token is the token, Keys::id the project that pays, if the file names one. Statuses: permission (a file that is
// named and cannot be used).
Result<Origin> google_token(const Surroundings &from);

// A token of an account of another kind of cloud or of a cluster: `file` is of the type external_account.
Result<Granted> external_account(const Surroundings &from, const Json &file);
// That of the service account of this file's service_account_impersonation_url, for one that `by` may have it.
Result<Granted> impersonated(const Surroundings &from, const Json &file, const Granted &by, const char *found_in);
// The token that it exchanges for one, where a program of the user's says it.
Result<Secret> token_of_program(const Surroundings &from, const Json &file);

inline constexpr std::string_view cloud_platform = "https://www.googleapis.com/auth/cloud-platform";
inline constexpr std::string_view google_scope = "https://www.googleapis.com/auth/devstorage.read_only";

}  // namespace st::remote
