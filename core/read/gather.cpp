#include "read/gather.h"

#include <algorithm>
#include <cstring>

namespace st::read {
namespace {

constexpr size_t most_at_once = 4096;             // pieces and windows
constexpr uint64_t is_near = uint64_t{64} << 10;  // a gap that costs no more than a request
constexpr uint64_t most_waste = 16;  // longer ones are no more than so many times what is wanted beside them

// Windows and runs that were left apart stay so.
Strategy without_long_gaps(Strategy strategy) {
  strategy.gap = std::min(strategy.gap, is_near);
  strategy.memory_gap = std::min(strategy.memory_gap, is_near);
  return strategy;
}

}  // namespace

Gather::Gather(const os::File &file, const Strategy &strategy, const Control &control, uint64_t total, uint64_t room)
    : file_(file),
      strategy_(strategy),
      between_(without_long_gaps(strategy)),
      control_(control),
      total_(total),
      room_(room) {}

Result<void> Gather::add(uint64_t offset, const SlicePlan &plan, std::byte *to) {
  const uint64_t n = plan.run_bytes(), gap = longest_gap(n);
  for (SlicePlan::Cursor run(plan); !run.done();) {
    const SlicePlan::Cursor first = run;
    const uint64_t begin = run.source();
    // Requests end at multiples of the block: a longer window would be two.
    const uint64_t until = begin + std::min(room_, strategy_.block - (offset + begin) % strategy_.block);
    uint64_t end = begin + n, runs = 1;
    for (run.next(); !run.done() && run.source() <= end + gap && run.source() + n <= until; run.next(), ++runs)
      end = run.source() + n;
    const bool is_alone = runs == 1;
    if ((!is_alone && used_ + (end - begin) > room_) || pieces_.size() + windows_.size() == most_at_once)
      ST_TRY(read());
    wanted_ += runs * n;
    if (is_alone) {
      pieces_.push_back({offset + begin, n, to + first.destination()});
      continue;
    }
    windows_.push_back({offset + begin, end - begin, used_, first, runs, n, to});
    used_ += end - begin;
  }
  return {};
}

uint64_t Gather::longest_gap(uint64_t run_bytes) const {
  const uint64_t beside = 2 * std::min(run_bytes, strategy_.gap);
  return std::min(strategy_.gap, std::max(is_near, most_waste * beside));
}

Result<BulkDone> Gather::finish() {
  ST_TRY(read());
  return done_;
}

Result<void> Gather::read() {
  if (used_ > memory_bytes_) {
    memory_.reset();
    memory_bytes_ = 0;
    memory_ = std::make_unique_for_overwrite<std::byte[]>(used_);
    memory_bytes_ = used_;
  }
  for (const Window &window : windows_) pieces_.push_back({window.offset, window.length, memory_.get() + window.at});
  // What lies between the runs is no progress.
  const Control part = control_.with([this](uint64_t done, uint64_t) {
    return !control_.progress() || control_.progress()(gathered_ + std::min(done, wanted_), total_);
  });
  ST_TRY(const auto done, read_pieces(file_, std::move(pieces_), between_, 0, part));
  for (const Window &window : windows_) {
    SlicePlan::Cursor run = window.first;
    const uint64_t begin = run.source();
    for (uint64_t i = 0; i < window.runs; ++i, run.next())
      std::memcpy(window.to + run.destination(), memory_.get() + window.at + (run.source() - begin), window.run_bytes);
  }
  done_.bytes += done.bytes;
  done_.requests += done.requests;
  gathered_ += wanted_;
  pieces_.clear();
  windows_.clear();
  used_ = wanted_ = 0;
  return {};
}

}  // namespace st::read
