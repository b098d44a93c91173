// Keeps what a log is told until the thing that it is about is done: nobody is warned of a file that never came to be.
#pragma once

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
    return [this](LogLevel level, const std::string &message) { kept_.emplace_back(level, message); };
  }
  void forget() { kept_.clear(); }
  // What is done is not to fail for want of memory for a warning.
  void tell(const Log &to) noexcept try {
    for (const auto &[level, message] : std::exchange(kept_, {}))
      if (to) to(level, message);
  } catch (const std::bad_alloc &) {
  }

 private:
  std::vector<std::pair<LogLevel, std::string>> kept_;
};

}  // namespace st
