// Keeps what a log is told until the thing that it is about is done, or only recovery knows whether it will be. So
// nobody is warned of a file that failed, nor twice, as of a file that is made in two steps.
#pragma once

#include <algorithm>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "base/control.h"

namespace st {

class LaterLog {
 public:
  // Good for as long as this object lies where it does.
  Log log() {
    return [this](LogLevel level, const std::string &message) {
      if (std::find(kept_.begin(), kept_.end(), Kept(level, message)) == kept_.end())
        kept_.emplace_back(level, message);
    };
  }
  void forget() { kept_.clear(); }
  // What is done is not to fail for want of memory for a warning.
  void tell(const Log &to) noexcept try {
    for (const auto &[level, message] : std::exchange(kept_, {}))
      if (to) to(level, message);
  } catch (const std::bad_alloc &) {
  }

 private:
  using Kept = std::pair<LogLevel, std::string>;
  std::vector<Kept> kept_;
};

// Tells at the end of its scope, also where an exception ends that.
template <class Tell>
class TellAtEnd {
 public:
  explicit TellAtEnd(Tell tell) : tell_(std::move(tell)) {}
  ~TellAtEnd() { tell_(); }
  TellAtEnd(const TellAtEnd &) = delete;
  TellAtEnd &operator=(const TellAtEnd &) = delete;

 private:
  Tell tell_;
};

}  // namespace st
