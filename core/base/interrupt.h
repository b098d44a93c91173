// While a call waits for a server, its caller is asked whether it is to go on. What waits lies far below what knows the
// caller, and between them are the calls of a file. So each thread has the innermost InterruptScope that it is in.
#pragma once

#include <new>
#include <optional>
#include <utility>

#include "base/error.h"

namespace st {

class InterruptCheck {
 public:
  InterruptCheck(const InterruptCheck &) = delete;
  InterruptCheck &operator=(const InterruptCheck &) = delete;

  // The caller wants no more of it. Asks it.
  static bool stops() noexcept { return now_ && now_->asks(); }
  // It said so, in these words, when it was asked.
  static std::optional<Error> stopped() { return now_ ? now_->stopped_ : std::nullopt; }

 protected:
  InterruptCheck() : before_(std::exchange(now_, this)) {}
  ~InterruptCheck() { now_ = before_; }
  virtual Result<void> go_on() = 0;

 private:
  bool asks() noexcept {
    if (stopped_) return true;
    try {
      if (auto goes_on = go_on(); !goes_on) stopped_ = std::move(goes_on.error());
    } catch (const std::bad_alloc &) {
      stopped_.emplace(Error{Status::nomem, "no memory"});
    } catch (...) {  // what a caller's function throws need not be an std::exception
      stopped_.emplace(Error{Status::internal, "an exception"});
    }
    return stopped_.has_value();
  }

  static constinit inline thread_local InterruptCheck *now_ = nullptr;
  InterruptCheck *const before_;
  std::optional<Error> stopped_;
};

// One that asks `go_on`, until its end.
template <class GoOn>
class InterruptScope final : InterruptCheck {
 public:
  explicit InterruptScope(GoOn go_on) : go_on_(std::move(go_on)) {}
  ~InterruptScope() = default;

 private:
  Result<void> go_on() override { return go_on_(); }

  GoOn go_on_;
};

}  // namespace st
