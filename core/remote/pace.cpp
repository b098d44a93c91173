#include "remote/pace.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/error.h"

namespace st::remote {
namespace {

constexpr uint64_t MiB = 1u << 20;
constexpr double worth_growing = 1.1;  // so many times the bytes
// A request of a piece waits for its head as long as it takes to bring a sixteenth of the piece, or less.
constexpr uint64_t heads_a_piece = 16;
constexpr double token_an_answer = 0.1;
constexpr uint64_t clock_ms = 5;  // no answer is late by less: that may be this machine's doing

size_t class_of(uint64_t bytes) {
  const int above = std::bit_width(std::max<uint64_t>(bytes, 1) - 1) - 16;
  return static_cast<size_t>(std::clamp(above, 0, 8));
}

}  // namespace

void Times::add(uint64_t ms) {
  last_[count_++ % last_.size()] = static_cast<uint32_t>(std::min<uint64_t>(ms, UINT32_MAX));
}

std::optional<uint64_t> Times::p99() const {
  if (count_ < enough) return std::nullopt;
  auto sorted = last_;
  const size_t n = std::min(count_, sorted.size());
  const auto at = sorted.begin() + static_cast<std::ptrdiff_t>(n - 1 - n / 100);
  std::nth_element(sorted.begin(), at, sorted.begin() + static_cast<std::ptrdiff_t>(n));
  return *at;
}

Pace::Pace(const Limits &limits)
    : limits_(limits),
      piece_(limits.piece),
      connections_(std::min(limits.first_connections, limits.connections)),
      tokens_(limits.tokens) {}

bool Pace::await_place(const Stops &stops) {
  auto lock = mutex_.lock();
  if (!lock.owns_lock()) return false;
  if (busy_ >= connections_) crowded_ = true;
  const auto is_free = [&] { return busy_ < connections_; };
  if (!stops) free_.wait(lock, is_free);
  while (stops && !free_.wait_for(lock, std::chrono::milliseconds(between_questions_ms), is_free)) {
    lock.unlock();
    if (stops()) return false;
    lock = mutex_.lock();
    if (!lock.owns_lock()) return false;  // it was asked, and forked: this is the child
  }
  ++busy_;
  return true;
}

bool Pace::take_place() {
  const auto lock = mutex_.lock();
  if (!lock.owns_lock()) return false;
  if (busy_ >= connections_) {
    crowded_ = true;
    return false;
  }
  ++busy_;
  return true;
}

void Pace::give_back() {
  const auto lock = mutex_.lock();
  if (!lock.owns_lock()) return;
  --busy_;
  free_.notify_one();
}

void Pace::fewer() {
  const auto lock = mutex_.lock();
  if (!lock.owns_lock()) return;
  connections_ = before_ = std::max(std::min(connections_, busy_), 2u) - 1;
  grows_ = true;
  rate_ = 0;
  begin_step(busy_);
}

void Pace::begin_step(uint32_t asked_before) {
  crowded_ = false;
  asked_before_ = asked_before;
  answers_ = short_answers_ = 0;
  bytes_ = 0;
}

void Pace::refill(double tokens) {
  tokens_ = std::min<double>(tokens_ + tokens, limits_.tokens);
}

void Pace::came(uint64_t bytes, uint64_t head_ms, uint64_t whole_ms, uint64_t now_ms) {
  const auto lock = mutex_.lock();
  refill(token_an_answer + static_cast<double>(bytes) / MiB);
  times_[class_of(bytes)].add(whole_ms);
  learn_piece(bytes, head_ms, whole_ms);
  if (bytes >= MiB)
    learn_connections(bytes, whole_ms, now_ms);
  else
    regain_connections();
}

void Pace::came_in_part(uint64_t bytes) {
  const auto lock = mutex_.lock();
  refill(static_cast<double>(bytes) / MiB);
}

void Pace::learn_piece(uint64_t bytes, uint64_t head_ms, uint64_t whole_ms) {
  const auto head = static_cast<double>(head_ms);
  head_ms_ += (head - head_ms_) / (heard_ < 8 ? ++heard_ : 8);
  if (bytes < MiB || whole_ms <= head_ms) return;
  const double rate = static_cast<double>(bytes) / static_cast<double>(whole_ms - head_ms);
  const auto wanted = static_cast<uint64_t>(heads_a_piece * head_ms_ * rate);
  piece_ = std::clamp(wanted, limits_.piece, std::max(limits_.piece, limits_.longest_piece));
}

// After fewer(). Short answers teach nothing; where no others come, they bring back one connection each time, up to as
// many as at the begin.
void Pace::regain_connections() {
  if (!grows_ || connections_ >= std::min(limits_.first_connections, limits_.connections) || !crowded_) return;
  if (++short_answers_ <= connections_) return;
  before_ = ++connections_;
  begin_step(busy_);
  free_.notify_one();
}

// A step is as many answers as there are connections. It counts if there was more to ask for all the time.
void Pace::learn_connections(uint64_t bytes, uint64_t whole_ms, uint64_t now_ms) {
  if (!grows_) return;
  if (asked_before_ > 0) {
    --asked_before_;
    step_began_ = now_ms;
    return;
  }
  if (step_began_ == 0) step_began_ = now_ms - whole_ms;
  bytes_ += bytes;
  if (++answers_ < connections_) return;
  const double rate =
      static_cast<double>(bytes_) / static_cast<double>(now_ms > step_began_ ? now_ms - step_began_ : 1);
  answers_ = 0;
  bytes_ = 0;
  step_began_ = now_ms;
  if (!std::exchange(crowded_, false)) return;
  if (rate < rate_ * worth_growing) {
    connections_ = before_;
    grows_ = false;
    return;
  }
  rate_ = rate;
  before_ = asked_before_ = connections_;
  connections_ = std::min(connections_ * 2, limits_.connections);
  grows_ = connections_ > before_;
  free_.notify_all();
}

bool Pace::take_token(uint64_t now_ms) {
  // Another thread may have looked at the clock earlier, and come later.
  if (now_ms > refilled_) refill(static_cast<double>(now_ms - std::exchange(refilled_, now_ms)) / 1000);
  if (tokens_ < 1) return false;
  tokens_ -= 1;
  return true;
}

bool Pace::may_repeat(uint64_t now_ms) {
  const auto lock = mutex_.lock();
  return take_token(now_ms);
}

void Pace::repeated() {
  const auto lock = mutex_.lock();
  refill(1);
}

std::optional<uint64_t> Pace::late_after(uint64_t bytes) const {
  const auto lock = mutex_.lock();
  const auto p99 = times_[class_of(bytes)].p99();
  if (!p99) return std::nullopt;
  return *p99 + *p99 / 8 + clock_ms;
}

bool Pace::begin_hedge(uint64_t now_ms) {
  const auto lock = mutex_.lock();
  if (hedges_ >= limits_.hedges || !take_token(now_ms)) return false;
  ++hedges_;
  ++busy_;
  return true;
}

void Pace::end_hedge() {
  const auto lock = mutex_.lock();
  if (!lock.owns_lock()) return;
  --hedges_;
  --busy_;
  free_.notify_one();
}

uint32_t Pace::connections() const {
  const auto lock = mutex_.lock();
  return connections_;
}

uint64_t Pace::piece() const {
  const auto lock = mutex_.lock();
  return piece_;
}

uint32_t Pace::busy() const {
  const auto lock = mutex_.lock();
  return busy_;
}

std::string Pace::told() const {
  const auto lock = mutex_.lock();
  return text("answers begin after ", std::llround(head_ms_), " ms; ", connections_, " requests at once, at most ",
              limits_.connections, ", of ", piece_ / MiB, " MiB");
}

uint64_t wait_before(uint32_t tries, uint64_t server_wants_ms, const Limits &limits, uint32_t random) {
  const uint32_t doubled = std::min(tries - 1, 20u);
  const uint64_t most = std::min(limits.first_wait_ms << doubled, limits.longest_wait_ms);
  return server_wants_ms + most / 2 + random % (most - most / 2 + 1);
}

}  // namespace st::remote
