#include "model/side_by_side.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "base/interrupt.h"
#include "os/made_in.h"
#include "read/thread_pool.h"

namespace st::store {
namespace {

class Opening {
 public:
  using OpenOne = std::function<Result<void>(uint32_t)>;

  Opening(os::Env &env, const std::set<uint32_t> &members, const Control &control, const OpenOne &open)
      : members_(members.begin(), members.end()),
        control_(control),
        open_(open),
        made_in_(env),
        pool_(env),
        end_(members_.size()) {}

  Result<void> run(unsigned most) {
    const size_t threads = std::min<size_t>(members_.size(), most);
    const auto body = [this](size_t, bool calling) { return work(calling); };
    ST_TRY(pool_.run(threads, body, [this] { return control_.check(0, 0); }));
    if (failure_) return Failure(*std::move(failure_));
    return {};
  }

 private:
  Result<void> work(bool calling) {
    for (size_t i = next_++; i < end_; i = next_++) {
      const InterruptScope waits([this, i, calling] { return go_on(i, calling); });
      if (auto done = open_(members_[i]); !done) ST_TRY(failed(i, std::move(done.error())));
    }
    return {};
  }

  // While it waits for a server. The calling thread may be waiting for this one, and is to look meanwhile.
  Result<void> go_on(size_t i, bool calling) {
    if (pool_.stopped() || i > end_) return fail(Status::cancelled, "another thread of this call has ended it");
    if (calling || control_.interrupted()) return control_.check(0, 0);
    pool_.tell();
    return {};
  }

  // Those before it go on: one of them may fail, too. In a child of a fork there are no others, and one of them may
  // have the mutex.
  Result<void> failed(size_t i, Error why) {
    if (!made_in_.this_process()) return Failure(std::move(why));
    const std::lock_guard lock(mutex_);
    if (i > end_) return {};
    if (was_stopped(why)) return Failure(std::move(why));
    failure_ = std::move(why);
    end_ = i;
    return {};
  }

  const std::vector<uint32_t> members_;
  const Control &control_;
  const OpenOne &open_;
  const os::MadeIn made_in_;
  read::ThreadPool pool_;
  std::atomic<size_t> next_ = 0, end_;  // end_: of those to open
  std::mutex mutex_;
  std::optional<Error> failure_;  // of members_[end_]
};

}  // namespace

Result<void> open_side_by_side(os::Env &env, const std::set<uint32_t> &members, unsigned most, const Control &control,
                               const std::function<Result<void>(uint32_t)> &open) {
  if (members.empty()) return {};
  return Opening(env, members, control, open).run(most);
}

}  // namespace st::store
