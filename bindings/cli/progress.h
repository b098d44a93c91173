// A progress bar on standard error, only if that is a terminal, not --quiet, and
// the work takes longer than a blink. Never a reason to fail.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace stctl {

class Progress {
 public:
  // Bars for `total` bytes of work, 0 if only libst knows; "reading", "writing" … is its label.
  Progress(bool quiet, std::string label, uint64_t total);
  ~Progress();  // wipes the bar
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;

  void done(uint64_t bytes);  // so many of the total by now
  void part_done() {
    before_ += part_;
    part_ = 0;
  }  // the call whose callback reported is over

  // The callback of libst (st_progress_fn; user: a Progress): the parts' bytes add up. Asks to stop after Ctrl-C.
  static int callback(void *user, uint64_t done_bytes, uint64_t total_bytes);

 private:
  void draw(std::chrono::steady_clock::time_point now);

  bool shown_;
  bool drawn_ = false;
  std::string label_;
  uint64_t total_;
  uint64_t before_ = 0;
  uint64_t part_ = 0;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point next_;
};

// For calls that need no bar: only stops them after Ctrl-C (st_progress_fn).
int stop_if_interrupted(void *user, uint64_t done_bytes, uint64_t total_bytes);

}  // namespace stctl
