#include "remote/credentials/credentials.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "base/control.h"
#include "remote/credentials/ask.h"
#include "remote/credentials/times.h"
#include "remote/error_body.h"
#include "remote/stopping.h"
#include "remote/surroundings.h"

namespace st::remote {
namespace {

constexpr int64_t before_their_end = 300, until_the_next_try = 30;
constexpr uint32_t one_try = 1, as_it_says = UINT32_MAX;

// Keys of an hour are renewed five minutes before their end; those of a minute fifteen seconds before. A service that
// has no new ones for now may give keys that have ended.
int64_t renewal_of(const Granted &granted, int64_t now) {
  if (!granted.ends) return INT64_MAX;
  if (*granted.ends <= now) return now + until_the_next_try;
  return *granted.ends - std::min(before_their_end, (*granted.ends - now) / 4);
}

Failure stopped() {
  return fail(Status::cancelled, "the call was stopped while it waited for keys");
}

}  // namespace

// The mutex is free while a service is asked. The caller is asked then whether to go on, and may open another URL
// there. A question that was stopped says nothing of the keys: the next call asks anew.
Result<void> Credentials::grant(std::unique_lock<std::mutex> &lock, int64_t unix_time, uint32_t most_tries) {
  const uint64_t begun = clock_();
  auto granted = asks_.ask(lock, [&]() -> Result<Granted> {
    try {
      if (stops()) return stopped();
      const MostTries most(most_tries);
      auto answer = origin_.grant(unix_time);
      if (stops()) return stopped();
      return answer;
    } catch (const std::bad_alloc &) {
      return Failure(Error{Status::nomem, {}});
    }
  });
  // The service that gave these keys exists, and is only out of reach. Once keys have ended, a refusal asks it anew.
  if (granted && !granted->keys && granted_ && granted_->keys)
    granted = fail(Status::io, "nobody answers who gives keys");
  if (!granted && was_stopped(granted.error())) return Failure(std::move(granted.error()));
  unix_time += static_cast<int64_t>((clock_() - begun) / 1000);  // a slow service is not asked again at once
  asked_at_ = unix_time;
  if (!granted) {
    why_ = granted.error().message;
    renew_at_ = unix_time + until_the_next_try;
    return Failure(std::move(granted.error()));
  }
  why_.clear();
  renew_at_ = renewal_of(*granted, unix_time);
  granted_ = std::make_shared<const Granted>(*std::move(granted));
  ++number_;
  return {};
}

bool Credentials::keys_last(int64_t unix_time) const {
  return granted_ && (!granted_->ends || unix_time < *granted_->ends);
}

uint64_t Credentials::steady_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

bool Credentials::stops() const {
  return !origin_.name.empty() && Stopping::is_wanted();
}

Result<void> Credentials::have(int64_t unix_time) {
  auto lock = mutex_.lock();
  if (!asks_.wait_for_others(lock)) return stopped();
  return granted_ ? Result<void>() : grant(lock, unix_time + skew_, as_it_says);
}

bool Credentials::has_failed() const {
  const auto lock = mutex_.lock();
  return !granted_ && !why_.empty() && !asks_.another_asks();
}

Credentials::Now Credentials::now(int64_t unix_time) {
  auto lock = mutex_.lock();
  // While keys last, a service that is slow holds up one thread alone, and for one try.
  const bool takes_the_old = asks_.another_asks() && keys_last(unix_time + skew_);
  const bool waited = !takes_the_old && asks_.wait_for_others(lock);
  const int64_t there = unix_time + skew_;
  if (waited && there >= renew_at_) static_cast<void>(grant(lock, there, keys_last(there) ? one_try : as_it_says));
  if (!lock.owns_lock()) return {std::make_shared<const Granted>(), unix_time};  // a child, which sends nothing
  return {granted_, there};
}

uint64_t Credentials::number() const {
  const auto lock = mutex_.lock();
  return number_;
}

// The store asks again where a service is away, so the service is asked by one try. Requests that were made before
// share its answer: each would wait for it anew.
Renewal Credentials::renew(uint64_t number, const Answer &refusal, int64_t unix_time) {
  auto lock = mutex_.lock();
  if (!asks_.wait_for_others(lock)) return Renewal::none;
  if (number != number_) return why_.empty() ? Renewal::done : Renewal::later;
  const int64_t there = unix_time + skew_;
  // A token is not signed, so its refusal has nothing to do with a clock.
  const bool has_time = granted_->keys && !granted_->keys->secret.empty();
  if (const auto clock = has_time ? other_clock(refusal, there) : std::nullopt) {
    skew_ += *clock - there;
    ++number_;
    return Renewal::done;
  }
  if (!may_be_renewed(refusal, there)) return Renewal::none;
  const auto refused = granted_;
  if (const auto granted = grant(lock, there, one_try); !granted) {
    if (granted.error().status != Status::io) return Renewal::none;
    ++number_;
    return Renewal::later;
  }
  return granted_->keys != refused->keys ? Renewal::done : Renewal::none;
}

bool Credentials::may_be_renewed(const Answer &refusal, int64_t unix_time) const {
  if (granted_->keys) return refuses_keys(refusal);
  // A service that was not there may be there by now, and one that failed is. A machine that has none does not look for
  // it at each refusal.
  if (!granted_->ends || !refuses_the_anonymous(refusal)) return false;
  return !why_.empty() || unix_time >= asked_at_ + until_the_next_try;
}

std::string Credentials::asked_as(std::string_view anonymously) const {
  const auto lock = mutex_.lock();
  if (!lock.owns_lock() || !granted_->keys) return std::string(anonymously);
  return text("; it was asked with the keys of ", granted_->found_in,
              why_.empty() ? "" : ", and there are no new ones: ", why_);
}

std::shared_ptr<Credentials> KeptCredentials::of(Origin origin) {
  if (origin.name.empty()) return std::make_shared<Credentials>(std::move(origin));
  constexpr size_t most = 64;
  State &own = own_.mine();
  const std::lock_guard lock(own.mutex);
  if (const auto found = own.kept.find(origin.name); found != own.kept.end() && !found->second->has_failed())
    return found->second;
  if (own.kept.size() >= most) own.kept.clear();
  const std::string name = origin.name;
  return own.kept[name] = std::make_shared<Credentials>(std::move(origin));
}

bool refuses_the_anonymous(const Answer &answer) {
  const int code = answer.head.code;
  return code == 401 || code == 403 ||
         (code == 409 && parse_error_body(answer.text).code == "PublicAccessNotPermitted");
}

bool refuses_keys(const Answer &answer) {
  const int code = answer.head.code;
  if (code != 400 && code != 403) return code == 401;
  const std::string name = parse_error_body(answer.text).code;
  constexpr std::string_view names[] = {"ExpiredToken",       "InvalidToken",         "TokenRefreshRequired",
                                        "InvalidAccessKeyId", "AuthenticationFailed", "InvalidAuthenticationInfo"};
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace st::remote
