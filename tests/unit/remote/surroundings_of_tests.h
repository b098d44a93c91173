// Variables and files of a test, and the services beside it: a function.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "remote/surroundings.h"

namespace st::remote {

inline constexpr int64_t now = 1369353600;  // 2013-05-24, of all tests

inline Surroundings with(std::map<std::string, std::string> variables, std::map<std::string, std::string> files = {}) {
  const auto in = [](auto all) {
    return [all](const std::string &name) -> std::optional<std::string> {
      const auto found = all.find(name);
      return found == all.end() ? std::nullopt : std::optional(found->second);
    };
  };
  Surroundings out{in(variables), in(files)};
  out.keep_secret = [](const auto &, const auto &) { return false; };
  out.run = [](const auto &) -> Result<std::string> { return fail(Status::permission, "there are no programs"); };
  out.ask = [](const Question &) { return Answer{.cut = Cut::unreachable, .why = "there is no network"}; };
  out.unix_time = [] { return now; };
  static std::deque<KeptCredentials> kept;  // each test has its own; they outlive all that asks by them
  out.kept = &kept.emplace_back();
  return out;
}

inline Answer says(int code, std::string body, std::vector<std::pair<std::string, std::string>> fields = {}) {
  Answer out;
  out.head = {code, std::move(fields)};
  out.text = std::move(body);
  return out;
}

// What a test's services are asked, and what they answer: the first whose part of "METHOD URL BODY" is there.
struct Services {
  std::vector<std::pair<std::string, Answer>> answers;
  std::vector<Request> asked = {};

  void join(Surroundings *from) {
    from->ask = [this](const Question &question) {
      asked.push_back(question.request);
      const std::string all = text(question.request.method, " ", question.request.url, " ", question.request.body);
      for (const auto &[part, answer] : answers)
        if (all.find(part) != all.npos) return answer;
      return Answer{.cut = Cut::unreachable, .why = "there is no such service: " + all};
    };
  }
};

// A document of keys, as programs and services beside a program write it.
inline std::string keys_of(const std::string &id, const char *ends = "2013-05-24T01:00:00Z") {
  return text(R"({"Version":1,"Code":"Success","AccessKeyId":")", id,
              R"(","SecretAccessKey":"canary","SessionToken":"t","Token":"t","Expiration":")", ends, R"("})");
}

}  // namespace st::remote
