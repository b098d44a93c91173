#include "failing_call.h"

namespace st::testing {

FailingCall::FailingCall(FaultEnv &env, SimEnv &disk, size_t n, Fault fault)
    : env_(env), disk_(disk), n_(n), fault_(fault) {
  env_.before = [this](Call call) { return answer(call); };
}

void FailingCall::end() {
  env_.before = nullptr;
  disk_.sync_fault = nullptr;
}

int FailingCall::answer(Call call) {
  if (!can_fail(call)) return 0;
  const size_t k = calls_++;
  if (k != n_ && !(fault_.sticky && k > n_)) return 0;
  hit_ = true;
  failed_ = call;
  if ((call == Call::fsync || call == Call::fdatasync || call == Call::wait_range) && fault_.error < 0) {
    disk_.sync_fault = [this] { return disk_.sync_fault = nullptr, fault_.error; };
    return 0;
  }
  return fault_.error;
}

}  // namespace st::testing
