#include "read/bulk.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <system_error>
#include <thread>

#include "read/direct.h"
#include "read/requests.h"

namespace st::read {
namespace {

constexpr size_t most_parts = 512;                  // half of what one preadv takes
constexpr uint64_t small_work = uint64_t{4} << 20;  // a thread costs more than it saves below

// What the threads of one bulk read share.
struct Shared {
  const os::File &file;
  const Plan &plan;
  const Strategy &strategy;
  const Control &control;
  const uint64_t keep_behind;  // bytes of page cache a thread may leave; 0: any
  std::vector<std::span<const Request>> shares;
  std::atomic<size_t> next = 0;  // request, where threads have no range of their own
  std::atomic<uint64_t> wanted_done = 0, bytes = 0, requests = 0;
  std::atomic<bool> stop = false;
  std::mutex mutex = {};
  std::optional<Error> failure = {};  // the first one
  std::atomic<bool> out_of_memory = false;

  void fail(Error &&e) {
    std::lock_guard lock(mutex);
    if (!failure) failure = std::move(e);
    stop = true;
  }
};

// One thread's part.
class Reader {
 public:
  Reader(Shared &shared, size_t number) : s_(shared), number_(number) {}

  Result<void> run() {
    os::File own;
    if (number_ > 0 || s_.shares.size() > 1) {
      auto opened = reopen_file(s_.file, O_RDONLY);
      if (!opened) return Failure(std::move(opened.error()));
      own = std::move(*opened);
    }
    const os::File &file = own ? own : s_.file;
    file.env().fadvise(file.fd(), 0, 0, POSIX_FADV_SEQUENTIAL);
    while (const Request *request = take()) {
      if (s_.stop) return {};
      if (number_ == 0) {
        if (auto go = s_.control.check(s_.wanted_done, s_.plan.wanted); !go) return go;
      } else if (s_.control.interrupted()) {
        return s_.control.check(0, 0);
      }
      if (auto got = fetch(file, *request); !got) return got;
      if (s_.keep_behind > 0) drop_behind(file, request->offset + request->length);
    }
    return {};
  }

 private:
  const Request *take() {
    if (s_.strategy.own_range) {
      const auto mine = s_.shares[number_];
      return taken_ < mine.size() ? &mine[taken_++] : nullptr;
    }
    const size_t i = s_.next.fetch_add(1, std::memory_order_relaxed);
    return i < s_.plan.requests.size() ? &s_.plan.requests[i] : nullptr;
  }

  Result<void> fetch(const os::File &file, const Request &request) {
    auto got = read_request(file, s_.plan, request, &parts_, &scratch_);
    if (!got) return got;
    s_.bytes += request.length;
    ++s_.requests;
    for (const Piece &piece : std::span(s_.plan.pieces).subspan(request.first, request.count))
      s_.wanted_done += piece.length;
    return {};
  }

  // What was read is in the caller's memory now; its pages are not needed twice.
  void drop_behind(const os::File &file, uint64_t here) {
    if (here < kept_from_) kept_from_ = here;
    if (here - kept_from_ < s_.keep_behind) return;
    file.env().fadvise(file.fd(), kept_from_, here - kept_from_, POSIX_FADV_DONTNEED);
    kept_from_ = here;
  }

  Shared &s_;
  const size_t number_;
  size_t taken_ = 0;
  uint64_t kept_from_ = UINT64_MAX;
  std::vector<struct iovec> parts_;
  std::vector<std::byte> scratch_;
};

void run_reader(Shared &shared, size_t number) {
  try {
    if (auto done = Reader(shared, number).run(); !done) shared.fail(std::move(done.error()));
  } catch (const std::bad_alloc &) {
    shared.out_of_memory = true;
    shared.stop = true;
  }
}

}  // namespace

Result<void> read_request(const os::File &file, const Plan &plan, const Request &request,
                          std::vector<struct iovec> *parts, std::vector<std::byte> *scratch) {
  constexpr uint64_t scratch_bytes = uint64_t{1} << 20;
  parts->clear();
  auto pass_by = [&](uint64_t n) {
    scratch->resize(scratch_bytes);
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
  const Plan plan = plan_requests(std::move(pieces), strategy.block, strategy.gap, most_parts);
  if (plan.requests.empty()) return BulkDone{};
  if (strategy.direct) {
    auto done = read_direct(file, plan, strategy, control);
    if (!done || *done) {
      if (!done) return Failure(std::move(done.error()));
      return **done;
    }
  }
  const uint64_t worth = plan.wanted / small_work + 1;
  const size_t threads = std::min<uint64_t>({strategy.threads, plan.requests.size(), worth});
  Shared shared{file, plan, strategy, control, memory_limit / threads, {}};
  if (strategy.own_range) shared.shares = share_out(plan.requests, threads);

  std::vector<std::thread> others;
  others.reserve(threads);
  for (size_t number = 1; number < threads; ++number) {
    try {
      others.emplace_back(run_reader, std::ref(shared), number);
    } catch (const std::system_error &) {
      break;  // no more threads to be had: their parts are done below
    }
  }
  run_reader(shared, 0);
  if (strategy.own_range)
    for (size_t number = others.size() + 1; number < threads; ++number) run_reader(shared, number);
  for (std::thread &other : others) other.join();

  if (shared.out_of_memory) throw std::bad_alloc();
  if (shared.failure) return Failure(std::move(*shared.failure));
  if (auto go = control.check(plan.wanted, plan.wanted); !go) return Failure(std::move(go.error()));
  return BulkDone{shared.bytes, shared.requests};
}

Result<os::File> reopen_file(const os::File &file, int flags) {
  auto same = os::File::open(file.env(), AT_FDCWD, text("/proc/self/fd/", file.fd()), flags, 0, file.path());
  if (same) return same;
  auto named = os::File::open(file.env(), AT_FDCWD, file.path(), flags, 0, file.path());
  if (!named) return named;
  auto replaced = os::was_replaced(file, file.path());
  if (!replaced) return Failure(std::move(replaced.error()));
  if (*replaced)
    return fail(Status::file_changed, quoted(file.path()), " now names another file; open it anew by its path");
  return named;
}

}  // namespace st::read
