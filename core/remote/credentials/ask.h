// Small questions to services that give keys.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "remote/credentials/json.h"
#include "remote/credentials/secret.h"
#include "remote/transport.h"

namespace st::remote {

struct Question {
  Request request;
  uint64_t within_ms = 10000;
  uint32_t tries = 3;           // where nothing comes; three at least where the service says that it cannot answer now
  bool absent_is_busy = false;  // 404 and 410 say so, too

  ~Question() {
    for (std::string &field : request.fields) wipe(field);
    wipe(request.body);
  }
};
// The body of the answer is its `text`.
using Ask = std::function<Answer(const Question &)>;

Ask asks_by(NewTransport new_transport);

// How often this thread asks at most, whatever a question says. The code that knows whether old keys still
// last is far above what asks.
class MostTries {
 public:
  explicit MostTries(uint32_t n) : before_(std::exchange(now_, n)) {}
  ~MostTries() { now_ = before_; }
  MostTries(const MostTries &) = delete;
  MostTries &operator=(const MostTries &) = delete;

  static uint32_t now() { return now_; }

 private:
  static constinit inline thread_local uint32_t now_ = UINT32_MAX;
  const uint32_t before_;
};

// "a=b&c=d", encoded. Parts without a value are left out.
std::string form(std::initializer_list<std::pair<std::string_view, std::string_view>> parts);
// A POST of a form; another kind of body has another content-type.
Question post(std::string url, std::string form);
Question get(std::string url, std::vector<std::string> fields);

// Asks. Where it is refused by a server with another clock, asks once more, at the time of that clock.
Answer ask_at_its_time(const Ask &ask, int64_t unix_time, const std::function<Question(int64_t unix_time)> &question);

// Does the service say that it cannot answer now, and may do so later?
bool is_busy(const Answer &answer);

// The JSON of an answer of 200, whose text is wiped.
std::optional<Json> json_of(Answer &answer);

// "AWS's STS answered 403 AccessDenied: … (request id …)". Status io where it did not answer, permission where it
// refused.
Failure refused_by(std::string_view service, const Answer &answer);

}  // namespace st::remote
