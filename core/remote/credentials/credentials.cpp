#include "remote/credentials/credentials.h"

#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/control.h"
#include "remote/credentials/times.h"
#include "remote/error_body.h"
#include "remote/stopping.h"

namespace st::remote {
namespace {

constexpr int64_t before_their_end = 300, until_the_next_try = 30;

// Keys of an hour are renewed five minutes before their end; those of a minute fifteen seconds before.
int64_t renewal_of(const Granted &granted, int64_t now) {
  if (!granted.ends) return INT64_MAX;
  return *granted.ends - std::min(before_their_end, std::max<int64_t>(*granted.ends - now, 0) / 4);
}

Failure stopped() {
  return fail(Status::cancelled, "the call was stopped while it waited for keys");
}

}  // namespace

// The mutex is free while a service is asked. The caller is asked then whether to go on, and may open another URL
// there. A question that was stopped says nothing of the keys: the next call asks anew.
Result<void> Credentials::grant(std::unique_lock<std::mutex> &lock, int64_t unix_time) {
  auto granted = asks_.ask(lock, [&]() -> Result<Granted> {
    try {
      if (stops()) return stopped();
      auto answer = origin_.grant(unix_time);
      if (stops()) return stopped();
      return answer;
    } catch (const std::bad_alloc &) {
      return Failure(Error{Status::nomem, {}});
    }
  });
  if (!granted) {
    if (was_stopped(granted.error())) return Failure(std::move(granted.error()));
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

bool Credentials::stops() const {
  return !origin_.name.empty() && Stopping::is_wanted();
}

Result<void> Credentials::have(int64_t unix_time) {
  std::unique_lock lock(mutex_);
  if (!asks_.wait_for_others(lock)) return stopped();
  return granted_ ? Result<void>() : grant(lock, unix_time + skew_);
}

Credentials::Now Credentials::now(int64_t unix_time) {
  std::unique_lock lock(mutex_);
  const bool waited = asks_.wait_for_others(lock);
  const int64_t there = unix_time + skew_;
  if (waited && there >= renew_at_) static_cast<void>(grant(lock, there));
  return {granted_, there};
}

uint64_t Credentials::number() const {
  const std::lock_guard lock(mutex_);
  return number_;
}

bool Credentials::renew(uint64_t number, const Answer &refusal, int64_t unix_time) {
  std::unique_lock lock(mutex_);
  if (!asks_.wait_for_others(lock)) return false;
  if (number != number_) return true;
  if (!granted_->keys) return false;
  const int64_t there = unix_time + skew_;
  if (const auto clock = other_clock(refusal, there)) {
    if (std::exchange(skew_taken_, true)) return false;
    skew_ += *clock - there;
    ++number_;
    return true;
  }
  if (!refuses_keys(refusal)) return false;
  const auto refused = granted_;
  return grant(lock, there) && granted_->keys != refused->keys;
}

std::string Credentials::asked_as(std::string_view anonymously) const {
  const std::lock_guard lock(mutex_);
  if (!granted_->keys) return std::string(anonymously);
  return text("; it was asked with the keys of ", granted_->found_in,
              why_.empty() ? "" : ", and there are no new ones: ", why_);
}

std::shared_ptr<Credentials> KeptCredentials::of(Origin origin) {
  if (origin.name.empty()) return std::make_shared<Credentials>(std::move(origin));
  constexpr size_t most = 64;
  // A child of fork() takes none of its parent's, as another thread may have held their lock.
  const std::string name = text(getpid(), " ", origin.name);
  const std::lock_guard lock(mutex_);
  if (const auto found = kept_.find(name); found != kept_.end()) return found->second;
  if (kept_.size() >= most) kept_.clear();
  return kept_[name] = std::make_shared<Credentials>(std::move(origin));
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
