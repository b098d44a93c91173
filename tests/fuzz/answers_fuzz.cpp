// What a server may answer: any bytes as the lines of a head, and any as the body of a refusal. No answer brings bytes
// that it does not name, leads to where libst does not go, takes a token to another host, or shows a secret.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>

#include "remote/checksum.h"
#include "remote/error_body.h"
#include "remote/judge.h"
#include "remote/site.h"
#include "require.h"

namespace st::fuzz {
namespace {

using namespace st::remote;

const std::string token = "hf_a_token_that_stays";

std::shared_ptr<const Site> site_for(const std::string &url) {
  const Surroundings from{
      .variable = [](const std::string &name) -> std::optional<std::string> {
        if (name == "HF_TOKEN") return token;
        return std::nullopt;
      },
      .file = [](const std::string &) { return std::nullopt; },
      .run = [](const auto &) -> Result<std::string> { return fail(Status::permission, "there are no programs"); },
      .ask = [](const Question &) { return Answer{.cut = Cut::unreachable, .why = "there is no network"}; },
      .unix_time = [] { return int64_t{0}; }};
  return *site_of(url, from);
}

void check_range(std::string_view field) {
  const auto range = parse_content_range(field);
  if (!range) return;
  REQUIRE(range->empty() || range->first <= range->last, in_quotes(field));
  REQUIRE(!range->total || range->empty() || range->last < *range->total, in_quotes(field));
  const std::string numbers = range->empty() ? "*" : text(range->first, "-", range->last);
  const auto again = parse_content_range(text("bytes ", numbers, "/", range->total ? text(*range->total) : "*"));
  REQUIRE(again && again->first == range->first && again->last == range->last && again->total == range->total,
          in_quotes(field));
}

void check_body(std::string_view body) {
  const ErrorBody said = parse_error_body(body);
  for (const std::string &part : {said.code, said.message}) {
    REQUIRE(part.size() <= 200, part.size());
    REQUIRE(std::none_of(part.begin(), part.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }), part);
  }
}

std::string authorization(const Site &site) {
  for (const std::string &field : site.request(0, 1, {}, 0).fields)
    if (field.starts_with("authorization:")) return field;
  return {};
}

// Where it leads, and from there once more.
void check_redirect(const Site &from, const Answer &answer, int left) {
  const std::string there = origin_of(from.request(0, 1, {}, 0).url);
  const auto next = from.after(answer);
  if (!next) {
    REQUIRE(next.error().message.find(token) == std::string::npos, next.error().message);
    return;
  }
  if (!*next) return;
  const Request request = (*next)->request(0, 1, {}, 0);
  const std::string origin = origin_of(request.url);
  REQUIRE(origin.substr(0, 8) == "https://", in_quotes(request.url));
  REQUIRE(origin == there || authorization(**next).empty(), in_quotes(origin), " gets a token of ", in_quotes(there));
  REQUIRE((*next)->shown() == from.shown(), (*next)->shown());
  for (const std::string &field : request.fields) REQUIRE(field.find_first_of("\r\n") == field.npos, in_quotes(field));
  if (left > 0) check_redirect(**next, answer, left - 1);
}

// What is taken is what was asked for, whatever the head says.
void check_verdicts(const Answer &given, const Site &site) {
  const Version version{"\"an-etag\"", "", 1000};
  const Asked asked{100, 50, version};
  Answer answer = given;
  answer.fitted = fits(answer.head, asked);
  if (answer.fitted) {
    REQUIRE(answer.head.code == 206 && answer.head.field("etag") == version.etag, answer.head.code);
    const auto range = parse_content_range(answer.head.field("content-range"));
    REQUIRE(range && range->first == 100 && range->last == 149, in_quotes(answer.head.field("content-range")));
  }
  answer.received = answer.fitted ? 50 : 0;
  const Verdict verdict = judge(answer, asked, site);
  REQUIRE(verdict.next != Next::take || answer.fitted, "taken, and it does not fit");
  REQUIRE(verdict.next == Next::take || !verdict.error.message.empty(), "no reason is given");
  REQUIRE(verdict.wait_ms <= 30000, verdict.wait_ms);
  REQUIRE(verdict.error.message.find(token) == std::string::npos, verdict.error.message);

  constexpr uint64_t room = 64;
  answer.fitted = fits_first(answer.head, room);
  answer.received = answer.fitted ? room : 0;
  Version first;
  if (judge_first(answer, room, site, &first).next != Next::take) return;
  REQUIRE(first.size == 0 || answer.fitted, first.size);
  REQUIRE(first.size <= room || first.known(), "parts of no known version");
}

}  // namespace
}  // namespace st::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace st::fuzz;
  static const auto hub = site_for("hf://owner/model/file"), store = site_for("s3://bucket/key"),
                    plain = site_for("https://host/a/b?c=secret");
  FuzzedDataProvider in(data, size);
  Answer answer;
  answer.head.code = in.ConsumeIntegralInRange(0, 599);
  answer.cut = in.PickValueInArray({Cut::none, Cut::unreachable, Cut::broken, Cut::stalled, Cut::hopeless});
  answer.why = "the connection ended";
  answer.text = in.ConsumeRandomLengthString();
  const std::string lines = in.ConsumeRemainingBytesAsString();
  // A server that knows the token may say it.
  if ((lines + answer.text).find(token) != std::string::npos) return 0;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    if (!answer.head.take(std::string_view(lines).substr(at, end - at))) return 0;
    at = end + 1;
  }
  check_body(answer.text);
  check_range(answer.head.field("content-range"));
  static_cast<void>(checksum_of(answer.head));
  for (const auto &site : {hub, store, plain}) {
    check_redirect(*site, answer, 3);
    check_verdicts(answer, *site);
  }
  return 0;
}
