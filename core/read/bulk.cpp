#include "read/bulk.h"

#include <algorithm>
#include <atomic>
#include <span>

#include "base/interrupt.h"
#include "base/round.h"
#include "read/cold.h"
#include "read/fresh_memory.h"
#include "read/thread_pool.h"
#include "read/direct.h"
#include "read/requests.h"

namespace st::read {
namespace {

constexpr size_t most_parts = 512;                    // half of what one preadv takes
constexpr uint64_t smallest = uint64_t{64} << 10;     // of a request, however little memory may be used
constexpr uint64_t read_ahead = uint64_t{128} << 10;  // that the kernel does anyway
constexpr uint64_t page = 4096;                       // that the kernel forgets whole or not at all
constexpr uint64_t many_gaps = uint64_t{1} << 20;     // bytes: to copy fewer takes no longer than to look

// What the threads of one bulk read share.
struct Shared {
  const os::File &file;
  const Plan &plan;
  const Strategy &strategy;
  const Control &control;
  const uint64_t keep_behind;  // bytes of page cache a thread may leave
  ThreadPool &pool;
  FreshMemory memory;
  std::vector<std::span<const Request>> shares;  // of each thread, where it has a range of its own
  std::atomic<size_t> next = 0;                  // request, where it has none
  std::atomic<uint64_t> wanted_done = 0, bytes = 0, requests = 0;
};

uint64_t gaps_of(const Plan &plan) {
  uint64_t n = 0;
  for (const Request &r : plan.requests) n += r.length;
  return n - plan.wanted;
}

// One thread's part.
class Reader {
 public:
  Reader(Shared &shared, size_t number, bool calling) : s_(shared), number_(number), calling_(calling) {}

  Result<void> run() {
    // A description of one's own is a matter of speed: where it cannot be had
    // (too many files are open, rights were given up since) the handle's will do.
    os::File own;
    if (number_ > 0 || s_.shares.size() > 1)
      if (auto opened = reopen_file(s_.file, O_RDONLY)) own = std::move(*opened);
    const os::File &file = own ? own : s_.file;
    if (s_.plan.wanted > read_ahead) file.env().fadvise(file.fd(), 0, 0, POSIX_FADV_SEQUENTIAL);
    while (const Request *request = take()) {
      if (s_.pool.stopped()) return {};
      if ((calling_ && is_due(*request)) || s_.control.interrupted())
        ST_TRY(s_.control.check(s_.wanted_done, s_.plan.wanted));
      ST_TRY(fetch(file, *request));
      drop_behind(file, *request);
      if (!calling_) s_.pool.tell();
    }
    return {};
  }

 private:
  // Whether progress is to be told. Not before each of many small requests, which take less time than that.
  bool is_due(const Request &next) {
    const bool due = untold_requests_ == 0 || untold_requests_ >= 16 || untold_bytes_ >= (uint64_t{1} << 20);
    if (due) untold_requests_ = untold_bytes_ = 0;
    ++untold_requests_;
    untold_bytes_ += next.length;
    return due;
  }

  // While it waits for a server. The calling thread may be waiting for this one, and is to look meanwhile.
  Result<void> go_on() {
    if (s_.pool.stopped()) return fail(Status::cancelled, "another thread of this read has ended it");
    if (calling_ || s_.control.interrupted()) return s_.control.check(s_.wanted_done, s_.plan.wanted);
    s_.pool.tell();
    return {};
  }

  const Request *take() {
    if (s_.strategy.own_range) {
      const auto mine = s_.shares[number_];
      return taken_ < mine.size() ? &mine[taken_++] : nullptr;
    }
    const size_t i = s_.next.fetch_add(1, std::memory_order_relaxed);
    return i < s_.plan.requests.size() ? &s_.plan.requests[i] : nullptr;
  }

  Result<void> fetch(const os::File &file, const Request &request) {
    const InterruptScope waits([&] { return go_on(); });
    s_.memory.expect(s_.plan, request);
    ST_TRY(read_request(file, s_.plan, request, &parts_, &scratch_));
    s_.bytes += request.length;
    ++s_.requests;
    s_.wanted_done += wanted_of(s_.plan, request);
    return {};
  }

  // What was read is in the caller's memory now; its pages are not needed twice.
  // Only our own requests: what lies between them, others may be reading.
  void drop_behind(const os::File &file, const Request &request) {
    if (s_.keep_behind == UINT64_MAX) return;
    behind_.push_back(&request);
    behind_bytes_ += request.length;
    if (behind_bytes_ < s_.keep_behind) return;
    for (const Request *r : behind_) {
      const uint64_t from = round_down(r->offset, page), until = round_up(r->offset + r->length, page);
      file.env().fadvise(file.fd(), from, until - from, POSIX_FADV_DONTNEED);
    }
    behind_.clear();
    behind_bytes_ = 0;
  }

  Shared &s_;
  const size_t number_;
  const bool calling_;
  size_t taken_ = 0;
  uint64_t untold_requests_ = 0, untold_bytes_ = 0;
  std::vector<const Request *> behind_;
  uint64_t behind_bytes_ = 0;
  std::vector<struct iovec> parts_;
  std::vector<std::byte> scratch_;
};

}  // namespace

Result<void> read_request(const os::File &file, const Plan &plan, const Request &request,
                          std::vector<struct iovec> *parts, std::vector<std::byte> *scratch) {
  constexpr uint64_t scratch_bytes = uint64_t{1} << 20;
  parts->clear();
  auto pass_by = [&](uint64_t n) {
    if (n > 0) scratch->resize(scratch_bytes);
    for (; n > 0; n -= std::min(n, scratch_bytes))
      parts->push_back({scratch->data(), static_cast<size_t>(std::min(n, scratch_bytes))});
  };
  uint64_t at = request.offset;
  for (const Piece &piece : std::span(plan.pieces).subspan(request.first, request.count)) {
    pass_by(piece.offset - at);
    if (piece.to)
      parts->push_back({piece.to, static_cast<size_t>(piece.length)});
    else
      pass_by(piece.length);
    at = piece.offset + piece.length;
  }
  return file.read_parts(*parts, request.offset);
}

Result<BulkDone> read_pieces(const os::File &file, std::vector<Piece> pieces, const Strategy &strategy,
                             uint64_t memory_limit, const Control &control) {
  // What a thread is reading counts as much as what it leaves.
  const uint64_t each = memory_limit ? memory_limit / strategy.threads : UINT64_MAX;
  const uint64_t block = std::min<uint64_t>(strategy.block, std::max(round_down(each / 2, smallest), smallest));
  Plan plan = plan_requests(std::move(pieces), block, strategy.gap, most_parts);
  if (plan.requests.empty()) return BulkDone{};
  if (file.reads_past_cache() || strategy.direct == Direct::on ||
      (strategy.direct == Direct::automatic && is_first_load(file, plan))) {
    ST_TRY(auto done, read_direct(file, plan, strategy, control));
    if (done) return *done;
  }
  // Gaps are read through for the disk's sake; in memory they only cost their copy.
  if (strategy.memory_gap < strategy.gap && gaps_of(plan) >= many_gaps && is_in_memory(file, plan))
    plan = plan_requests(std::move(plan.pieces), block, strategy.memory_gap, most_parts);
  const uint64_t worth = plan.wanted / strategy.thread_work + 1;
  const size_t threads = std::min<uint64_t>({strategy.threads, plan.requests.size(), worth});
  ThreadPool pool(file.env());
  Shared shared{file,
                plan,
                strategy,
                control,
                memory_limit ? each - std::min(each, block) : UINT64_MAX,
                pool,
                FreshMemory(file.env()),
                {}};
  if (strategy.own_range) shared.shares = share_out(plan.requests, threads);
  const auto work = [&](size_t number, bool calling) { return Reader(shared, number, calling).run(); };
  ST_TRY(pool.run(threads, work, [&] { return control.check(shared.wanted_done, plan.wanted); }));
  ST_TRY(control.check(plan.wanted, plan.wanted));
  return BulkDone{shared.bytes, shared.requests};
}

Result<os::File> reopen_file(const os::File &file, int flags) {
  auto same = os::File::open(file.env(), AT_FDCWD, text("/proc/self/fd/", file.fd()), flags, 0, file.path());
  if (same) {
    same->read_like(file);
    return same;
  }
  ST_TRY(auto named, os::File::open(file.env(), AT_FDCWD, file.path(), flags, 0, file.path()));
  ST_TRY(auto replaced, os::was_replaced(file, file.path()));
  if (replaced)
    return fail(Status::file_changed, in_quotes(file.path()), " now names another file; open it anew by its path");
  named.read_like(file);
  return named;
}

}  // namespace st::read
