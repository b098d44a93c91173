#include "boundary.h"

#include "os/whole_over_fork.h"

namespace st::capi {
namespace {

struct Transactions {
  std::mutex mutex;  // of the lists of all handles
};

}  // namespace

std::unique_lock<std::mutex> lock_transactions() {
  return std::unique_lock(os::whole_over_fork<Transactions>().mutex);
}

Result<int32_t> timeout_of(int32_t lock_timeout_ms, int32_t by_default) {
  switch (lock_timeout_ms) {
    case ST_TIMEOUT_DEFAULT: return by_default;
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
  if (!made_in.this_process()) static_cast<void>(transaction.release());
  transaction.reset();
}
