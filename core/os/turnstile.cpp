#include "os/turnstile.h"

#include <algorithm>
#include <cerrno>
#include <new>

namespace st::os {
namespace {

// An order is not worth a failure: where these bytes cannot be locked, or not any more, there is none. Whether changes
// can be kept apart at all, the locks on the file's own bytes will tell.
Result<bool> or_no_turnstile(Result<bool> answer, bool otherwise) {
  if (answer) return answer;
  const Error &e = answer.error();
  if (e.status == Status::lock_unsupported || e.os_errno == EOVERFLOW) return otherwise;
  return answer;
}

Result<bool> is_taken(const File &file, const LockRange &range) {
  return or_no_turnstile(is_locked(file, range), false);
}

constexpr LockRange shared(const LockRange &byte) {
  return {byte.begin, byte.length, false};
}
constexpr LockRange exclusive(const LockRange &byte) {
  return {byte.begin, byte.length, true};
}
// Those from the i-th on that touch, as one. `end`: the first that is not among them.
LockRange run_at(const std::vector<LockRange> &ranges, size_t i, size_t *end) {
  LockRange run = ranges[i];
  for (*end = i + 1; *end < ranges.size(); ++*end) {
    const LockRange &next = ranges[*end];
    if (run.length == 0 || next.length == 0) break;  // to the end of any file
    if (next.begin != run.begin + run.length || next.exclusive != run.exclusive) break;
    run.length += next.length;
  }
  return run;
}

constexpr LockRange entrance = shared(gate_byte);  // as a patch asks for it

// One change at one file.
class Pass {
 public:
  Pass(const File &file, const LockRange &flag, const LockWait &wait, const Turnstile::Moved &moved)
      : file_(file), flag_(flag), moved_(moved), held_(file), patience_(file, wait) {}

  // It waited at another file, so it counts as waiting here, whether or not it has to.
  Result<void> come_over() { return raise_flag(); }
  // False: the file was replaced meanwhile.
  Result<bool> as_patch(const std::vector<LockRange> &ranges);
  Result<bool> as_writer(const LockRange &whole);
  RangeLock &held() { return held_; }

 private:
  Result<void> raise_flag();
  Result<bool> wait_at(uint64_t blocked_at);
  Result<bool> take(const LockRange &range);
  Result<bool> keeps_out(const LockRange &byte);
  Result<bool> enter(const LockRange &first);
  Result<bool> await(const LockRange &range);
  Result<bool> take_others(const std::vector<LockRange> &ranges);
  Result<bool> await_turn(const LockRange &whole);
  bool may_stay();

  const File &file_;
  const LockRange flag_;
  const Turnstile::Moved &moved_;
  RangeLock held_;
  Patience patience_;
  bool waits_ = false;  // the flag is up
};

Result<void> Pass::raise_flag() {
  if (waits_) return {};
  ST_TRY(waits_, or_no_turnstile(held_.try_take(flag_), false));
  return {};
}

Result<bool> Pass::wait_at(uint64_t blocked_at) {
  ST_TRY(patience_.check(blocked_at));
  ST_TRY(raise_flag());
  patience_.sleep();
  return !moved_(file_);
}

Result<bool> Pass::take(const LockRange &range) {
  return range.begin < turnstile_begin ? held_.try_take(range) : or_no_turnstile(held_.try_take(range), true);
}

// Asked, and if the answer is yes also tried: a daemon that answers nothing would keep us out for ever.
Result<bool> Pass::keeps_out(const LockRange &byte) {
  auto taken = is_taken(file_, byte);
  if (!taken || !*taken) return taken;
  auto had = take(byte);
  if (had && *had) held_.drop(byte);
  return had ? Result<bool>(!*had) : had;
}

// What was waited for may have come free because the file was replaced. Then the place here is kept.
bool Pass::may_stay() {
  if (!waits_) return true;
  if (moved_(file_)) return false;
  held_.drop(turnstile_bytes);
  waits_ = false;
  return true;
}

// Holds nothing of the ranges while it waits here.
Result<bool> Pass::enter(const LockRange &first) {
  for (;;) {
    ST_TRY(auto closed, keeps_out(entrance));
    if (!closed) {
      ST_TRY(auto taken, take(first));
      if (taken) return may_stay();
    }
    auto on = wait_at(closed ? gate_byte.begin : first.begin);
    if (!on || !*on) return on;
  }
}

// False: somebody has closed the gate. He would wait for this patch, which waits for others.
Result<bool> Pass::await(const LockRange &range) {
  patience_.next_lock();
  for (;;) {
    ST_TRY(auto taken, take(range));
    if (taken) return true;
    ST_TRY(auto closed, keeps_out(entrance));
    if (closed) return false;
    ST_TRY(patience_.check(range.begin));
    patience_.sleep();
  }
}

// A run takes one call if all of it is free. If not, it is taken one by one, or others could keep it out by turns.
Result<bool> Pass::take_others(const std::vector<LockRange> &ranges) {
  for (size_t i = 1, end = 1; i < ranges.size(); i = end) {
    const LockRange run = run_at(ranges, i, &end);
    bool taken = false;
    if (end > i + 1) {
      ST_TRY(taken, take(run));
    }
    for (; !taken && i < end; ++i) {
      auto had = await(ranges[i]);
      if (!had || !*had) return had;
    }
  }
  return true;
}

Result<bool> Pass::as_patch(const std::vector<LockRange> &ranges) {
  for (;;) {
    auto in = enter(ranges.front());
    if (!in || !*in) return in;
    auto all = take_others(ranges);
    if (!all || *all) return all;
    held_.drop(whole_file(true));
    patience_.next_lock();
  }
}

Result<bool> Pass::await_turn(const LockRange &whole) {
  enum Step { queue, let_in, close, lock };
  for (const Step step : {queue, let_in, close, lock}) {
    const LockRange &wanted = step == queue    ? queue_byte
                              : step == let_in ? waiting_patches
                              : step == close  ? gate_byte
                                               : whole;
    patience_.look_often();
    for (;;) {
      ST_TRY(auto had, step == let_in ? keeps_out(exclusive(wanted)) : take(wanted));
      if (had != (step == let_in)) break;
      auto on = wait_at(wanted.begin);
      if (!on || !*on) return on;
    }
  }
  if (!waits_) held_.drop(turnstile_bytes);
  return may_stay();
}

// If nobody waits here, and the file is free, there is nothing to be taken here.
Result<bool> Pass::as_writer(const LockRange &whole) {
  ST_TRY(auto others, is_taken(file_, turnstile_bytes));
  if (!others) {
    ST_TRY(auto taken, take(whole));
    if (taken) return may_stay();
  }
  // Without time to wait it does not close the gate to others.
  uint64_t blocked_at = whole.begin;
  for (const LockRange &byte : {gate_byte, queue_byte, waiting_writers, waiting_patches})
    if (others && blocked_at == whole.begin)
      if (auto by = is_taken(file_, exclusive(byte)); by && *by) blocked_at = byte.begin;
  ST_TRY(patience_.check(blocked_at));
  return await_turn(whole);
}

}  // namespace

Result<bool> Turnstile::lock(const File &file, std::vector<LockRange> ranges, const LockWait &wait, RangeLock *lock) {
  std::sort(ranges.begin(), ranges.end(), [](const LockRange &a, const LockRange &b) { return a.begin < b.begin; });
  const bool writes = ranges.front().exclusive || as_ == As::writer;
  Pass pass(file, writes ? waiting_writers : waiting_patches, wait, moved_);
  if (kept_) {
    ST_TRY(pass.come_over());
    kept_ = {};
  }
  ST_TRY(auto had, writes ? pass.as_writer(ranges.front()) : pass.as_patch(ranges));
  if (had) {
    *lock = std::move(pass.held());
    return true;
  }
  // All but the sign that one waits.
  pass.held().drop(whole_file(true));
  pass.held().drop(queue_byte);
  pass.held().drop(gate_byte);
  pass.held().disown();
  return false;
}

void hand_over(const File &replaced, RangeLock &lock) noexcept try {
  constexpr uint32_t longest_us = 100000, pause_us = 100;
  lock.release();
  constexpr LockRange followers{waiting_writers.begin, 2, true};
  for (uint32_t waited_us = 0; waited_us < longest_us; waited_us += pause_us) {
    const auto some = is_taken(replaced, followers);
    if (!some || !*some) return;
    replaced.env().sleep_us(pause_us);
  }
} catch (const std::bad_alloc &) {
  // An order is not worth a failure, and what was replaced stays so.
}

}  // namespace st::os
