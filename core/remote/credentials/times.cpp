#include "remote/credentials/times.h"

#include <curl/curl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace st::remote {

std::optional<int64_t> parse_iso_time(const std::string &text) {
  struct tm t = {};
  const char *rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &t);
  if (!rest) return std::nullopt;
  if (*rest == '.') rest += 1 + std::strspn(rest + 1, "0123456789");
  const int64_t unix_time = timegm(&t);
  int hours = 0, minutes = 0;
  char sign = 0;
  if (std::sscanf(rest, "%c%2d:%2d", &sign, &hours, &minutes) == 3 && (sign == '+' || sign == '-'))
    return unix_time + (sign == '+' ? -1 : 1) * int64_t{60} * (hours * 60 + minutes);
  return std::string_view(rest) == "Z" || std::string_view(rest) == "UTC" ? std::optional(unix_time) : std::nullopt;
}

std::string iso_time(int64_t unix_time) {
  const time_t moment = unix_time;
  struct tm t = {};
  char out[32];
  return {out, std::strftime(out, sizeof out, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&moment, &t))};
}

int64_t end_after(std::optional<int64_t> seconds, int64_t now) {
  constexpr int64_t century = int64_t{100} * 365 * 86400;
  return now + std::clamp<int64_t>(seconds.value_or(3600), 0, century);
}

std::optional<int64_t> parse_http_time(const std::string &text) {
  const int64_t moment = curl_getdate(text.c_str(), nullptr);
  return moment < 0 ? std::nullopt : std::optional(moment);
}

std::optional<int64_t> other_clock(const Answer &answer, int64_t unix_time) {
  constexpr int64_t near = 300;  // what STS lets pass
  const int code = answer.head.code;
  if (code != 400 && code != 401 && code != 403) return std::nullopt;
  const auto there = parse_http_time(std::string(answer.head.field("date")));
  return there && std::llabs(*there - unix_time) > near ? there : std::nullopt;
}

}  // namespace st::remote
