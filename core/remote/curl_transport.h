// Requests by libcurl's multi interface. Each has a few connections of its own, which it keeps; no thread.
#pragma once

#include "remote/limits.h"
#include "remote/transport.h"

namespace st::remote {

NewTransport curl_transports(const Limits &limits, const Surroundings &from);

}  // namespace st::remote
