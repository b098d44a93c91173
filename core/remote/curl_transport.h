// Requests by libcurl's multi interface. Each has a few connections of its own, which it keeps; no thread.
#pragma once

#include "remote/limits.h"
#include "remote/transport.h"

namespace st::remote {

// Takes locks of libcurl and of its libraries, which a fork amid it would leave locked in the child. Once does.
void begin_curl();

// `make_room`: what the process can do without gives back its descriptors. Called where there is none for a connection.
NewTransport curl_transports(const Limits &limits, const Surroundings &from, void (*make_room)());

}  // namespace st::remote
