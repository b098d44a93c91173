#include "remote/pull.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <utility>

namespace st::remote {
namespace {

constexpr uint32_t most_redirects = 8;
// Each brings a try more, so that a long read outlives many cuts.
constexpr uint64_t worth_a_try = 1u << 20;
constexpr uint64_t aside_id = 0;

struct Piece {
  uint64_t offset, n;  // what is missing of it
  std::byte *to;
  uint32_t tries = 0;  // that failed
  uint64_t came = 0;   // bytes, by all of them
  Summed sum = {0};    // of what came
  uint64_t not_before = 0;
  uint64_t keys = 0;  // Site::keys() when it was sent
  bool renewed = false;
  bool owes = false;  // a token, before it is asked again
};

Error about(const Site &site, Error e) {
  e.message = text("cannot read ", in_quotes(site.shown()), ": ", e.message);
  return e;
}

// The caller gives up before that.
Error with_its_time(Error e, uint64_t said_s) {
  if (said_s > 0) e.message += text("; it wants to be asked again in ", said_s, " s");
  return e;
}

// A transport whose waits end when the caller wants no more.
class Waits {
 public:
  Waits(Transport &transport, const Stops &stops)
      : transport_(transport), stops_(stops), ask_at_(transport.now_ms() + between_questions_ms) {}

  // As Transport::next().
  std::optional<Answer> next(uint64_t wait_ms) {
    if (!stops_) return transport_.next(wait_ms);
    for (const uint64_t until = transport_.now_ms() + wait_ms;;) {
      const uint64_t now = transport_.now_ms();
      if (now >= ask_at_) {
        stopped_ = stopped_ || stops_();
        ask_at_ = now + between_questions_ms;
      }
      if (stopped_) return std::nullopt;
      const uint64_t wake = std::min(until, ask_at_);
      auto answer = transport_.next(wake > now ? wake - now : 0);
      if (answer || wake == until) return answer;
    }
  }
  bool stopped() const { return stopped_; }

 private:
  Transport &transport_;
  const Stops &stops_;
  uint64_t ask_at_;
  bool stopped_ = false;
};

Failure stopped(const Site &site) {
  return Failure(about(site, error(Status::cancelled, "the call was stopped while it waited")));
}

// Pieces of equal length, so that the last is not a crumb.
std::deque<Piece> pieces_of(const std::vector<Wanted> &ranges, uint64_t longest) {
  std::deque<Piece> out;
  for (const Wanted &range : ranges) {
    const uint64_t count = (range.n + longest - 1) / longest;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t from = range.n / count * i, until = i + 1 == count ? range.n : range.n / count * (i + 1);
      out.push_back(
          {.offset = range.offset + from, .n = until - from, .to = range.to + from, .sum = {range.offset + from}});
    }
  }
  return out;
}

constexpr uint64_t never = UINT64_MAX;

struct InFlight {
  Piece piece;
  uint64_t sent = 0;
  bool alone = false;                     // when it was sent
  Summed sum = {0};                       // the piece's, and of what this request brought
  uint64_t late_at = never;               // then it gets a hedge
  uint64_t hedge = 0;                     // the request that asks for the same bytes; 0: none
  uint64_t hedge_of = 0;                  // what it is a hedge of; 0: it is none
  std::unique_ptr<std::byte[]> own = {};  // a hedge's: two never write to one place
};

class Pull {
 public:
  Pull(Transport &transport, const Site &site, const Version &version, const Limits &limits, Pace &pace,
       const Stops &stops, Aside *aside, const WholeCheck *check)
      : transport_(transport),
        waits_(transport, stops),
        site_(site),
        version_(version),
        limits_(limits),
        pace_(pace),
        aside_(aside),
        check_(check) {}
  ~Pull() {
    // What they would fill is the caller's, and the call ends.
    transport_.drop_all();
    while (!flying_.empty()) land(flying_.begin()->first);
  }

  Result<Pulled> run(std::deque<Piece> pieces) {
    waiting_ = std::move(pieces);
    last_came_ = transport_.now_ms();
    came_ = transport_.came();
    if (aside_) {
      aside_until_ = last_came_ + std::min(aside_->most_ms, limits_.deadline_ms);
      transport_.get(aside_id, aside_->request);
    }
    while (!waiting_.empty() || !flying_.empty() || (aside_ && aside_->is_awaited)) {
      const uint64_t now = transport_.now_ms();
      if (aside_ && now >= aside_until_) {
        transport_.drop(aside_id);
        aside_ = nullptr;
        continue;
      }
      // On a slow line an answer may take longer than the deadline.
      if (transport_.came() - came_ >= limits_.drip) {
        came_ = transport_.came();
        last_came_ = now;
      }
      if (now - last_came_ > limits_.deadline_ms) return Failure(about(site_, too_late()));
      send_what_may(now);
      hedge_what_is_late(now);
      if (auto answer = waits_.next(wait_from(now))) ST_TRY(take(*std::move(answer)));
      if (waits_.stopped()) return stopped(site_);
      if (crowded_) return Pulled{{}, std::move(crowded_)};
    }
    std::sort(summed_.begin(), summed_.end(), [](const Summed &a, const Summed &b) { return a.begin < b.begin; });
    return Pulled{std::move(summed_), std::nullopt};
  }

 private:
  Error too_late() const {
    const uint64_t bytes = transport_.came() - came_, seconds = limits_.deadline_ms / 1000;
    std::string what = bytes == 0 ? text("nothing came for ", seconds, " seconds")
                                  : text("no more than ", bytes, " bytes came in ", seconds, " seconds");
    return error(Status::io, what, last_error_.empty() ? "" : "; last, ", last_error_);
  }

  void send_what_may(uint64_t now) {
    for (size_t left = waiting_.size(); left > 0; --left) {
      Piece piece = waiting_.front();
      if (piece.not_before > now || !pays(piece, now)) {  // to the end, behind those that may go
        waiting_.pop_front();
        waiting_.push_back(piece);
        continue;
      }
      if (!own_place_is_free() && !pace_.take_place()) {
        waiting_.front() = piece;
        return;
      }
      waiting_.pop_front();
      InFlight flight{.piece = piece};
      if (const auto late = pace_.late_after(piece.n)) flight.late_at = now + *late;
      send(std::move(flight), now);
    }
  }

  // Where no token is left it waits for one: what breaks all connections at once empties the bucket, and passes.
  bool pays(Piece &piece, uint64_t now) {
    if (piece.owes && pace_.may_repeat(now)) piece.owes = false;
    return !piece.owes;
  }

  // One of the places that it has is the call's as long as it lasts.
  bool own_place_is_free() const { return flying_.size() == hedges_; }

  uint64_t send(InFlight flight, uint64_t now) {
    flight.piece.keys = site_.keys();
    const Piece piece = flight.piece;
    const uint64_t id = ++last_id_;
    flight.sent = now;
    flight.alone = flying_.empty() && !aside_;
    flight.sum = piece.sum;
    const bool is_hedge = flight.hedge_of != 0;
    try {
      flying_.emplace(id, std::move(flight));
    } catch (const std::bad_alloc &) {
      give_back_place(is_hedge);
      throw;
    }
    hedges_ += is_hedge;
    Request request = site_.request(piece.offset, piece.n, version_, transport_.unix_time());
    request.into = piece.to;
    if (check_)
      request.comes = [this, sum = &flying_.at(id).sum](std::span<const std::byte> bytes) {
        check_->add_to(sum, bytes);
      };
    request.fits = [this, piece](const Head &head) { return fits(head, {piece.offset, piece.n, version_}); };
    transport_.get(id, std::move(request));
    return id;
  }

  // Asks for the rest of them once more; the answer that comes first counts.
  void hedge_what_is_late(uint64_t now) {
    for (auto &[id, flight] : flying_) {
      if (now < flight.late_at) continue;
      flight.late_at = never;
      const uint64_t have = transport_.received(id), n = flight.piece.n - have;
      if (n == 0) continue;
      InFlight second{.piece = {flight.piece.offset + have, n, nullptr}, .hedge_of = id};
      second.own = std::make_unique_for_overwrite<std::byte[]>(n);
      second.piece.to = second.own.get();
      second.piece.sum = flight.sum;
      if (!pace_.begin_hedge(now)) continue;
      flight.hedge = send(std::move(second), now);
    }
  }

  uint64_t wait_from(uint64_t now) const {
    uint64_t until = last_came_ + limits_.deadline_ms + 1;
    for (const Piece &piece : waiting_)
      if (piece.not_before > now) until = std::min(until, piece.not_before);
    for (const auto &[id, flight] : flying_) until = std::min(until, flight.late_at);
    if (aside_) until = std::min(until, aside_until_);
    // Another call may give back a connection, or bring a token, of which nobody tells.
    const bool is_owed = std::any_of(waiting_.begin(), waiting_.end(),
                                     [now](const Piece &piece) { return piece.owes && piece.not_before <= now; });
    if (is_owed || (!waiting_.empty() && !flying_.empty())) until = std::min(until, now + 50);
    return until > now ? until - now : 0;
  }

  // It is over; its places and memory go back.
  InFlight land(uint64_t id) {
    const auto found = flying_.find(id);
    InFlight flight = std::move(found->second);
    flying_.erase(found);
    hedges_ -= flight.hedge_of != 0;
    give_back_place(flight.hedge_of != 0);
    return flight;
  }

  // The request is none of `flying_`, or none any more.
  void give_back_place(bool is_hedge) {
    if (is_hedge)
      pace_.end_hedge();
    else if (!own_place_is_free())
      pace_.give_back();
  }

  void drop(uint64_t id) {
    transport_.drop(id);
    land(id);
  }

  Result<void> take(Answer answer) {
    if (answer.id == aside_id) {
      std::exchange(aside_, nullptr)->answer = std::move(answer);
      return {};
    }
    if (answer.cut == Cut::crowded) pace_.fewer();
    InFlight flight = land(answer.id);
    if (answer.cut == Cut::crowded) return do_with_fewer(flight, answer);
    const Piece &piece = flight.piece;
    Verdict verdict = judge(answer, {piece.offset, piece.n, version_}, site_);
    if (verdict.next != Next::take && verdict.next != Next::again)
      return renew(std::move(flight), answer, std::move(verdict.error));
    const uint64_t now = transport_.now_ms();
    if (verdict.next == Next::take) {
      if (check_) summed_.push_back(flight.sum);
      last_came_ = now;
      pace_.came(piece.n, answer.head_ms, now - flight.sent, now);
      if (piece.tries > 0) pace_.repeated();
    }
    if (flight.hedge_of) {
      InFlight &first = flying_.at(flight.hedge_of);
      first.hedge = 0;
      if (verdict.next == Next::again) return {};
      const Piece filled = first.piece;
      drop(flight.hedge_of);
      std::memcpy(filled.to + (piece.offset - filled.offset), flight.own.get(), piece.n);
      return {};
    }
    if (flight.hedge) drop(flight.hedge);
    return verdict.next == Next::take ? Result<void>() : ask_again(flight, answer, std::move(verdict), now);
  }

  // As long as others have a connection, it waits for theirs. One that was sent beside others is sent once more alone:
  // what they had may be free by now.
  Result<void> do_with_fewer(const InFlight &flight, const Answer &answer) {
    if (flight.hedge_of) {
      flying_.at(flight.hedge_of).hedge = 0;
      return {};
    }
    if (flight.hedge) drop(flight.hedge);
    if (flying_.empty() && aside_) {  // which may have the only one, and is asked for once more when all has come
      transport_.drop(aside_id);
      std::exchange(aside_, nullptr)->answer = Answer{.id = aside_id, .cut = Cut::crowded, .why = answer.why};
    } else if (flying_.empty() && flight.alone) {
      crowded_ = about(site_, error(Status::io, answer.why));
    }
    waiting_.push_back(flight.piece);
    return {};
  }

  // Newer keys may do: it is asked once more, if there are any.
  Result<void> renew(InFlight flight, const Answer &answer, Error refusal) {
    Piece &piece = flight.piece;
    const Renewal renewal = piece.renewed ? Renewal::none : site_.renew(piece.keys, answer, transport_.unix_time());
    if (renewal == Renewal::none) return Failure(about(site_, std::move(refusal)));
    if (flight.hedge_of) {
      flying_.at(flight.hedge_of).hedge = 0;
      return {};
    }
    if (flight.hedge) drop(flight.hedge);
    if (renewal == Renewal::later)
      return ask_again(flight, answer, {Next::again, std::move(refusal)}, transport_.now_ms());
    piece.renewed = true;
    waiting_.push_back(piece);
    return {};
  }

  Result<void> ask_again(const InFlight &flight, const Answer &answer, Verdict verdict, uint64_t now) {
    Piece piece = flight.piece;
    // What came is good, and is not asked for again.
    piece.sum = flight.sum;
    const uint64_t came = answer.fitted ? std::min(answer.received, piece.n) : 0;
    if (came >= limits_.drip) last_came_ = now;
    pace_.came_in_part(came);
    piece.offset += came;
    piece.to += came;
    piece.n -= came;
    piece.came += came;
    if (came > 0) piece.renewed = false;
    last_error_ = verdict.error.message;
    if (++piece.tries >= limits_.tries + piece.came / worth_a_try) {
      verdict.error.message += text("; it was tried ", piece.tries, " times");
      return Failure(about(site_, std::move(verdict.error)));
    }
    const uint64_t wait = wait_before(piece.tries, verdict.wait_ms, limits_, transport_.random());
    if (verdict.wait_ms > 0 && now + wait > last_came_ + limits_.deadline_ms)
      return Failure(about(site_, with_its_time(std::move(verdict.error), verdict.said_s)));
    piece.owes = true;
    piece.not_before = now + wait;
    waiting_.push_back(piece);
    return {};
  }

  Transport &transport_;
  Waits waits_;
  const Site &site_;
  const Version &version_;
  const Limits &limits_;
  Pace &pace_;
  Aside *aside_;  // null: there is none, or none any more
  uint64_t aside_until_ = 0;
  const WholeCheck *const check_;  // null: nobody asks for sums
  std::vector<Summed> summed_;
  std::deque<Piece> waiting_;
  std::map<uint64_t, InFlight> flying_;
  size_t hedges_ = 0;  // of flying_
  uint64_t last_id_ = 0;
  uint64_t last_came_ = 0, came_ = 0;  // when more than a drip did, and how many bytes by then
  std::string last_error_;
  std::optional<Error> crowded_;  // none of its requests has a connection
};

}  // namespace

Result<First> pull_first(Transport &transport, std::shared_ptr<const Site> *site, const Limits &limits, Pace &pace,
                         std::byte *into, uint64_t *received, const Stops &stops) {
  // What a request would fill is the caller's, also where memory ends amid this call.
  const struct AtTheEnd {
    Transport &transport;
    ~AtTheEnd() { transport.drop_all(); }
  } at_the_end{transport};
  Waits waits(transport, stops);
  const uint64_t begun = transport.now_ms();
  uint32_t tries = 0, redirects = 0;
  bool renewed = false;
  for (uint64_t id = 1;; ++id) {
    const uint64_t keys = (*site)->keys();
    Request request = (*site)->request(0, limits.first, {}, transport.unix_time());
    request.into = into;
    request.fits = [&](const Head &head) { return fits_first(head, limits.first); };
    const uint64_t sent = transport.now_ms();
    transport.get(id, std::move(request));
    const uint64_t spent = sent - begun;
    auto answer = waits.next(spent < limits.deadline_ms ? limits.deadline_ms - spent : 0);
    if (!answer) {
      if (waits.stopped()) return stopped(**site);
      return Failure(about(**site, error(Status::io, "no answer came for ", limits.deadline_ms / 1000, " seconds")));
    }
    Version version;
    Verdict verdict = judge_first(*answer, limits.first, **site, &version);
    if (verdict.next == Next::take) {
      if (version.size > INT64_MAX) return Failure(about(**site, error(Status::io, "its size is more than 2^63 - 1")));
      const uint64_t now = transport.now_ms();
      pace.came(answer->received, answer->head_ms, now - sent, now);
      *received = std::min(answer->received, version.size);
      return First{std::move(version), std::nullopt};
    }
    if (answer->cut == Cut::crowded) {
      pace.fewer();
      return First{{}, about(**site, std::move(verdict.error))};
    }
    if (verdict.next == Next::elsewhere && ++redirects <= most_redirects) {
      ST_TRY(auto next, (*site)->after(*answer));
      *site = std::move(next);
      continue;
    }
    if (verdict.next == Next::elsewhere) verdict.error.message += text("; that is the redirect number ", redirects);
    if (verdict.next != Next::again) {
      const bool leads_on = verdict.next == Next::elsewhere;
      const auto renewal = leads_on || renewed ? Renewal::none : (*site)->renew(keys, *answer, transport.unix_time());
      if (renewal == Renewal::none) return Failure(about(**site, std::move(verdict.error)));
      renewed = renewal == Renewal::done;
      if (renewed) continue;
    }
    const uint64_t wait = wait_before(++tries, verdict.wait_ms, limits, transport.random());
    if (tries >= limits.tries || transport.now_ms() - begun + wait > limits.deadline_ms) {
      verdict.error.message += text("; it was tried ", tries, tries == 1 ? " time" : " times");
      return Failure(about(**site, with_its_time(std::move(verdict.error), verdict.said_s)));
    }
    waits.next(wait);  // nothing was sent: this waits
    if (waits.stopped()) return stopped(**site);
  }
}

Result<Pulled> pull(Transport &transport, const Site &site, const Version &version, const std::vector<Wanted> &ranges,
                    const Limits &limits, Pace &pace, const Stops &stops, Aside *aside, const WholeCheck *check) {
  return Pull(transport, site, version, limits, pace, stops, aside, check).run(pieces_of(ranges, pace.piece()));
}

}  // namespace st::remote
