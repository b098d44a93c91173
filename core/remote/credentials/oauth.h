// What services of OAuth 2.0 answer (RFC 6749): Google's, and Entra.
#pragma once

#include <string>
#include <string_view>

#include "remote/credentials/ask.h"
#include "remote/credentials/credentials.h"

namespace st::remote {

// The token of an answer, and when it ends. Statuses: as refused_by.
Result<Granted> token_in(Answer answer, int64_t now, std::string_view service, const std::string &found_in);

}  // namespace st::remote
