// Where other hosts write, too, a host that was frozen or cut off may have lost its locks when it goes on (claim.h). So
// what writes for long asks again on its way: before a write, if the last answer is old. On storage of one host nothing
// is asked, and no clock is read.
#pragma once

#include <functional>
#include <utility>

#include "base/error.h"
#include "os/file.h"

namespace st::write {

class StillOurs {
 public:
  using Question = std::function<Result<void>()>;
  StillOurs() = default;  // nothing is asked
  // `question` fails if another host has taken over. It is asked after this for the first time. `journal` outlives
  // this.
  StillOurs(const os::File &journal, Question question) {
    if (!journal.reads_past_cache()) return;
    env_ = &journal.env();
    question_ = std::move(question);
    asked_ms_ = env_->monotonic_ms();
  }

  Result<void> ask() {
    if (!env_) return {};
    asked_ms_ = env_->monotonic_ms();  // before: the host may be frozen right after the answer
    return question_();
  }
  Result<void> check() {
    constexpr uint64_t old_ms = 100;  // no server gives locks away as fast as that
    return env_ && env_->monotonic_ms() - asked_ms_ >= old_ms ? ask() : Result<void>();
  }

 private:
  os::Env *env_ = nullptr;
  Question question_;
  uint64_t asked_ms_ = 0;
};

}  // namespace st::write
