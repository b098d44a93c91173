// What a server may answer: any bytes as the lines of a head, and any as the body of a refusal, or of a service that
// gives keys. No answer brings bytes that it does not name, or leads to where libst does not go. None takes a
// token to another host, or shows a secret.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>

#include "remote/checksum.h"
#include "remote/credentials/aws_login.h"
#include "remote/error_body.h"
#include "remote/judge.h"
#include "remote/site.h"
#include "require.h"

namespace st::fuzz {
namespace {

using namespace st::remote;

const std::string token = "hf_a_token_that_stays";

// Without a network and programs.
Surroundings nowhere() {
  return {.variable = [](const std::string &name) -> std::optional<std::string> {
            if (name == "HF_TOKEN") return token;
            return std::nullopt;
          },
          .file = [](const std::string &) { return std::nullopt; },
          .keep_secret = [](const auto &, const auto &) { return false; },
          .run = [](const auto &) -> Result<std::string> { return fail(Status::permission, "there are no programs"); },
          .ask = [](const Question &) { return Answer{.cut = Cut::unreachable, .why = "there is no network"}; },
          .unix_time = [] { return int64_t{0}; }};
}

std::shared_ptr<const Site> site_for(const std::string &url) {
  return *site_of(url, nowhere());
}

// How a user has keys: by variables, a file, and a URL that is asked with them.
struct User {
  const char *url;
  std::vector<std::pair<std::string, std::string>> variables;
  std::string file;
};

const User users[] = {
    {"s3://b/k", {{"AWS_WEB_IDENTITY_TOKEN_FILE", "/f"}, {"AWS_ROLE_ARN", "r"}}, "jwt"},
    {"s3://b/k",
     {{"AWS_CONFIG_FILE", "/f"}},
     "[default]\nrole_arn=r\nsource_profile=default\naws_access_key_id=a\naws_secret_access_key=b"},
    {"s3://b/k", {{"AWS_CONFIG_FILE", "/f"}}, "[default]\ncredential_process = p"},
    {"s3://b/k", {{"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/"}}, ""},
    {"s3://b/k", {}, ""},
    {"gs://b/k", {{"GOOGLE_APPLICATION_CREDENTIALS", "/f"}}, R"({"type":"authorized_user"})"},
    {"gs://b/k",
     {{"GOOGLE_APPLICATION_CREDENTIALS", "/f"}, {"GOOGLE_EXTERNAL_ACCOUNT_ALLOW_EXECUTABLES", "1"}},
     R"({"type":"external_account","token_url":"https://sts","credential_source":{"executable":{"command":"p"}},)"
     R"("service_account_impersonation_url":"https://iam"})"},
    {"gs://b/k",
     {{"GOOGLE_APPLICATION_CREDENTIALS", "/f"}},
     R"({"type":"external_account","token_url":"https://sts","credential_source":{"url":"https://x"}})"},
    {"gs://b/k", {}, ""},
    {"az://c/b", {{"AZURE_STORAGE_ACCOUNT", "a"}}, ""},
};

void check_sentence(const std::string &sentence) {
  REQUIRE(sentence.size() <= 2000, sentence.size());
  REQUIRE(std::none_of(sentence.begin(), sentence.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }),
          in_quotes(sentence));
}

// All that gives keys says this. There are keys, none, or a sentence.
void check_keys(const Answer &answer) {
  for (const User &user : users) {
    Surroundings from = nowhere();
    from.variable = [&](const std::string &name) -> std::optional<std::string> {
      for (const auto &[known, value] : user.variables)
        if (known == name) return value;
      return std::nullopt;
    };
    from.file = [&](const std::string &path) -> std::optional<std::string> {
      if (path == "/f") return user.file;
      return std::nullopt;
    };
    from.run = [&](const auto &) -> Result<std::string> { return answer.text; };
    from.ask = [&](const Question &) { return answer; };
    const auto site = site_of(user.url, from);
    if (!site) check_sentence(site.error().message);
  }
}

// A login that is renewed by this answer. What is kept of it is a document again.
void check_login(const Answer &answer) {
  Surroundings from = nowhere();
  from.file = [](const std::string &) {
    return std::optional<std::string>(R"({"accessToken":"a","refreshToken":"r","clientId":"c","clientSecret":"s",)"
                                      R"("registrationExpiresAt":"2000-01-01T00:00:00Z"})");
  };
  from.ask = [&](const Question &) { return answer; };
  std::string kept;
  from.keep_secret = [&](const auto &, const std::string &text) {
    kept = text;
    return true;
  };
  const auto renewed = token_of({"/f", "p", "https://start", "r", "https://oidc"}, from, 0);
  if (!renewed) {
    check_sentence(renewed.error().message);
    return;
  }
  const auto again = Json::parse(kept);
  REQUIRE(again && again->text("/accessToken") == renewed->shown_to_the_store(), in_quotes(kept));
  REQUIRE(again->text("/clientSecret") == "s", in_quotes(kept));
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
  answer.cut =
      in.PickValueInArray({Cut::none, Cut::unreachable, Cut::broken, Cut::stalled, Cut::refused, Cut::hopeless});
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
  check_keys(answer);
  check_login(answer);
  check_range(answer.head.field("content-range"));
  static_cast<void>(checksum_of(answer.head));
  for (const auto &site : {hub, store, plain}) {
    check_redirect(*site, answer, 3);
    check_verdicts(answer, *site);
  }
  return 0;
}
