#include "read/direct.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <system_error>
#include <thread>

namespace st::read {
namespace {

constexpr size_t depth = 8;  // requests under way

uint64_t down(uint64_t n) {
  return n / direct_alignment * direct_alignment;
}
uint64_t up(uint64_t n) {
  return down(n + direct_alignment - 1);
}

// A request under way: where its aligned bytes go, and what is left to do with
// them when they have come.
class Slot {
 public:
  Slot(const os::File &file, const Plan &plan, uint64_t block)
      : file_(file), plan_(plan), room_(block + 2 * direct_alignment) {}

  void begin(const Request &request) {
    request_ = &request;
    const Piece &piece = plan_.pieces[request.first];
    const auto address = reinterpret_cast<uintptr_t>(piece.to);
    in_place_ = request.count == 1 && piece.to && address % direct_alignment == request.offset % direct_alignment &&
                down(end()) > up(request.offset);
    if (in_place_) {
      from_ = up(request.offset);
      length_ = down(end()) - from_;
      target_ = piece.to + (from_ - request.offset);
    } else {
      if (!bounce_) bounce_.reset(static_cast<std::byte *>(::operator new (room_, std::align_val_t{direct_alignment})));
      from_ = down(request.offset);
      length_ = up(end()) - from_;
      target_ = bounce_.get();
    }
  }

  void *target() const { return target_; }
  uint32_t length() const { return static_cast<uint32_t>(length_); }
  uint64_t offset() const { return from_; }

  // `got` bytes came, or -errno. Less than is needed, for whatever reason (the
  // file's end, a filesystem with larger borders): then the usual way, which
  // also words the error.
  Result<void> complete(int64_t got) {
    const Request &r = *request_;
    if (got < 0 || from_ + static_cast<uint64_t>(got) < (in_place_ ? from_ + length_ : end()))
      return read_request(file_, plan_, r, &parts_, &scratch_);
    if (in_place_) {
      std::byte *to = plan_.pieces[r.first].to;
      if (auto head = file_.read(to, from_ - r.offset, r.offset); !head) return head;
      const uint64_t tail = from_ + length_;
      return file_.read(to + (tail - r.offset), end() - tail, tail);
    }
    for (const Piece &piece : std::span(plan_.pieces).subspan(r.first, r.count))
      if (piece.to) std::memcpy(piece.to, bounce_.get() + (piece.offset - from_), piece.length);
    return {};
  }

  const Request &request() const { return *request_; }

 private:
  struct Free {
    void operator()(std::byte *p) const { ::operator delete (p, std::align_val_t{direct_alignment}); }
  };
  uint64_t end() const { return request_->offset + request_->length; }

  const os::File &file_;
  const Plan &plan_;
  const uint64_t room_;
  const Request *request_ = nullptr;
  bool in_place_ = false;
  std::byte *target_ = nullptr;
  uint64_t from_ = 0, length_ = 0;
  std::unique_ptr<std::byte, Free> bounce_;
  std::vector<struct iovec> parts_;
  std::vector<std::byte> scratch_;
};

uint64_t wanted_of(const Plan &plan, const Request &r) {
  uint64_t n = 0;
  for (const Piece &piece : std::span(plan.pieces).subspan(r.first, r.count)) n += piece.length;
  return n;
}

// `slots` outlive the queue, whose destructor waits for what is under way.
Result<void> run_queue(os::ReadQueue &queue, const os::File &direct, const Plan &plan, std::vector<Slot> &slots,
                       const Control &control) {
  size_t next = 0, under_way = 0;
  uint64_t done = 0;
  auto start = [&](size_t slot) -> Result<void> {
    if (next == plan.requests.size()) return {};
    Slot &s = slots[slot];
    s.begin(plan.requests[next++]);
    if (queue.submit(direct.fd(), s.target(), s.length(), s.offset(), slot) < 0) {
      done += wanted_of(plan, s.request());
      return s.complete(-EIO);
    }
    ++under_way;
    return {};
  };
  for (size_t slot = 0; slot < slots.size(); ++slot)
    if (auto started = start(slot); !started) return started;
  while (under_way > 0 || next < plan.requests.size()) {
    if (auto go = control.check(done, plan.wanted); !go) return go;
    uint64_t slot = 0;
    int32_t got = 0;
    if (under_way > 0) {
      if (const int r = queue.wait(&slot, &got); r < 0) return Failure(direct.error(-r, "wait for reads of"));
      --under_way;
      if (auto completed = slots[slot].complete(got); !completed) return completed;
      done += wanted_of(plan, slots[slot].request());
    }
    if (auto started = start(slot); !started) return started;
  }
  return {};
}

struct Pool {
  const os::File &direct;
  const Plan &plan;
  const Control &control;
  std::atomic<size_t> next = 0;
  std::atomic<uint64_t> done = 0;
  std::atomic<bool> stop = false;
  std::mutex mutex = {};
  std::optional<Error> failure = {};
  std::atomic<bool> out_of_memory = false;

  void work(Slot &slot, bool calling) {
    for (size_t i; !stop && (i = next++) < plan.requests.size();) {
      Result<void> went;
      if (calling || control.interrupted()) went = control.check(done, plan.wanted);
      if (went) {
        slot.begin(plan.requests[i]);
        went = slot.complete(os::repeat_interrupted(
            [&] { return direct.env().pread(direct.fd(), slot.target(), slot.length(), slot.offset()); }));
        done += wanted_of(plan, plan.requests[i]);
      }
      if (went) continue;
      std::lock_guard lock(mutex);
      if (!failure) failure = std::move(went.error());
      stop = true;
    }
  }
  void work_safely(Slot &slot, bool calling) {
    try {
      work(slot, calling);
    } catch (const std::bad_alloc &) {
      out_of_memory = true;
      stop = true;
    }
  }
};

Result<void> run_pool(const os::File &direct, const Plan &plan, std::vector<Slot> &slots, const Control &control) {
  Pool pool{direct, plan, control};
  std::vector<std::thread> others;
  others.reserve(slots.size());
  for (size_t i = 1; i < slots.size(); ++i) {
    try {
      others.emplace_back([&pool, &slot = slots[i]] { pool.work_safely(slot, false); });
    } catch (const std::system_error &) {
      break;  // fewer, then
    }
  }
  pool.work_safely(slots[0], true);
  for (std::thread &other : others) other.join();
  if (pool.out_of_memory) throw std::bad_alloc();
  if (pool.failure) return Failure(std::move(*pool.failure));
  return {};
}

}  // namespace

Result<std::optional<BulkDone>> read_direct(const os::File &file, const Plan &plan, const Strategy &strategy,
                                            const Control &control) {
  auto direct = reopen_file(file, O_RDONLY | O_DIRECT);
  if (!direct) {
    if (direct.error().os_errno == EINVAL || direct.error().os_errno == EOPNOTSUPP) return std::nullopt;
    return Failure(std::move(direct.error()));
  }
  std::vector<Slot> slots;
  slots.reserve(depth);
  for (size_t i = 0; i < std::min(depth, plan.requests.size()); ++i) slots.emplace_back(file, plan, strategy.block);
  // Made after the slots, so that it ends, and with it all reads, before them.
  const std::unique_ptr<os::ReadQueue> queue = file.env().read_queue(depth);
  auto done = queue ? run_queue(*queue, *direct, plan, slots, control) : run_pool(*direct, plan, slots, control);
  if (!done) return Failure(std::move(done.error()));
  if (auto go = control.check(plan.wanted, plan.wanted); !go) return Failure(std::move(go.error()));
  BulkDone sum;
  for (const Request &r : plan.requests) sum.bytes += r.length;
  sum.requests = plan.requests.size();
  return sum;
}

}  // namespace st::read
