#include "boundary.h"

#include "os/process.h"

namespace st::capi {
namespace {

class TransactionsMutex {
 public:
  TransactionsMutex() {
    current = this;
    os::at_fork([] { current->mutex.lock(); }, [] { current->mutex.unlock(); }, [] { current->mutex.unlock(); });
  }
  std::mutex mutex;

 private:
  static inline TransactionsMutex *current = nullptr;
};

}  // namespace

std::unique_lock<std::mutex> lock_transactions() {
  static TransactionsMutex *const of_all = new TransactionsMutex;  // for ever, as exit handlers may use handles
  return std::unique_lock(of_all->mutex);
}

Result<int32_t> timeout_of(int32_t lock_timeout_ms) {
  switch (lock_timeout_ms) {
    case ST_TIMEOUT_DEFAULT: return default_lock_timeout_ms;
    case ST_TIMEOUT_FOREVER: return -1;
    case ST_TIMEOUT_NONE: return 0;
    default: break;
  }
  if (lock_timeout_ms < 0)
    return fail(Status::invalid_argument, "lock_timeout_ms is ", lock_timeout_ms,
                "; it takes milliseconds or ST_TIMEOUT_...");
  return lock_timeout_ms;
}

Result<void> hand_out(Result<std::unique_ptr<store::Model>> opened, st_file **out) {
  ST_TRY(auto model, std::move(opened));
  static_cast<void>(lock_transactions());  // made before there can be a fork amid its first use
  *out = new st_file(std::move(model));
  return {};
}

Result<void> describe_with_view(const store::Place &place, st_tensor *out) {
  ST_TRY(auto data, place.member->view(*place.snapshot, place.index));
  describe(place, data, out);
  return {};
}

}  // namespace st::capi

void st_txn::end() noexcept {
  if (process != st::os::Env::posix().fork_generation()) static_cast<void>(transaction.release());
  transaction.reset();
}
