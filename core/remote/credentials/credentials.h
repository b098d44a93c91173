// Keys that end: asked for once, kept until shortly before their end, and asked for again then, or when a store refuses
// them. Any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/error.h"
#include "os/per_process.h"
#include "remote/credentials/secret.h"
#include "remote/one_asks.h"
#include "remote/this_process.h"
#include "remote/transport.h"

namespace st::remote {

// What signs a request. A bearer's token has no other part.
struct Keys {
  std::string id;
  Secret secret, token;

  bool operator==(const Keys &) const = default;
};

// An answer without keys that ends says that nobody was there to give any.
struct Granted {
  std::optional<Keys> keys = {};     // none: asks anonymously
  std::string found_in = {};         // for messages: "the profile 'a'"
  std::optional<int64_t> ends = {};  // unix time
};

// Where a service that gives keys is not found, it is looked for again after so many seconds.
inline constexpr int64_t nobody_there = 300;

enum class Renewal {
  none,
  done,
  later,  // what would tell cannot answer now
};

// Where keys come from.
struct Origin {
  // Two of one name give the same keys; it has no secrets. Empty: no service is asked, so nothing is kept.
  std::string name = {};
  std::function<Result<Granted>(int64_t unix_time)> grant;
};

// For what is asked anonymously.
inline Origin nobodys_keys() {
  return {{}, [](int64_t) { return Granted{}; }};
}

class Credentials {
 public:
  using ClockMs = std::function<uint64_t()>;  // that nobody sets

  explicit Credentials(Origin origin, ClockMs clock = steady_ms)
      : origin_(std::move(origin)), clock_(std::move(clock)) {}

  // The first time: is there anything to ask with?
  Result<void> have(int64_t unix_time);
  // Its service was asked, never gave keys, and is not being asked.
  bool has_failed() const;

  struct Now {
    std::shared_ptr<const Granted> granted;
    int64_t unix_time;  // by the clock of the store
  };
  // To ask with. Where new keys cannot be had, or another thread asks for them, these are the old ones.
  Now now(int64_t unix_time);
  // Grows with each change of what now() says, and each renewal that a service could not answer.
  uint64_t number() const;
  // A store refused what was signed when number() was `number`. Done: what now() says has changed, so ask again.
  Renewal renew(uint64_t number, const Answer &refusal, int64_t unix_time);
  // With which keys it was asked, for messages. `anonymously` is said where there are no keys.
  std::string asked_as(std::string_view anonymously) const;

 private:
  Result<void> grant(std::unique_lock<std::mutex> &lock, int64_t unix_time, uint32_t most_tries);
  bool keys_last(int64_t unix_time) const;
  bool may_be_renewed(const Answer &refusal, int64_t unix_time) const;
  bool stops() const;
  static uint64_t steady_ms();

  const Origin origin_;
  const ClockMs clock_;
  mutable OwnMutex mutex_;  // of all below
  OneAsks asks_;
  std::shared_ptr<const Granted> granted_;
  int64_t asked_at_ = 0, renew_at_ = INT64_MAX;
  int64_t skew_ = 0;  // the store's clock less ours
  uint64_t number_ = 0;
  std::string why_;  // there are no new ones
};

// Credentials by the names of their origins, for all handles of a process. Those that have failed are not kept: what
// they were asked by, as a file of certificates, may have been set since. A child of fork() takes none of its
// parent's, as another thread may have held a lock of theirs.
class KeptCredentials {
 public:
  std::shared_ptr<Credentials> of(Origin origin);

 private:
  struct State {
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<Credentials>> kept;
  };
  ThisProcess process_;
  os::PerProcess<State, ThisProcess> own_{process_};
};

// Is a request without keys refused? Azure says 409 where a container is not for everybody.
bool refuses_the_anonymous(const Answer &answer);
// Is it these keys that the store refuses, and may new ones help?
bool refuses_keys(const Answer &answer);

}  // namespace st::remote
