#include "remote/pull.h"

#include <deque>
#include <map>
#include <utility>

namespace st::remote {
namespace {

constexpr uint32_t most_redirects = 8;
// Each brings a try more, so that a long read outlives many cuts.
constexpr uint64_t worth_a_try = 1u << 20;

struct Piece {
  uint64_t offset, n;  // what is missing of it
  std::byte *to;
  uint32_t tries = 0;  // that failed
  uint64_t came = 0;   // bytes, by all of them
  uint64_t not_before = 0;
  uint64_t keys = 0;  // Site::keys() when it was sent
  bool renewed = false;
};

Error about(const Site &site, Error e) {
  e.message = text("cannot read ", in_quotes(site.shown()), ": ", e.message);
  return e;
}

// Pieces of equal length, so that the last is not a crumb.
std::deque<Piece> pieces_of(const std::vector<Wanted> &ranges, const Limits &limits) {
  std::deque<Piece> out;
  for (const Wanted &range : ranges) {
    const uint64_t count = (range.n + limits.piece - 1) / limits.piece;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t from = range.n / count * i, until = i + 1 == count ? range.n : range.n / count * (i + 1);
      out.push_back({range.offset + from, until - from, range.to + from});
    }
  }
  return out;
}

class Pull {
 public:
  Pull(Transport &transport, const Site &site, const Version &version, const Limits &limits,
       std::atomic<uint32_t> &busy)
      : transport_(transport), site_(site), version_(version), limits_(limits), busy_(busy) {}
  ~Pull() {
    // What they would fill is the caller's, and the call ends.
    transport_.drop_all();
    busy_ -= static_cast<uint32_t>(flying_.size());
  }

  Result<void> run(std::deque<Piece> pieces) {
    waiting_ = std::move(pieces);
    last_came_ = transport_.now_ms();
    came_ = transport_.came();
    while (!waiting_.empty() || !flying_.empty()) {
      const uint64_t now = transport_.now_ms();
      // On a slow line an answer may take longer than the deadline.
      if (const uint64_t came = std::exchange(came_, transport_.came()); came != came_) last_came_ = now;
      if (now - last_came_ > limits_.deadline_ms) {
        Error e = error(Status::io, "nothing came for ", limits_.deadline_ms / 1000, " seconds",
                        last_error_.empty() ? "" : "; last, ", last_error_);
        return Failure(about(site_, std::move(e)));
      }
      send_what_may(now);
      if (auto answer = transport_.next(wait_from(now))) ST_TRY(take(*answer));
    }
    return {};
  }

 private:
  bool may_fly() {
    for (uint32_t now = busy_.load();;) {
      if (now >= limits_.connections && !flying_.empty()) return false;
      if (busy_.compare_exchange_weak(now, now + 1)) return true;
    }
  }

  void send_what_may(uint64_t now) {
    for (size_t left = waiting_.size(); left > 0; --left) {
      Piece piece = waiting_.front();
      if (piece.not_before > now) {  // to the end, behind those that may go
        waiting_.pop_front();
        waiting_.push_back(piece);
        continue;
      }
      if (!may_fly()) return;
      waiting_.pop_front();
      piece.keys = site_.keys();
      const uint64_t id = ++last_id_;
      flying_.emplace(id, piece);
      Request request = site_.request(piece.offset, piece.n, version_, transport_.unix_time());
      request.into = piece.to;
      request.fits = [this, piece](const Head &head) { return fits(head, {piece.offset, piece.n, version_}); };
      transport_.get(id, std::move(request));
    }
  }

  uint64_t wait_from(uint64_t now) const {
    uint64_t until = last_came_ + limits_.deadline_ms + 1;
    for (const Piece &piece : waiting_)
      if (piece.not_before > now) until = std::min(until, piece.not_before);
    // Another call may give back a connection, of which nobody tells.
    if (!waiting_.empty() && !flying_.empty()) until = std::min(until, now + 50);
    return until > now ? until - now : 0;
  }

  Result<void> take(const Answer &answer) {
    const auto found = flying_.find(answer.id);
    Piece piece = found->second;
    flying_.erase(found);
    --busy_;
    Verdict verdict = judge(answer, {piece.offset, piece.n, version_}, site_);
    if (verdict.next == Next::take) {
      last_came_ = transport_.now_ms();
      return {};
    }
    if (verdict.next != Next::again) {
      if (piece.renewed || !site_.renew(piece.keys, answer, transport_.unix_time()))
        return Failure(about(site_, std::move(verdict.error)));
      piece.renewed = true;
      waiting_.push_back(piece);
      return {};
    }
    // What came is good, and is not asked for again.
    const uint64_t came = answer.fitted ? std::min(answer.received, piece.n) : 0;
    if (came > 0) last_came_ = transport_.now_ms();
    piece.offset += came;
    piece.to += came;
    piece.n -= came;
    piece.came += came;
    last_error_ = verdict.error.message;
    if (++piece.tries >= limits_.tries + piece.came / worth_a_try) {
      verdict.error.message += text("; it was tried ", piece.tries, " times");
      return Failure(about(site_, std::move(verdict.error)));
    }
    piece.not_before = transport_.now_ms() + wait_before(piece.tries, verdict.wait_ms, limits_, transport_.random());
    waiting_.push_back(piece);
    return {};
  }

  Transport &transport_;
  const Site &site_;
  const Version &version_;
  const Limits &limits_;
  std::atomic<uint32_t> &busy_;
  std::deque<Piece> waiting_;
  std::map<uint64_t, Piece> flying_;
  uint64_t last_id_ = 0;
  uint64_t last_came_ = 0, came_ = 0;  // when, and how many bytes by then
  std::string last_error_;
};

}  // namespace

uint64_t wait_before(uint32_t tries, uint64_t server_wants_ms, const Limits &limits, uint32_t random) {
  const uint32_t doubled = std::min(tries - 1, 20u);
  const uint64_t most = std::min(limits.first_wait_ms << doubled, limits.longest_wait_ms);
  return server_wants_ms + random % (most + 1);
}

Result<Version> pull_first(Transport &transport, std::shared_ptr<const Site> *site, const Limits &limits,
                           std::byte *into, uint64_t *received) {
  const uint64_t begun = transport.now_ms();
  uint32_t tries = 0, redirects = 0;
  bool renewed = false;
  for (uint64_t id = 1;; ++id) {
    const uint64_t keys = (*site)->keys();
    Request request = (*site)->request(0, limits.first, {}, transport.unix_time());
    request.into = into;
    request.fits = [&](const Head &head) { return fits_first(head, limits.first); };
    transport.get(id, std::move(request));
    const uint64_t spent = transport.now_ms() - begun;
    auto answer = transport.next(spent < limits.deadline_ms ? limits.deadline_ms - spent : 0);
    if (!answer) {
      transport.drop_all();
      return Failure(about(**site, error(Status::io, "no answer came for ", limits.deadline_ms / 1000, " seconds")));
    }
    Version version;
    Verdict verdict = judge_first(*answer, limits.first, **site, &version);
    if (verdict.next == Next::take) {
      if (version.size > INT64_MAX) return Failure(about(**site, error(Status::io, "its size is more than 2^63 - 1")));
      *received = std::min(answer->received, version.size);
      return version;
    }
    if (verdict.next == Next::elsewhere && ++redirects <= most_redirects) {
      ST_TRY(auto next, (*site)->after(*answer));
      *site = std::move(next);
      continue;
    }
    if (verdict.next == Next::elsewhere) verdict.error.message += text("; that is the redirect number ", redirects);
    if (verdict.next != Next::again) {
      if (renewed || !(*site)->renew(keys, *answer, transport.unix_time()))
        return Failure(about(**site, std::move(verdict.error)));
      renewed = true;
      continue;
    }
    const uint64_t wait = wait_before(++tries, verdict.wait_ms, limits, transport.random());
    if (tries >= limits.tries || transport.now_ms() - begun + wait > limits.deadline_ms) {
      verdict.error.message += text("; it was tried ", tries, " times");
      return Failure(about(**site, std::move(verdict.error)));
    }
    transport.next(wait);  // nothing was sent: this waits
  }
}

Result<void> pull(Transport &transport, const Site &site, const Version &version, const std::vector<Wanted> &ranges,
                  const Limits &limits, std::atomic<uint32_t> &busy) {
  return Pull(transport, site, version, limits, busy).run(pieces_of(ranges, limits));
}

}  // namespace st::remote
