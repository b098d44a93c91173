#include "remote/judge.h"

#include <algorithm>
#include <charconv>

#include "base/ascii.h"
#include "remote/credentials/times.h"
#include "remote/error_body.h"

namespace st::remote {
namespace {

constexpr uint64_t longest_wait_s = 30;
constexpr uint64_t longest_limit_s = 86400;  // before its end a limit lets nothing through

std::optional<uint64_t> take_number(std::string_view &text) {
  uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

bool take(std::string_view &text, std::string_view what) {
  if (!text.starts_with(what)) return false;
  text.remove_prefix(what.size());
  return true;
}

// Seconds: a number, or a moment by the clock of the server.
std::optional<uint64_t> retry_after(const Head &head) {
  const std::string_view field = head.field("retry-after");
  if (const auto seconds = parse_length(field)) return seconds;
  const auto then = parse_http_time(std::string(field)), there = parse_http_time(std::string(head.field("date")));
  if (!then || !there || *then < *there) return std::nullopt;
  return static_cast<uint64_t>(*then - *there);
}

// The Hub's: a list such as `"resolvers";r=0;t=55`, of what is left and of the seconds until all of it is back.
// https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/
std::optional<uint64_t> rate_limit_ends(const Head &head) {
  std::optional<uint64_t> out;
  for (std::string_view rest = head.field("ratelimit"); !rest.empty();) {
    std::string_view policy = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(policy.size() + 1, rest.size()));
    std::optional<uint64_t> left, seconds;
    while (!policy.empty()) {
      std::string_view part = trimmed(policy.substr(0, policy.find(';')));
      policy.remove_prefix(std::min(policy.find(';'), policy.size() - 1) + 1);
      if (take(part, "r=")) left = parse_length(part);
      if (take(part, "t=")) seconds = parse_length(part);
    }
    if (left == 0u && seconds) out = std::max(out.value_or(0), *seconds);
  }
  return out;
}

std::optional<int64_t> time_in(const Head &head, std::string_view field) {
  return parse_http_time(std::string(head.field(field)));
}

// A cache gives what the server said to it, and for how many seconds it has kept that.
// https://www.rfc-editor.org/rfc/rfc9111#section-1.2.2 has the longest.
std::optional<int64_t> said_at(const Head &head) {
  constexpr uint64_t longest = uint64_t{1} << 31;
  const auto date = time_in(head, "date");
  if (!date) return std::nullopt;
  return *date + static_cast<int64_t>(std::min(parse_length(head.field("age")).value_or(0), longest));
}

bool is_encoded(const Head &head) {
  const std::string_view encoding = head.field("content-encoding");
  return !encoding.empty() && encoding != "identity" && encoding != "aws-chunked";
}

Verdict end(Status status, const std::string &message) {
  return {Next::give_up, error(status, message)};
}

// The answer refuses nothing, and is wrong.
Verdict wrong(const Answer &answer, Status status, const std::string &message) {
  return end(status, message + request_id(answer.head));
}

Verdict again(const Answer &answer, const std::string &message) {
  Verdict out{Next::again, error(Status::io, message)};
  const auto after = retry_after(answer.head);
  const auto ends = !after && answer.head.code == 429 ? rate_limit_ends(answer.head) : std::nullopt;
  out.said_s = after.value_or(ends.value_or(0));
  out.wait_ms = std::min(out.said_s, ends ? longest_limit_s : longest_wait_s) * 1000;
  return out;
}

// Whatever is wrong before one looks at ranges. Nothing: the answer has what was asked, or claims so.
std::optional<Verdict> refusal(const Answer &answer, const Site &site, bool while_reading) {
  const int code = answer.head.code;
  // Later it is no refusal, but what is broken: this server has agreed before.
  if (answer.cut == Cut::hopeless || answer.cut == Cut::crowded || (answer.cut == Cut::refused && !while_reading))
    return end(Status::io, answer.why);
  if (answer.cut != Cut::none && !answer.fitted) return again(answer, answer.why);
  if (code == 200 || code == 206) return std::nullopt;
  const ErrorBody body = parse_error_body(answer.text);
  const std::string sentence = "the server answered " + said(answer);
  if (code == 412) return end(Status::file_changed, sentence + "; the object was replaced since it was opened");
  if (passes(answer) || body.code == "RequestTimeout") return again(answer, sentence);
  const auto there = site.after(answer);
  if (!there) return Verdict{Next::give_up, there.error()};
  if (*there) return Verdict{Next::elsewhere, error(Status::io, sentence)};
  if (refuses_the_anonymous(answer) || says_keys_ended(body.code))
    return end(Status::permission, sentence + site.asked_as());
  if (code == 404 || code == 410)
    return while_reading ? end(Status::file_changed, sentence + "; the object was removed since it was opened")
                         : end(Status::no_file, sentence);
  return end(Status::io, sentence);
}

std::optional<Verdict> wrong_encoding(const Answer &answer) {
  if (!is_encoded(answer.head)) return std::nullopt;
  return wrong(answer, Status::unsupported,
               text("the server answers in the encoding ", in_quotes(answer.head.field("content-encoding")),
                    ", of which there are no ranges; store the object without one"));
}

// Such a body has heads of its own, and none of its ranges is said before it.
// https://www.rfc-editor.org/rfc/rfc9110#section-14.6
bool is_multipart(const Head &head) {
  return head.field("content-type").starts_with("multipart/byteranges");
}

bool is_range(const Head &head, uint64_t first, uint64_t n, uint64_t total) {
  const auto range = parse_content_range(head.field("content-range"));
  return range && range->first == first && range->last == first + n - 1 && (!range->total || *range->total == total);
}

bool is_version(const Head &head, const Version &version) {
  if (!version.generation.empty()) return head.field("x-goog-generation") == version.generation;
  if (!version.etag.empty()) return head.field("etag") == version.etag;
  return version.modified.empty() || head.field("last-modified") == version.modified;
}

}  // namespace

std::optional<uint64_t> parse_length(std::string_view field) {
  const auto length = take_number(field);
  return field.empty() ? length : std::nullopt;
}

std::optional<ContentRange> parse_content_range(std::string_view field) {
  ContentRange out{1, 0, std::nullopt};
  if (!take(field, "bytes ")) return std::nullopt;
  if (!take(field, "*")) {
    const auto first = take_number(field);
    if (!first || !take(field, "-")) return std::nullopt;
    const auto last = take_number(field);
    if (!last || *last < *first) return std::nullopt;
    out.first = *first;
    out.last = *last;
  }
  if (!take(field, "/")) return std::nullopt;
  if (field == "*") return out;
  out.total = take_number(field);
  if (!out.total || !field.empty() || (!out.empty() && out.last >= *out.total)) return std::nullopt;
  return out;
}

bool fits(const Head &head, const Asked &asked) {
  return head.code == 206 && !is_encoded(head) && !is_multipart(head) && is_version(head, asked.version) &&
         is_range(head, asked.first, asked.n, asked.version.size);
}

bool fits_first(const Head &head, uint64_t room) {
  if (is_encoded(head)) return false;
  if (head.code == 200) return parse_length(head.field("content-length")).value_or(0) <= room;
  const auto range = parse_content_range(head.field("content-range"));
  return head.code == 206 && !is_multipart(head) && range && range->total && range->first == 0 && *range->total > 0 &&
         range->last == std::min(room, *range->total) - 1;
}

Verdict judge(const Answer &answer, const Asked &asked, const Site &site) {
  // What is asked for lies inside of what was opened.
  if (answer.head.code == 416 && answer.cut == Cut::none) {
    const auto range = parse_content_range(answer.head.field("content-range"));
    if (range && range->total && *range->total < asked.version.size)
      return wrong(answer, Status::file_changed,
                   text("the object was replaced since it was opened, by one of ", *range->total, " bytes"));
  }
  if (auto refused = refusal(answer, site, true)) return std::move(*refused);
  if (auto encoded = wrong_encoding(answer)) return std::move(*encoded);
  if (!is_version(answer.head, asked.version)) {
    if (asked.version.etag.empty() || !answer.head.field("etag").empty())
      return wrong(answer, Status::file_changed, "the object was replaced since it was opened");
    return wrong(answer, Status::io, "the server does not say of which version its answer is");
  }
  if (!answer.fitted)
    return wrong(answer, Status::io,
                 text("the server answered ", answer.head.code, " with the range ",
                      in_quotes(answer.head.field("content-range")), " where bytes ", asked.first, " to ",
                      asked.first + asked.n - 1, " of ", asked.version.size, " were asked for"));
  if (answer.too_long) return wrong(answer, Status::io, "the server sent more bytes than it said");
  if (answer.received < asked.n)
    return again(answer, answer.cut == Cut::none ? "the answer ended before its end" : answer.why);
  return {};
}

bool passes(const Answer &answer) {
  const int code = answer.head.code;
  if (answer.cut != Cut::none) return answer.cut != Cut::hopeless;
  return code == 408 || code == 429 || (code >= 500 && code != 501 && code != 505);
}

std::optional<Checksum> judge_head(const Answer &answer, const Version &version) {
  if (answer.cut != Cut::none || answer.head.code != 200 || !is_version(answer.head, version)) return std::nullopt;
  return checksum_of(answer.head);
}

Verdict judge_first(const Answer &answer, uint64_t room, const Site &site, Version *version) {
  const Head &head = answer.head;
  const auto range = parse_content_range(head.field("content-range"));
  *version = {std::string(head.field("etag")),
              std::string(head.field("last-modified")),
              0,
              std::string(head.field("x-goog-generation")),
              checksum_of(head),
              commit_of(head),
              time_in(head, "last-modified"),
              time_in(head, "date"),
              said_at(head)};
  // There is no range of nothing, and nothing else has none that begins at 0. S3 does not even say the size.
  if (head.code == 416 && answer.cut == Cut::none && (!range || range->total == 0u)) return {};
  if (auto refused = refusal(answer, site, false)) return std::move(*refused);
  if (auto encoded = wrong_encoding(answer)) return std::move(*encoded);
  if (head.code == 200 && (!answer.fitted || answer.too_long))
    return wrong(answer, Status::unsupported,
                 text("the server gives no ranges of it, and it is longer than the ", room,
                      " bytes that libst takes as a whole; download it, and open the file"));
  if (!answer.fitted || answer.too_long)
    return wrong(answer, Status::io,
                 text("the server answered ", head.code, " with the range ", in_quotes(head.field("content-range")),
                      " where the first ", room, " bytes were asked for"));
  const auto length = head.code == 206 ? std::optional(range->last + 1) : parse_length(head.field("content-length"));
  if (length && answer.received > *length) return wrong(answer, Status::io, "the server sent more bytes than it said");
  if (answer.cut != Cut::none || (length && answer.received < *length))
    return again(answer, answer.cut == Cut::none ? "the answer ended before its end" : answer.why);
  version->size = head.code == 206 ? *range->total : answer.received;
  if (version->size > answer.received && !version->known())
    return wrong(answer, Status::unsupported,
                 "the server gives neither an ETag nor a Last-Modified, so nothing says that parts are of one version");
  return {};
}

}  // namespace st::remote
