#include "remote/object.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "os/per_process.h"

namespace st::remote {
namespace {

// The store may have more to do at the moment than to say a checksum. One that said nothing before seldom says it now.
constexpr uint64_t most_wait_ms = 10000, most_wait_for_the_silent_ms = 2000;

Error stopped() {
  return error(Status::cancelled, "the call was stopped while it waited for a connection");
}

}  // namespace

Idle &Idle::of_process() {
  static auto *const process = new ThisProcess;  // for good: handles may live until the process ends
  static auto *const own = new os::PerProcess<Idle, ThisProcess>(*process);
  return own->mine();
}

void Idle::end_all() {
  Idle &own = of_process();
  std::list<One> all;  // ends when the others may go on
  const std::lock_guard lock(own.mutex);
  all.swap(own.all);
}

std::unique_ptr<Transport> Store::take(const Stops &stops) {
  if (!pace_.await_place(stops)) return nullptr;
  try {
    {
      const std::lock_guard lock(idle_.mutex);
      const auto last = std::find_if(idle_.all.rbegin(), idle_.all.rend(), is_own());
      if (last != idle_.all.rend()) {
        auto transport = std::move(last->transport);
        idle_.all.erase(std::prev(last.base()));
        return transport;
      }
    }
    return new_transport_();
  } catch (...) {
    pace_.give_back();
    throw;
  }
}

// In a child of a fork, amid an open: a farewell by the connections of the parent would end them for it.
Store::~Store() {
  if (is_of_parent()) return;
  std::list<Idle::One> own;  // ends when the others may go on
  const std::lock_guard lock(idle_.mutex);
  for (auto at = idle_.all.begin(); at != idle_.all.end();) {
    const auto one = at++;
    if (one->of == this) own.splice(own.end(), idle_.all, one);
  }
}

void Store::give_back(std::unique_ptr<Transport> transport) {
  if (is_of_parent()) return static_cast<void>(transport.release());
  std::list<Idle::One> more;  // than may stay
  try {
    more.push_back({this, std::move(transport)});
    const std::lock_guard lock(idle_.mutex);
    if (std::count_if(idle_.all.begin(), idle_.all.end(), is_own()) < limits_.idle) {
      idle_.all.splice(idle_.all.end(), more);
      if (idle_.all.size() > limits_.idle_of_process) more.splice(more.end(), idle_.all, idle_.all.begin());
    }
  } catch (const std::bad_alloc &) {
  }
  more.clear();
  end(std::move(transport));
}

void Store::end(std::unique_ptr<Transport> transport) {
  if (is_of_parent()) return static_cast<void>(transport.release());
  transport.reset();
  pace_.give_back();
}

// A time that is still to come tells nothing. Servers that share the work have clocks that differ a little. A server
// may give each answer the time when it was made. So where the index was put there just now, such a time tells nothing.
bool Store::is_younger_than_first(const Version &version) {
  constexpr int64_t clocks_differ_s = 2;
  const auto lock = mutex_.lock();
  const bool is_just_put = version.put_at && version.dated_at && *version.put_at + clocks_differ_s >= *version.dated_at;
  if (!has_first_) {
    has_first_ = true;
    first_said_at_ = version.said_at;
    is_first_just_put_ = is_just_put;
    return false;
  }
  if (!version.put_at || !version.said_at || !first_said_at_ || (is_first_just_put_ && is_just_put)) return false;
  return *version.put_at > *first_said_at_ + clocks_differ_s && *version.put_at <= *version.said_at;
}

Result<std::unique_ptr<Object>> Object::open(std::shared_ptr<Store> store, std::shared_ptr<const Site> site,
                                             const Stops &stops) {
  std::unique_ptr<Object> object(new Object(std::move(store), std::move(site)));
  object->begin_.resize(object->store_->limits().first);
  uint64_t received = 0;
  ST_TRY(object->with_connection(stops, [&](Transport &transport) -> Result<std::optional<Error>> {
    ST_TRY(auto first, pull_first(transport, &object->site_, object->store_->limits(), object->store_->pace(),
                                  object->begin_.data(), &received, stops));
    object->version_ = std::move(first.version);
    return std::move(first.crowded);
  }));
  object->begin_.resize(received);
  object->begin_.shrink_to_fit();
  const Version &version = object->version_;
  const bool is_younger = object->store_->is_younger_than_first(version);
  if (is_younger && object->commit().empty())  // a commit of the Hub never changes
    ST_TRY(object->about(
        fail(Status::file_changed, "it was replaced after the checkpoint was opened; open the checkpoint anew")));
  const bool says_it_later =
      object->site_->says_checksum_with_head() && received < version.size && !version.etag.empty();
  if (version.checksum || says_it_later) {
    object->check_.emplace(version.checksum, version.size, object->begin_);
    ST_TRY(object->about(object->check_->check_begin()));
  }
  return object;
}

// As long as other calls have connections it gives back its descriptors, and waits for theirs. An answer to it alone
// counts if it was alone all the time. The first does not: what has ended meanwhile may be enough.
template <class Ask>
Result<void> Object::with_connection(const Stops &stops, Ask ask) const {
  const auto is_alone = [this] { return store_->pace().busy() == 1; };
  for (int alone = 0;;) {
    Store::Lent transport(*store_, stops);
    if (!transport) return Failure(stopped());
    const bool was_alone = is_alone();
    ST_TRY(std::optional<Error> crowded, ask(*transport));
    if (!crowded) return {};
    if (was_alone && is_alone() && ++alone > 1) return Failure(*std::move(crowded));
    transport.end();
  }
}

Result<void> Object::read(std::span<const Wanted> ranges, const Stops &stops) {
  std::vector<Wanted> missing;
  for (Wanted range : ranges) {
    if (range.offset < begin_.size()) {
      const uint64_t n = std::min<uint64_t>(range.n, begin_.size() - range.offset);
      std::memcpy(range.to, begin_.data() + range.offset, n);
      range = {range.offset + n, range.n - n, range.to + n};
    }
    if (range.n > 0) missing.push_back(range);
  }
  if (missing.empty()) return {};
  ST_TRY(const auto summed, pull_from_store(missing, check_ && is_much(missing) && check_->begins_to_ask(), stops));
  for (const Summed &sum : summed) ST_TRY(about(check_->came(sum)));
  if (check_ && check_->begins_to_ask_at_the_end()) ST_TRY(pull_from_store({}, true, stops));
  return {};
}

bool Object::is_much(std::span<const Wanted> ranges) const {
  uint64_t n = 0;
  for (const Wanted &range : ranges) n += range.n;
  return n >= std::min(store_->limits().piece, (size() - begin_.size()) / 2);
}

bool Object::makes_it_whole(std::span<const Wanted> ranges) const {
  std::vector<WholeCheck::Stretch> stretches;
  for (const Wanted &range : ranges) stretches.emplace_back(range.offset, range.offset + range.n);
  return check_->is_all_with(std::move(stretches));
}

// A store that refuses such a question has no checksum. One that cannot answer now, or takes longer than the read, is
// asked once more when all has come.
Result<std::vector<Summed>> Object::pull_from_store(const std::vector<Wanted> &ranges, bool asks, const Stops &stops) {
  struct Asking {
    const Store &store;
    WholeCheck *check;
    ~Asking() {
      if (check && !store.is_of_parent()) check->not_said();
    }
  } asking{*store_, asks ? &*check_ : nullptr};
  const bool is_the_end = ranges.empty();
  Aside aside;
  std::vector<Summed> came;
  ST_TRY(with_connection(stops, [&](Transport &transport) -> Result<std::optional<Error>> {
    if (asks)
      aside = {site_->head_request(version_, transport.unix_time()),
               is_silent_ ? most_wait_for_the_silent_ms : most_wait_ms, is_the_end || makes_it_whole(ranges)};
    ST_TRY(auto pulled, pull(transport, *site_, version_, ranges, store_->limits(), store_->pace(), stops,
                             asks ? &aside : nullptr, check_ ? &*check_ : nullptr));
    came = std::move(pulled.summed);
    return std::move(pulled.crowded);
  }));
  if (asks && !aside.answer) is_silent_ = true;
  if (!asks || (!is_the_end && (!aside.answer || passes(*aside.answer)))) return came;
  asking.check = nullptr;
  ST_TRY(about(check_->said(aside.answer ? judge_head(*aside.answer, version_) : std::nullopt)));
  return came;
}

Result<void> Object::about(Result<void> done) const {
  if (!done) done.error().message = text("cannot read ", in_quotes(shown()), ": ", done.error().message);
  return done;
}

}  // namespace st::remote
