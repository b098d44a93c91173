// What one handle has learned of its store, and what it may still ask of it: how many requests at once, how long each
// is, when an answer is late, and how much may be asked again. All calls on the handle share it; any thread.
#pragma once

#include <array>
#include <optional>

#include "base/waiters.h"
#include "remote/limits.h"
#include "remote/this_process.h"

namespace st::remote {

// How long requests of about one length took, of late.
class Times {
 public:
  void add(uint64_t ms);
  // 99 of 100 answers took no longer. None before there are as many.
  std::optional<uint64_t> p99() const;

 private:
  static constexpr size_t enough = 100;
  std::array<uint32_t, 128> last_ = {};
  size_t count_ = 0;
};

class Pace {
 public:
  explicit Pace(const Limits &limits);

  // Each call has one place, and takes more for requests beside its first. Waits until there is one. False: the caller
  // wanted no more.
  bool await_place(const Stops &stops = {});
  bool take_place();  // false: all are taken
  void give_back();

  // There was no descriptor for one of them: fewer, until more is learned.
  void fewer();

  // An answer came whole: its head after so long, its end after so long.
  void came(uint64_t bytes, uint64_t head_ms, uint64_t whole_ms, uint64_t now_ms);
  // Bytes of an answer that was cut.
  void came_in_part(uint64_t bytes);

  // May one more be asked again? Each costs a token. Tokens come back with bytes, with answers, and with time.
  bool may_repeat(uint64_t now_ms);
  // What was asked again came: its token comes back, so that a store that is well again is soon asked as before.
  void repeated();
  // When an answer to a request of that length is late. None: nobody knows yet.
  std::optional<uint64_t> late_after(uint64_t bytes) const;
  // May one more request go out for bytes that are late? It has memory of its own, so they are few. Costs a token too.
  bool begin_hedge(uint64_t now_ms);
  void end_hedge();

  uint32_t connections() const;  // at once, now
  uint64_t piece() const;        // bytes of a long request
  uint32_t busy() const;
  // One sentence: what was measured, and what was chosen.
  std::string told() const;

 private:
  void begin_step(uint32_t asked_before);
  void regain_connections();
  void learn_connections(uint64_t bytes, uint64_t whole_ms, uint64_t now_ms);
  void learn_piece(uint64_t bytes, uint64_t head_ms, uint64_t whole_ms);
  void refill(double tokens);
  bool take_token(uint64_t now_ms);

  const Limits limits_;
  mutable OwnMutex mutex_;
  Waiters free_;
  uint32_t busy_ = 0, hedges_ = 0;
  uint64_t piece_;
  double head_ms_ = 0;  // a mean in which the last ones count most
  int heard_ = 0;       // heads, up to 8

  // Requests at once: twice as many as long as more bytes come in the same time.
  uint32_t connections_, before_ = 0;  // before_: in the step before
  bool grows_ = true;
  bool crowded_ = false;       // somebody found no place in this step
  uint32_t asked_before_ = 0;  // answers that are not of this step
  uint32_t answers_ = 0;       // of this step
  uint64_t bytes_ = 0, step_began_ = 0;
  double rate_ = 0;             // of the step before: bytes a millisecond
  uint32_t short_answers_ = 0;  // of those that bring some back

  double tokens_;
  uint64_t refilled_ = 0;
  std::array<Times, 9> times_;  // by the length: up to 64 KiB, 128 KiB, ..., 16 MiB
};

// How long until try number `tries` (1: the second), in addition to what the server wants: any time between half of a
// limit and the limit, which doubles. So eight tries outlive a gap of six seconds, and do not come all at once.
uint64_t wait_before(uint32_t tries, uint64_t server_wants_ms, const Limits &limits, uint32_t random);

}  // namespace st::remote
