#include "read/direct.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <span>

#include "base/huge_memory.h"
#include "base/round.h"
#include "os/process.h"
#include "os/whole_pages.h"
#include "read/fresh_memory.h"
#include "read/thread_pool.h"

namespace st::read {
namespace {

constexpr size_t most_straight = 2;                   // requests that a server of FUSE takes in parts at once
constexpr uint64_t most_memory = uint64_t{64} << 20;  // that they may take
constexpr uint64_t alignment = 4096;                  // of offset, length and memory

// Memory of one thread, which is used again and again.
class OwnMemory {
 public:
  char *of(uint64_t n) {
    if (n > room_) {
      room_ = std::max<uint64_t>(n, huge_page);  // aligned, then
      memory_ = HugeBuffer(room_);
    }
    return memory_.get();
  }

 private:
  HugeBuffer memory_;
  uint64_t room_ = 0;
};

// One thread's requests, each straight to where it is wanted, but for pages that it shares: FUSE asks for no borders,
// and gives the memory to its server. A file that ends too soon by what this kernel remembers is read the usual way.
class Straight {
 public:
  Straight(const os::File &file, const os::File &direct, const Plan &plan, FreshMemory *fresh)
      : file_(file), direct_(direct), plan_(plan), fresh_(fresh) {}

  Result<void> fetch(const Request &request) {
    fresh_->expect(plan_, request);
    if (read_straight(request)) return {};
    return read_request(file_, plan_, request, &parts_, &scratch_);
  }

 private:
  bool read_straight(const Request &request) {
    const auto pieces = std::span(plan_.pieces).subspan(request.first, request.count);
    passed_ = memory_.of(passed_bytes + 2 * pieces.size() * os::page_size());
    edge_ = passed_ + passed_bytes;
    edges_.clear();
    parts_.clear();
    uint64_t at = request.offset;
    for (const Piece &piece : pieces) {
      pass_by(piece.offset - at);
      if (piece.to)
        take(piece);
      else
        pass_by(piece.length);
      at = piece.offset + piece.length;
    }
    if (!direct_.read_parts(parts_, request.offset)) return false;
    for (const Edge &e : edges_) std::memcpy(e.to, e.from, e.n);
    return true;
  }
  void pass_by(uint64_t n) {
    for (; n > 0; n -= std::min(n, passed_bytes))
      parts_.push_back({passed_, static_cast<size_t>(std::min(n, passed_bytes))});
  }
  void take(const Piece &piece) {
    const os::WholePages at(piece.to, static_cast<size_t>(piece.length));
    take_edge(piece.to, at.head);
    if (at.body > 0) parts_.push_back({piece.to + at.head, at.body});
    take_edge(piece.to + at.head + at.body, at.tail);
  }
  void take_edge(std::byte *to, size_t n) {
    if (n == 0) return;
    edges_.push_back({to, edge_, n});
    parts_.push_back({edge_, n});
    edge_ += os::page_size();
  }

  static constexpr uint64_t passed_bytes = uint64_t{1} << 20;
  struct Edge {
    std::byte *to;
    const char *from;
    size_t n;
  };
  const os::File &file_, &direct_;
  const Plan &plan_;
  FreshMemory *const fresh_;
  OwnMemory memory_;
  char *passed_ = nullptr, *edge_ = nullptr;  // where gaps go, and the next edge
  std::vector<Edge> edges_;
  std::vector<struct iovec> parts_;
  std::vector<std::byte> scratch_;
};

// One thread's requests. Each goes through memory that is used again and again, and on huge pages. For the caller's
// memory the kernel would first have to find fresh pages, one by one; and scattered pages reach the disk in pieces.
class Through {
 public:
  Through(const os::File &file, const os::File &direct, const Plan &plan, FreshMemory *fresh)
      : file_(file), direct_(direct), plan_(plan), fresh_(fresh) {}

  Result<void> fetch(const Request &request) {
    const uint64_t end = request.offset + request.length;
    const uint64_t from = round_down(request.offset, alignment), length = round_up(end, alignment) - from;
    char *const memory = memory_.of(length);
    const int64_t got = os::repeat_interrupted([&] { return direct_.env().pread(direct_.fd(), memory, length, from); });
    // Less than is needed, for whatever reason (the file's end, a filesystem with larger borders): then the usual way,
    // which also words the error.
    if (got < 0 || from + static_cast<uint64_t>(got) < end)
      return read_request(file_, plan_, request, &parts_, &scratch_);
    fresh_->expect(plan_, request);
    for (const Piece &piece : std::span(plan_.pieces).subspan(request.first, request.count))
      if (piece.to) std::memcpy(piece.to, memory + (piece.offset - from), piece.length);
    return {};
  }

 private:
  const os::File &file_, &direct_;
  const Plan &plan_;
  FreshMemory *const fresh_;
  OwnMemory memory_;
  std::vector<struct iovec> parts_;
  std::vector<std::byte> scratch_;
};

// `most` threads, each with a Way of its own.
template <class Way>
Result<BulkDone> read_by(const os::File &file, const os::File &direct, const Plan &plan, size_t most,
                         const Control &control) {
  std::atomic<size_t> next = 0;
  std::atomic<uint64_t> wanted_done = 0;
  ThreadPool pool(file.env());
  FreshMemory fresh(file.env());
  auto look = [&] { return control.check(wanted_done, plan.wanted); };
  auto work = [&](size_t, bool calling) -> Result<void> {
    Way way(file, direct, plan, &fresh);
    for (size_t i; !pool.stopped() && (i = next++) < plan.requests.size();) {
      if (calling || control.interrupted()) ST_TRY(look());
      ST_TRY(way.fetch(plan.requests[i]));
      wanted_done += wanted_of(plan, plan.requests[i]);
      if (!calling) pool.tell();
    }
    return {};
  };
  ST_TRY(pool.run(std::min(most, plan.requests.size()), work, look));
  ST_TRY(control.check(plan.wanted, plan.wanted));
  BulkDone sum;
  for (const Request &r : plan.requests) sum.bytes += r.length;
  sum.requests = plan.requests.size();
  return sum;
}

}  // namespace

Result<std::optional<BulkDone>> read_direct(const os::File &file, const Plan &plan, const Strategy &strategy,
                                            const Control &control) {
  if (file.becomes_direct()) {
    auto direct = reopen_file(file, O_RDONLY);
    if (!direct || !direct->become_direct()) return std::nullopt;
    direct->read_through_cache();  // its flag alone decides
    return read_by<Straight>(file, *direct, plan, std::min<size_t>(most_straight, strategy.direct_threads), control);
  }
  auto direct = reopen_file(file, O_RDONLY | O_DIRECT);
  if (!direct) return std::nullopt;
  const uint64_t fit = std::clamp<uint64_t>(most_memory / strategy.block, 1, strategy.direct_threads);
  return read_by<Through>(file, *direct, plan, fit, control);
}

}  // namespace st::read
