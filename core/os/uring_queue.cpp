#include "os/uring_queue.h"

#include <liburing.h>
#include <sched.h>

#include <cerrno>

namespace st::os {
namespace {

class UringQueue final : public ReadQueue {
 public:
  bool open(unsigned depth) { return open_ = ::io_uring_queue_init(depth, &ring_, 0) == 0; }
  ~UringQueue() override {
    uint64_t tag;
    int32_t result;
    // Whatever wait() answers: the kernel writes to that memory until it is done.
    while (open_ && under_way_ > 0)
      if (wait(&tag, &result) < 0) ::sched_yield();
    if (open_) ::io_uring_queue_exit(&ring_);
  }
  int submit(int fd, void *buffer, uint32_t n, uint64_t offset, uint64_t tag) override {
    io_uring_sqe *entry = ::io_uring_get_sqe(&ring_);
    if (!entry) return -EBUSY;
    ::io_uring_prep_read(entry, fd, buffer, n, offset);
    ::io_uring_sqe_set_data64(entry, tag);
    const int submitted = ::io_uring_submit(&ring_);
    if (submitted > 0) {
      ++under_way_;
      return 0;
    }
    // The entry stays in the ring and goes with the next one: as nothing.
    ::io_uring_prep_nop(entry);
    ::io_uring_sqe_set_data64(entry, nothing);
    return submitted < 0 ? submitted : -EAGAIN;
  }
  int wait(uint64_t *tag, int32_t *result) override {
    for (;;) {
      io_uring_cqe *answer = nullptr;
      const int r = ::io_uring_wait_cqe(&ring_, &answer);
      if (r == -EINTR) continue;  // its memory may not be given up
      if (r < 0) return r;
      *tag = ::io_uring_cqe_get_data64(answer);
      *result = answer->res;
      ::io_uring_cqe_seen(&ring_, answer);
      if (*tag == nothing) continue;
      --under_way_;
      return 0;
    }
  }

 private:
  static constexpr uint64_t nothing = UINT64_MAX - 1;  // a tag; UINT64_MAX is liburing's own
  io_uring ring_ = {};
  bool open_ = false;
  unsigned under_way_ = 0;
};

}  // namespace

std::unique_ptr<ReadQueue> uring_queue(unsigned depth) {
  auto queue = std::make_unique<UringQueue>();
  return queue->open(depth) ? std::move(queue) : nullptr;
}

}  // namespace st::os
