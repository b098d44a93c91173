// Moments as answers write them, in seconds since 1970.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "remote/transport.h"

namespace st::remote {

// "2030-01-02T03:04:05Z", also with a fraction, with an offset as "+01:00", or with "UTC" as logins of SSO had it.
std::optional<int64_t> parse_iso_time(const std::string &text);
// "2030-01-02T03:04:05Z"
std::string iso_time(int64_t unix_time);

// When that ends which lasts so many seconds, or an hour where nobody says. At the latest in a century.
int64_t end_after(std::optional<int64_t> seconds, int64_t now);

// A moment as fields of HTTP have it, in the three forms of RFC 9110.
std::optional<int64_t> parse_http_time(const std::string &text);

// A refusal by a server whose clock is more than five minutes from `unix_time`: what time it is there.
std::optional<int64_t> other_clock(const Answer &answer, int64_t unix_time);

}  // namespace st::remote
