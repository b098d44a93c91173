#include "progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "interrupt.h"
#include "system.h"
#include "text.h"

namespace stctl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto first_drawing = std::chrono::milliseconds(200);
constexpr auto between_drawings = std::chrono::milliseconds(100);
constexpr size_t bar_columns = 30;

void write_stderr(std::string_view text) {
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;  // it's only a bar
}

}  // namespace

Progress::Progress(bool quiet, std::string label, uint64_t total)
    : shown_(!quiet && obeys_escapes(STDERR_FILENO)),
      label_(std::move(label)),
      total_(total),
      start_(Clock::now()),
      next_(start_ + first_drawing) {}

Progress::~Progress() {
  if (drawn_) write_stderr("\r\033[K");
}

void Progress::done(uint64_t bytes) {
  part_ = bytes;
  if (!shown_ || total_ == 0) return;  // 0: not known yet, as while a server or a lock is waited for
  const Clock::time_point now = Clock::now();
  if (now >= next_) draw(now);
}

void Progress::draw(Clock::time_point now) {
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const uint64_t bytes = std::min(before_ + part_, total_);
  const double share = total_ ? static_cast<double>(bytes) / static_cast<double>(total_) : 1;
  const size_t full = static_cast<size_t>(share * bar_columns);
  write_stderr(fmt::format("\r{} [{}{}] {:3.0f}% of {}, {}/s\033[K", label_, std::string(full, '#'),
                           std::string(bar_columns - full, '.'), share * 100, human_size(total_),
                           human_size(static_cast<uint64_t>(static_cast<double>(bytes) / seconds))));
  drawn_ = true;
  next_ = now + between_drawings;
}

int Progress::callback(void *user, uint64_t done_bytes, uint64_t total_bytes) {
  auto *progress = static_cast<Progress *>(user);
  if (progress->total_ == 0) progress->total_ = total_bytes;
  progress->done(done_bytes);
  return interrupted() != 0;
}

int stop_if_interrupted(void *, uint64_t, uint64_t) {
  return interrupted() != 0;
}

}  // namespace stctl
