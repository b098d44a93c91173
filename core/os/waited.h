// How long a call has waited for locks. It may wait for several files, one after another and in several rooms, and what
// its caller allows is for all of that together. Work in between does not count. So each thread has the innermost
// WaitedByCall that it is in.
#pragma once

#include <cstdint>

namespace st::os {

class WaitedByCall {
 public:
  enum Begins {
    anew,       // also where a callback of another call makes it
    if_outside  // if the thread is in no call; else this is a part of that one
  };
  explicit WaitedByCall(Begins begins) : before_(now_) {
    if (begins == anew || !now_) now_ = this;
  }
  ~WaitedByCall() { now_ = before_; }
  WaitedByCall(const WaitedByCall &) = delete;
  WaitedByCall &operator=(const WaitedByCall &) = delete;

  // In no call each wait has its time for itself.
  static uint64_t ms() { return now_ ? now_->ms_ : 0; }
  static void add(uint64_t ms) {
    if (now_) now_->ms_ += ms;
  }

 private:
  static constinit inline thread_local WaitedByCall *now_ = nullptr;
  WaitedByCall *const before_;
  uint64_t ms_ = 0;
};

}  // namespace st::os
