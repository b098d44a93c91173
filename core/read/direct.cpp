#include "read/direct.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "read/crew.h"
#include "round.h"

namespace st::read {
namespace {

constexpr size_t depth = 8;  // requests under way

uint64_t down(uint64_t n) {
  return round_down(n, direct_alignment);
}
uint64_t up(uint64_t n) {
  return round_up(n, direct_alignment);
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

Result<void> run_pool(const os::File &direct, const Plan &plan, std::vector<Slot> &slots, const Control &control) {
  std::atomic<size_t> next = 0;
  std::atomic<uint64_t> done = 0;
  Crew crew;
  auto look = [&] { return control.check(done, plan.wanted); };
  auto work = [&](size_t number, bool calling) -> Result<void> {
    Slot &slot = slots[number];
    for (size_t i; !crew.stopped() && (i = next++) < plan.requests.size();) {
      if (calling || control.interrupted())
        if (auto go = look(); !go) return go;
      slot.begin(plan.requests[i]);
      const int64_t got = os::repeat_interrupted(
          [&] { return direct.env().pread(direct.fd(), slot.target(), slot.length(), slot.offset()); });
      if (auto completed = slot.complete(got); !completed) return completed;
      done += wanted_of(plan, slot.request());
      if (!calling) crew.tell();
    }
    return {};
  };
  return crew.run(slots.size(), work, look);
}

}  // namespace

Result<std::optional<BulkDone>> read_direct(const os::File &file, const Plan &plan, const Strategy &strategy,
                                            const Control &control) {
  auto direct = reopen_file(file, O_RDONLY | O_DIRECT);
  if (!direct) return std::nullopt;
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
