#include "shards/shard_transaction.h"

#include <algorithm>
#include <cerrno>
#include <new>

#include "newfile/room.h"
#include "os/waited.h"
#include "format/header.h"

namespace st::store {
namespace {

// What a shard's own transaction answers, with its number.
Result<void> of_shard(uint32_t shard, Result<void> answer) {
  if (!answer) answer.error().shard = shard;
  return answer;
}

Error named_no_more(const Shards &shards, const std::string &shard) {
  return error(Status::file_changed, "the index ", in_quotes(shards.path()), " was replaced, and names ",
               in_quotes(shard), " no more; refresh the handle and begin again");
}

Result<void> may_change(const Shards &shards) {
  if (!shards.poisoned()) return {};
  return fail(Status::poisoned, "an earlier commit of ", in_quotes(shards.path()),
              " did not end well; close the handle and open the model anew");
}

}  // namespace

Result<std::unique_ptr<ShardTransaction>> ShardTransaction::begin(Shards &shards, Catalogue state,
                                                                  TransactionOptions options) {
  if (!shards.options().writable)
    return fail(Status::read_only, in_quotes(shards.path()),
                " was opened for reading only; open it for reading and writing to change it");
  ST_TRY(may_change(shards));
  // A view of one shard may be the payload of another, of which that one knows nothing.
  options.is_view = [&shards](const void *bytes, uint64_t n) { return shards.lends(bytes, n); };
  return std::unique_ptr<ShardTransaction>(new ShardTransaction(shards, std::move(state), std::move(options)));
}

// Journals that were used wait for the next transaction, as far as there is room for them.
void ShardTransaction::drop_parts() noexcept {
  for (auto &[shard, transaction] : parts_) {
    transaction.reset();
    shards_.used_journals(shown().shards()[shard]);
  }
  parts_.clear();
}

Result<void> ShardTransaction::may_go_on() const {
  if (failed_)
    return fail(Status::txn_failed, "an earlier call of this transaction failed; abort it and begin another");
  // A part may have failed before it had any work.
  for (const auto &[shard, transaction] : parts_) ST_TRY(of_shard(shard, transaction->staged().may_go_on()));
  return may_change(shards_);
}

std::optional<uint32_t> ShardTransaction::shard_of(std::string_view name) const {
  if (const auto found = moved_.find(std::string(name)); found != moved_.end()) return found->second;
  return shown().index().shard_of(name);
}

Result<uint32_t> ShardTransaction::existing(std::string_view name) const {
  if (const auto shard = shard_of(name)) return *shard;
  return Failure(no_such_tensor(name, shards_.path()));
}

// The last shard that is rewritten anyway, else the last.
uint32_t ShardTransaction::place_for_new() const {
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part)
    if (part->second->publishes()) return part->first;
  return static_cast<uint32_t>(shown().shards().size() - 1);
}

// What is asked before the change was asked of this state. Then there is no other. Its bytes tell an index from
// another: anybody may touch it, or put a copy in its place, and all that the handle shows is looked at again.
Result<ShardCatalogue::Pinned> ShardTransaction::pin(uint32_t shard) {
  auto pinned = shown().pin(shard);
  if (pinned || pinned.error().status != Status::file_changed || approve_) return pinned;
  const auto is_read = [this](const ReadIndex &index) { return index.hash == shown().read().hash; };
  const auto index = shards_.with_room([&] { return read_index(); });
  if (!index || !is_read(*index)) return pinned;
  ST_TRY(shards_.refresh());
  Catalogue now = shards_.catalogue();
  const auto &refreshed = static_cast<const ShardCatalogue &>(*now.several());
  const bool keeps_the_parts = refreshed.shards() == shown().shards();
  if (!keeps_the_parts || !is_read(refreshed.read())) return pinned;
  state_ = std::move(now);
  return shown().pin(shard);
}

Result<Transaction *> ShardTransaction::part(uint32_t shard) {
  if (const auto found = parts_.find(shard); found != parts_.end()) return found->second.get();
  ST_TRY(auto pinned, pin(shard));
  ST_TRY(shards_.pin_in_all_states(*shown().shards()[shard]));
  ST_TRY(auto begun, Transaction::begin(*pinned.member, options_));
  // An earlier transaction that came to nothing may have followed the shard further than the handle shows. What is
  // checked before it changes must be what was checked.
  const Snapshot &now = begun->before();
  if (approve_ ? !now.is_of_same_file(*pinned.snapshot) : &now != pinned.snapshot && !shown().agrees(shard, now)) {
    Error e = error(Status::file_changed, in_quotes(pinned.member->path()),
                    " was replaced since it was read; refresh the handle and begin again");
    e.shard = shard;
    return Failure(std::move(e));
  }
  return parts_.emplace(shard, std::move(begun)).first->second.get();
}

// Has this handle committed since, in another thread? As long as nothing is staged, what it shows now will do as well.
Result<bool> ShardTransaction::follows_this_handle() {
  if (approve_ || changes_anything()) return false;
  const auto shown = shards_.show_own();
  if (!shown && was_stopped(shown.error())) return Failure(shown.error());
  if (!shown) return false;  // the change finds why
  Catalogue now = shards_.catalogue();
  if (now.several() == state_.several()) return false;
  drop_parts();  // what they were asked came to nothing
  state_ = std::move(now);
  has_key_.clear();
  return true;
}

Result<void> ShardTransaction::following(const std::function<Result<void>()> &step) {
  ST_TRY(may_go_on());
  ST_TRY(bool follows, follows_this_handle());
  constexpr int attempts = 100;  // it may commit meanwhile, each time
  for (int n = 1;; ++n) {
    auto done = step();
    if (done || done.error().status != Status::file_changed || n == attempts) return done;
    ST_TRY(follows, follows_this_handle());
    if (!follows) return done;
  }
}

Result<ShardTransaction::At> ShardTransaction::at(const std::function<Result<uint32_t>()> &find) {
  At found = {};
  ST_TRY(following([&]() -> Result<void> {
    ST_TRY(found.shard, find());
    ST_TRY(found.transaction, part(found.shard));
    return {};
  }));
  return found;
}

Result<ShardTransaction::At> ShardTransaction::at(std::string_view name) {
  return at([&] { return existing(name); });
}

Result<void> ShardTransaction::update(std::string_view name, const NewBytes &value) {
  ST_TRY(const auto in, at(name));
  return of_shard(in.shard, in.transaction->update(name, value));
}

Result<void> ShardTransaction::update_slice(std::string_view name, const TensorPart &part_of, const NewBytes &value) {
  ST_TRY(const auto in, at(name));
  return of_shard(in.shard, in.transaction->update_slice(name, part_of, value));
}

Result<void> ShardTransaction::update_ranges(std::string_view name, std::span<const ByteRange> ranges,
                                             std::span<const std::byte> bytes) {
  ST_TRY(const auto in, at(name));
  return of_shard(in.shard, in.transaction->update_ranges(name, ranges, bytes));
}

Result<bool> ShardTransaction::publishes(std::string_view name) {
  ST_TRY(const auto in, at(name));
  return in.transaction->publishes();
}

// With shards that get new names all of them may.
Result<bool> ShardTransaction::may_remake(std::string_view name) {
  ST_TRY(const auto in, at(name));
  if (options_.new_names) return false;
  return in.transaction->may_remake(name);
}

// It is made of the state that is shown. So before it reads, it asks whether that is what is locked.
Result<void> ShardTransaction::remake(std::string_view name, const Remake &make, uint64_t in_journal) {
  ST_TRY(may_go_on());
  ST_TRY(auto shard, existing(name));
  ST_TRY(auto in, part(shard));
  const auto make_of_shown = [this, shard, in, make](const os::File &file, uint64_t at,
                                                     TakesRemade &to) -> Result<void> {
    ST_TRY(shown().check_same_index());
    ST_TRY(check_shown(shard, *in));
    return of_shard(shard, make(file, at, to));
  };
  return of_shard(shard, in->remake(name, make_of_shown, in_journal));
}

// The shard has staged it. If memory runs out now, the index would say something else.
void ShardTransaction::note_moved(std::string_view name, std::optional<uint32_t> to) {
  failed_ = true;
  moved_[std::string(name)] = to;
  failed_ = false;
}

Result<void> ShardTransaction::put(std::string_view name, const NewBytes &value) {
  const auto place = [&]() -> Result<uint32_t> {
    if (shown().shards().empty())
      return fail(Status::unsupported, "the index ", in_quotes(shards_.path()),
                  " names no shard that a tensor could be put into; put it into a single file, and shard that into an "
                  "empty folder");
    return shard_of(name).value_or(place_for_new());
  };
  ST_TRY(const auto in, at(place));
  ST_TRY(of_shard(in.shard, in.transaction->put(name, value)));
  note_moved(name, in.shard);
  return {};
}

Result<void> ShardTransaction::remove(std::string_view name) {
  ST_TRY(const auto in, at(name));
  ST_TRY(of_shard(in.shard, in.transaction->remove(name)));
  note_moved(name, std::nullopt);
  return {};
}

Result<void> ShardTransaction::rename(std::string_view from, std::string_view to) {
  ST_TRY(check_new_name(to));
  const auto checked = [&]() -> Result<uint32_t> {
    ST_TRY(auto shard, existing(from));
    if (from != to && shard_of(to)) return Failure(named_already(to, shards_.path()));
    return shard;
  };
  ST_TRY(const auto in, at(checked));
  ST_TRY(of_shard(in.shard, in.transaction->rename(from, to)));
  note_moved(from, std::nullopt);
  note_moved(to, in.shard);
  return {};
}

Result<void> ShardTransaction::set_metadata(std::string_view key, std::optional<std::string_view> value) {
  return following([&] { return change_metadata(key, value); });
}

Result<void> ShardTransaction::change_metadata(std::string_view key, std::optional<std::string_view> value) {
  if (is_total(key)) return fail(Status::invalid_argument, key, " is kept right by every change; it cannot be set");
  if (value) ST_TRY(check_utf8(key, *value));
  // Memory may run out up to the change in metadata_. What is noted before that is true without it.
  bool &there = has_key_.try_emplace(std::string(key), shown().metadata_find(key).has_value()).first->second;
  if (!value && !there) return Failure(no_such_key(key, shards_.path()));
  metadata_.emplace_back(key, value ? std::optional<std::string>(*value) : std::nullopt);
  there = value.has_value();
  return {};
}

Result<void> ShardTransaction::renew(const std::string &shard) {
  const auto find = [&]() -> Result<uint32_t> {
    const auto &named = shown().index().shards();
    const auto found = std::lower_bound(named.begin(), named.end(), shard);
    if (found == named.end() || *found != shard) return Failure(named_no_more(shards_, shard));
    return static_cast<uint32_t>(found - named.begin());
  };
  ST_TRY(at(find));
  return {};
}

std::optional<uint32_t> ShardTransaction::first_shard() const {
  std::vector<uint64_t> held = shown().index().counts();
  for (const auto &[name, now] : moved_) {
    if (const auto before = shown().index().shard_of(name)) --held[*before];
    if (now) ++held[*now];
  }
  const auto first = std::find_if(held.begin(), held.end(), [](uint64_t n) { return n > 0; });
  return first == held.end() ? std::nullopt : std::optional(static_cast<uint32_t>(first - held.begin()));
}

Result<void> ShardTransaction::replace_metadata(MetadataPairs pairs) {
  const Wanted wanted(pairs.begin(), pairs.end());
  return following([&] { return replace_by(wanted); });
}

Result<void> ShardTransaction::replace_by(const Wanted &wanted) {
  std::map<std::string_view, std::string_view> found;
  const auto first = first_shard();
  if (first) {
    ST_TRY(auto pinned, pin(*first));
    const Index &header = pinned.snapshot->header.index;
    for (size_t i = 0; i < header.metadata_size(); ++i) {
      const auto pair = header.metadata_at(i);
      found.insert(pair);
      if (wanted.contains(pair.first)) continue;
      ST_TRY(auto in, part(*first));
      ST_TRY(of_shard(*first, in->set_metadata(pair.first, std::nullopt)));
    }
  }
  for (size_t i = 0; i < shown().metadata_size(); ++i) {
    const auto [key, text] = shown().metadata_at(i);
    if (is_total(key)) continue;
    found.insert_or_assign(key, text);
    if (!wanted.contains(key)) ST_TRY(change_metadata(key, std::nullopt));
  }
  for (const auto &[key, text] : wanted) {
    const auto now = found.find(key);
    if (now != found.end() && now->second == text) continue;
    if (first && is_total(key)) {  // the index has totals of its own: what a file has under that key, a header keeps
      ST_TRY(auto in, part(*first));
      ST_TRY(of_shard(*first, in->set_metadata(key, text)));
    } else {
      ST_TRY(change_metadata(key, text));
    }
  }
  return {};
}

// A shard that the index names no more is an old one, which others may have given a new name since: what is changed
// there is seen by nobody. This kernel may still lead the name to an index that another host has replaced.
Result<void> ShardTransaction::check_named() const {
  const Parts changed = parts_with_work();
  const auto is_shared = [](const auto &part) { return part.second->staged().has_other_hosts(); };
  if (std::any_of(changed.begin(), changed.end(), is_shared)) shards_.location().renew();
  struct stat now;
  const int r = shards_.location().stat(&now);
  if (r == -ENOENT || (r == 0 && shown().is_of(now))) return {};
  ST_TRY(auto read, shards_.with_room([this] { return read_index(); }));
  const auto &named = read.index().shards();
  for (const auto &[shard, transaction] : changed) {
    if (std::binary_search(named.begin(), named.end(), shown().shards()[shard]->name())) continue;
    Error e = named_no_more(shards_, shown().shards()[shard]->name());
    e.shard = shard;
    return Failure(std::move(e));
  }
  return {};
}

// An old shard may have gone since, before anything could be locked or planned.
template <class T>
Result<T> ShardTransaction::or_why_gone(Result<T> done) const {
  if (!done && done.error().status == Status::no_file) ST_TRY(check_named());
  return done;
}

Result<void> ShardTransaction::approve() const {
  ST_TRY(may_change(shards_));  // another commit may have failed while this one waited for its locks
  ST_TRY(shards_.location().check_led_to());
  ST_TRY(check_named());
  if (!approve_) return {};
  ST_TRY(shown().check_same_index());
  for (const auto &[shard, transaction] : parts_) ST_TRY(check_shown(shard, *transaction));
  ST_TRY(check_others());
  return approve_({});
}

// What is asked before a change is asked of the whole state. So a shard that does not change must be the one that is
// shown, too. Nobody has locked it: but what changes it after this look counts as a change after this commit.
Result<void> ShardTransaction::check_others() const {
  const Parts changed = parts_with_work();
  for (uint32_t shard = 0; shard < shown().shards().size(); ++shard) {
    const auto is_it = [shard](const auto &part) { return part.first == shard; };
    const Snapshot *const pinned = shown().pinned(shard);
    if (!pinned || std::any_of(changed.begin(), changed.end(), is_it)) continue;
    const os::Location &at = shown().shards()[shard]->opened()->location();
    ST_TRY(of_shard(shard, shards_.with_room([&]() -> Result<void> {
      ST_TRY(auto reach, pinned->here());
      ST_TRY(auto replaced, at.was_replaced(reach.file));
      if (!replaced) return {};
      return fail(Status::file_changed, in_quotes(at.path()),
                  " was replaced since it was read; refresh the handle and begin again");
    })));
  }
  return {};
}

// Is the shard that is locked the one that is shown?
Result<void> ShardTransaction::check_shown(uint32_t shard, const Transaction &part) const {
  const Snapshot *const pinned = shown().pinned(shard);
  if (pinned && part.before().is_of_same_file(*pinned)) return {};
  Error e = error(Status::file_changed, in_quotes(part.data_file().path()), " was replaced meanwhile; try again");
  e.shard = shard;
  return Failure(std::move(e));
}

ShardTransaction::Parts ShardTransaction::parts_with_work() const {
  Parts parts;
  for (const auto &[shard, transaction] : parts_)
    if (transaction->has_work()) parts.emplace_back(shard, transaction.get());
  return parts;
}

bool ShardTransaction::changes_index() const {
  return !moved_.empty() || !metadata_.empty();
}

bool ShardTransaction::changes_anything() const {
  return changes_index() ||
         std::any_of(parts_.begin(), parts_.end(), [](const auto &p) { return p.second->has_work(); });
}

bool ShardTransaction::renames_shards() const {
  const auto publishes = [](const auto &part) { return part.second->publishes(); };
  return options_.new_names && (changes_index() || std::any_of(parts_.begin(), parts_.end(), publishes));
}

Result<CommitPlan> ShardTransaction::plan_nothing() const {
  ST_TRY(auto index, open_regular(shards_.location(), O_RDONLY, nullptr, {options_.lock_timeout_ms}));
  CommitPlan nothing;
  nothing.space_free = write::room_of(index).free;
  nothing.how = "nothing is staged";
  return nothing;
}

Result<CommitPlan> ShardTransaction::plan() {
  ST_TRY(may_go_on());
  const auto parts = parts_with_work();
  return shards_.with_room([&]() -> Result<CommitPlan> {
    if (parts.empty() && !changes_index()) return plan_nothing();
    if (parts.size() > 1 || changes_index() || renames_shards())
      return or_why_gone(ShardCommit(shards_, shown(), work_of(parts)).plan());
    auto plan = or_why_gone(parts.front().second->plan());
    if (!plan) plan.error().shard = parts.front().first;
    return plan;
  });
}

Result<void> ShardTransaction::commit() {
  ST_TRY(may_go_on());
  const auto parts = parts_with_work();
  if (parts.empty() && !changes_index()) {
    ST_TRY(approve());
    return shards_.with_room(at_last_);
  }
  if (parts.size() > 1 || changes_index() || renames_shards()) {
    ST_TRY(commit_together(parts));
    // What shows it may have to recover what others left, which takes the index for itself.
    show_result();
    return {};
  }
  parts.front().second->before_change([this](auto) { return approve(); });
  parts.front().second->at_last(at_last_);
  auto done = of_shard(parts.front().first, or_why_gone(parts.front().second->commit()));
  if (!done && done.error().status == Status::busy) return done;
  failed_ = true;
  show_result();
  return done;
}

ShardCommit::Work ShardTransaction::work_of(const Parts &parts) {
  ShardCommit::Work work{{},
                         changes_index(),
                         metadata_,
                         options_.lock_timeout_ms,
                         options_.progress,
                         failed_,
                         renames_shards() ? std::optional(options_.shard_grace_s) : std::nullopt};
  for (const auto &[shard, transaction] : parts)
    work.transactions.emplace_back(shown().shards()[shard]->name(), transaction);
  return work;
}

Result<void> ShardTransaction::commit_together(const Parts &parts) {
  return or_why_gone(ShardCommit(shards_, shown(), work_of(parts)).run([this] { return approve(); }, at_last_));
}

// The handle shows what was committed. Where the files did not change there is
// nothing to do; where they cannot be read now, the change stands all the same.
void ShardTransaction::show_result() noexcept {
  const Log &log = shards_.options().log;
  try {
    const bool of_index = changes_index() || renames_shards();
    bool changed = of_index;
    for (const auto &[shard, transaction] : parts_)
      changed |= transaction->data_file().hold().get() != shown().pinned(shard);
    if (!changed) return;
    const os::WaitedByCall call(os::WaitedByCall::anew);  // the commit is over, and may have waited as long as it might
    auto shown = shards_.show_anew();
    if (shown || (!of_index && shards_.show_shards())) return;
    ++shards_.to_show_;
    if (log)
      log(LogLevel::warning, text("the change is committed, but the handle cannot show it yet, and tries again when it "
                                  "is asked: ",
                                  shown.error().message));
  } catch (const std::bad_alloc &) {
    ++shards_.to_show_;
    warn_that_not_shown(log);
  }
}

}  // namespace st::store
