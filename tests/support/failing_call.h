// One system call on a simulated disk that fails, chosen by its number: what every
// test that makes each of them fail in turn is a loop over.
#pragma once

#include "fault_env.h"
#include "sim_env.h"

namespace st::testing {

struct Fault {
  int error;            // -errno, or FaultEnv::short_io
  bool sticky = false;  // every call after it fails too
};

// Until it ends, the n-th (from 0) of the calls of `env` that can fail does; it
// stands before `disk`. A sync is the disk's to fail, which knows what it loses.
class FailingCall {
 public:
  FailingCall(FaultEnv &env, SimEnv &disk, size_t n, Fault fault);
  ~FailingCall() { end(); }
  FailingCall(const FailingCall &) = delete;
  FailingCall &operator=(const FailingCall &) = delete;

  void end();
  bool hit() const { return hit_; }
  Call failed() const { return failed_; }  // the last

 private:
  int answer(Call call);

  FaultEnv &env_;
  SimEnv &disk_;
  const size_t n_;
  const Fault fault_;
  size_t calls_ = 0;
  bool hit_ = false;
  Call failed_ = Call::munmap;  // none that can fail
};

}  // namespace st::testing
