#include "remote/credentials/ask.h"

#include <algorithm>

#include "base/percent.h"
#include "remote/credentials/times.h"
#include "remote/error_body.h"
#include "remote/stopping.h"
#include "remote/url.h"

namespace st::remote {
namespace {

// As Transport::next(), but where the caller wants no more it waits no longer.
std::optional<Answer> next_unless_stopped(Transport &transport, uint64_t wait_ms) {
  for (const uint64_t until = transport.now_ms() + wait_ms;;) {
    const uint64_t now = transport.now_ms();
    if (now >= until || Stopping::is_wanted()) return std::nullopt;
    if (auto answer = transport.next(std::min(until - now, between_questions_ms))) return answer;
  }
}

bool is_absent(const Answer &answer) {
  return answer.head.code == 404 || answer.head.code == 410;
}

}  // namespace

Ask asks_by(NewTransport new_transport) {
  return [new_transport = std::move(new_transport)](const Question &question) {
    const auto transport = new_transport();
    for (uint32_t tries = 1;; ++tries) {
      Request request = question.request;
      request.no_proxy = request.no_proxy || stays_here(request.url);
      transport->get(tries, std::move(request));
      auto answer = next_unless_stopped(*transport, question.within_ms);
      if (!answer) {
        transport->drop_all();
        answer = Answer{.cut = Cut::stalled, .why = text("no answer came within ", question.within_ms, " ms")};
      }
      const bool is_there = answer->cut == Cut::none;
      const bool passes = is_there ? is_busy(*answer) || (question.absent_is_busy && is_absent(*answer))
                                   : answer->cut != Cut::hopeless && answer->cut != Cut::refused;
      const uint32_t most = std::min(is_there ? std::max(question.tries, 3u) : question.tries, MostTries::now());
      if (!passes || tries >= most || Stopping::is_wanted()) return std::move(*answer);
      next_unless_stopped(*transport, 100u << std::min(tries, 4u));  // nothing was sent: this waits
    }
  };
}

std::string form(std::initializer_list<std::pair<std::string_view, std::string_view>> parts) {
  std::string out;
  size_t longest = 0;
  for (const auto &[name, value] : parts) longest += name.size() + 3 * value.size() + 2;
  out.reserve(longest);  // a string that grows leaves its bytes behind
  for (const auto &[name, value] : parts) {
    if (value.empty()) continue;
    std::string encoded = percent_encoded(value, true);
    if (!out.empty()) out += '&';
    out.append(name).append("=").append(encoded);
    wipe(encoded);
  }
  return out;
}

Question post(std::string url, std::string form) {
  Question out;
  out.request.method = "POST";
  out.request.url = std::move(url);
  out.request.fields = {"content-type: application/x-www-form-urlencoded"};
  out.request.body = std::move(form);
  return out;
}

Question get(std::string url, std::vector<std::string> fields) {
  Question out;
  out.request.url = std::move(url);
  out.request.fields = std::move(fields);
  return out;
}

Answer ask_at_its_time(const Ask &ask, int64_t unix_time, const std::function<Question(int64_t)> &question) {
  Answer answer = ask(question(unix_time));
  if (const auto there = other_clock(answer, unix_time)) answer = ask(question(*there));
  return answer;
}

std::optional<Json> json_of(Answer &answer) {
  if (answer.cut != Cut::none || answer.head.code != 200) return std::nullopt;
  auto out = Json::parse(answer.text);
  wipe(answer.text);
  return out;
}

// STS says 400 where it has too many questions, or where it cannot ask another service itself.
// https://docs.aws.amazon.com/STS/latest/APIReference/CommonErrors.html
bool is_busy(const Answer &answer) {
  const int code = answer.head.code;
  if (code != 400) return code == 429 || code >= 500;
  const std::string name = parse_error_body(answer.text).code;
  constexpr std::string_view names[] = {"Throttling",           "ThrottlingException",      "ThrottledException",
                                        "RequestLimitExceeded", "TooManyRequestsException", "IDPCommunicationError"};
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

Failure refused_by(std::string_view service, const Answer &answer) {
  if (answer.cut != Cut::none) return fail(Status::io, service, " did not answer: ", answer.why);
  const int code = answer.head.code;
  if (code == 200) return fail(Status::permission, service, " answered without the keys that it was asked for");
  return fail(is_busy(answer) ? Status::io : Status::permission, service, " answered ", said(answer));
}

}  // namespace st::remote
