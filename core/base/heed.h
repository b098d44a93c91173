// Whom a call asks, on its own thread, whether it is to go on while it waits for a server. What waits lies far below
// what knows the caller, with calls between them that are those of a file; so each thread has one that is asked.
#pragma once

#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "base/error.h"

namespace st {

class Heed {
 public:
  Heed(const Heed &) = delete;
  Heed &operator=(const Heed &) = delete;

  // The caller wants no more of it. Asks it.
  static bool stops() noexcept { return now_ && now_->asks(); }
  // It said so, in these words, when it was asked.
  static std::optional<Error> stopped() { return now_ ? now_->stopped_ : std::nullopt; }

 protected:
  Heed() : before_(std::exchange(now_, this)) {}
  ~Heed() { now_ = before_; }
  virtual Result<void> go_on() = 0;

 private:
  bool asks() noexcept {
    if (stopped_) return true;
    try {
      if (auto goes_on = go_on(); !goes_on) stopped_ = std::move(goes_on.error());
    } catch (const std::bad_alloc &) {
      stopped_.emplace(Error{Status::nomem, "no memory"});
    } catch (const std::exception &) {
      stopped_.emplace(Error{Status::internal, "an exception"});
    }
    return stopped_.has_value();
  }

  static constinit inline thread_local Heed *now_ = nullptr;
  Heed *const before_;
  std::optional<Error> stopped_;
};

// One that asks `go_on`, until its end.
template <class GoOn>
class Heeding final : Heed {
 public:
  explicit Heeding(GoOn go_on) : go_on_(std::move(go_on)) {}
  ~Heeding() = default;

 private:
  Result<void> go_on() override { return go_on_(); }

  GoOn go_on_;
};

}  // namespace st
