#include "shards/shards.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/hash.h"
#include "base/huge_memory.h"
#include "base/interrupt.h"
#include "format/header.h"
#include "journal/roll_forward.h"
#include "journal/super_recover.h"
#include "os/named_lock.h"
#include "os/random.h"
#include "os/rename_over.h"
#include "os/waited.h"
#include "shards/shard_transaction.h"

namespace st::store {

// Not the inode alone: a file that comes later may have its number.
uint64_t Shards::own_state_of(const struct stat &s) {
  const uint64_t parts[] = {static_cast<uint64_t>(s.st_dev), s.st_ino, static_cast<uint64_t>(s.st_size),
                            static_cast<uint64_t>(s.st_mtim.tv_sec), static_cast<uint64_t>(s.st_mtim.tv_nsec)};
  return hash64(parts, sizeof parts);
}

// Nor the mtime, which anybody may set, as tar does; the ctime nobody can.
uint64_t Shards::state_of(const struct stat &s) {
  const uint64_t parts[] = {own_state_of(s), static_cast<uint64_t>(s.st_ctim.tv_sec),
                            static_cast<uint64_t>(s.st_ctim.tv_nsec)};
  return hash64(parts, sizeof parts);
}

Result<ReadIndex> Shards::read_index(const os::Location &index_at, const os::LockWait &wait, const ReadIndex *known) {
  return os::while_stale([&]() -> Result<ReadIndex> {
    ST_TRY(auto file, open_regular(index_at, O_RDONLY, nullptr, wait));
    return read_index(file, known);
  });
}

Result<ReadIndex> Shards::read_index(const os::File &file, const ReadIndex *known) {
  ST_TRY(auto s, file.stat());
  const auto size = static_cast<uint64_t>(s.st_size);
  if (size > max_index_bytes)
    return fail(Status::shard_index, "the index of shards ", in_quotes(file.path()), " has ", size,
                " bytes, more than the ", max_index_bytes, " that are read");
  if (known && known->identity.st_size == s.st_size) {
    ST_TRY(const auto now, write::form_of_index(file));
    if (now.size == size && now.hash == known->hash) return ReadIndex{known->parsed, s, known->hash};
  }
  const HugeBuffer bytes(size + header_padding);
  ST_TRY(file.read(bytes.get(), size, 0));
  std::memset(bytes.get() + size, 0, header_padding);
  const uint64_t hash = hash64(bytes.get(), size);
  auto index = ShardIndex::parse(bytes.get(), size, os::hash_seed(file.env()));
  if (!index) {
    index.error().message += text(" (", in_quotes(file.path()), ")");
    return Failure(std::move(index.error()));
  }
  return ReadIndex{std::make_shared<const ShardIndex>(std::move(*index)), s, hash};
}

Result<std::unique_ptr<Shards>> Shards::open(os::Env &env, const std::string &path, OpenOptions options) {
  std::unique_ptr<Shards> shards(new Shards(env, std::move(options)));
  const auto [folder, base] = os::split_path(path);
  ST_TRY(shards->folder_, os::Directory::find(env, folder));
  shards->path_ = shards->folder_->path_of(base);
  ST_TRY(auto given, os::absolute(env, path));
  ST_TRY(shards->at_, os::Location::find_in(shards->folder_, base, given));
  ST_TRY(shards->show_anew());
  return shards;
}

Result<std::unique_ptr<Shards>> Shards::open_sources(os::Env &env, os::SourceEnv &index, const std::string &path,
                                                     os::OpenByName sources, OpenOptions options) {
  std::unique_ptr<Shards> shards(new Shards(env, std::move(options)));
  shards->path_ = path;
  shards->sources_ = std::move(sources);
  shards->most_opens_ = index.source().most_reads();
  ST_TRY(auto file, os::File::open(index, AT_FDCWD, path, O_RDONLY, 0, path));
  ST_TRY(auto read, read_index(file));
  Kept &kept = shards->kept_.mine();
  const std::lock_guard lock(kept.mutex);
  shards->show_after(shards->begin_look(), shards->make_catalogue(std::move(read), kept));
  return shards;
}

Result<void> Shards::show_anew() {
  ST_TRY(recover_left(options().lock_timeout_ms));
  return show(0, options().lock_timeout_ms, Missing::known);
}

Result<void> Shards::show_own() {
  {
    Kept &kept = kept_.mine();
    const std::lock_guard lock(kept.mutex);
    if (kept.newer == shards_newer_) return {};
  }
  return show(0, options().lock_timeout_ms, Missing::known);
}

Result<void> Shards::show(uint64_t refreshed_for, int32_t timeout_ms, Missing missing) {
  constexpr int most_refreshes = 8;  // others may change more while each goes on
  int refreshes = 0;
  uint64_t refreshed_with = 0;
  for (const uint64_t begun = begin_look().number;;) {
    const Look look = begin_look();
    const uint64_t newer = shards_newer_.load();
    const ReadIndex *const known = look.shown ? &look.shown->read() : nullptr;
    ST_TRY(auto read, with_room([&] { return read_index(at_, {timeout_ms}, known); }));
    const bool is_looked_for = missing == Missing::looked_for_anew || !known || read.parsed != known->parsed;
    const auto look_for_all = [&] {
      return is_looked_for ? check_all_there(read.index(), timeout_ms) : Result<void>();
    };
    if (auto there = with_room(look_for_all); !there) {
      struct stat now;
      ask_anew(read.identity);
      const bool is_replaced = at_.stat(&now) == 0 && own_state_of(now) != own_state_of(read.identity);
      if (is_replaced) continue;  // by a commit under new names, and what it has replaced is gone
      return there;
    }
    // Until it is shown no transaction pins its shards: it would miss this state.
    Kept &kept = kept_.mine();
    std::unique_lock lock(kept.mutex);
    const bool overtaken = hold().get() != look.shown.get();
    if (overtaken && shows_since(begun)) return {};
    if (overtaken || shards_newer_.load() != newer) continue;
    // A commit of ours is going to show this index, with the shards that belong to it.
    const WithheldIndex *const withheld = kept.withheld_index;
    if (withheld && os::same_inode(withheld->identity, read.identity)) read = withheld->locked;
    // Others may link it or change its mode all the time, and a server may tell another ctime at each look. So once the
    // shards were refreshed for it, its bytes tell.
    const uint64_t parts[] = {own_state_of(read.identity), read.hash}, index = hash64(parts, sizeof parts);
    const bool is_known = !look.shown || look.shown->is_of(read.identity) || is_own(read.identity) ||
                          state_of(read.identity) == refreshed_for || index == refreshed_with;
    std::unique_ptr<ShardCatalogue> shown;
    if (is_known) {
      shown = make_catalogue(std::move(read), kept);
      // Else another thread has committed or refreshed meanwhile, and shards may be newer than this index.
      if (shards_newer_.load() != newer) continue;
    }
    // What others have changed is shown together. Asked after the catalogue was made: what is not met here is not in
    // it.
    if (!is_known || is_behind(kept, look)) {
      lock.unlock();
      if (++refreshes > most_refreshes) return Failure(replaced_all_the_time());
      refreshed_with = index;
      ST_TRY(refresh_shards(timeout_ms));
      continue;
    }
    if (!show_after(look, std::move(shown))) continue;
    kept.newer = newer;
    return {};
  }
}

bool Shards::show_shards() {
  Kept &kept = kept_.mine();
  for (;;) {
    Look look = begin_look();
    look.number = look.shown->look;  // the index is not looked at: whoever began to look before this finds more
    const std::lock_guard lock(kept.mutex);
    if (hold().get() != look.shown.get()) continue;
    if (kept.withheld_index || kept.newer != shards_newer_ || is_behind(kept, look)) return false;
    if (show_after(look, make_catalogue(look.shown->read(), kept))) return true;
  }
}

void Shards::show_late() noexcept try {
  const InterruptScope goes_on([]() -> Result<void> { return {}; });  // it is no part of the call that looks
  const uint64_t all = to_show_;
  if (!show(0, 0, Missing::known)) return;  // its callers answer at once
  for (uint64_t some = shown_late_; some < all && !shown_late_.compare_exchange_weak(some, all);) {
  }
} catch (const std::bad_alloc &) {
}

// May one of its shards show what others have changed, or recovery has, and another not yet? With the mutex.
bool Shards::is_behind(const Kept &kept, const Look &look) const {
  if (!look.shown) return false;
  if (kept.refreshed != unseen_) return true;
  const auto &shards = look.shown->shards();
  return std::any_of(shards.begin(), shards.end(), [](const std::shared_ptr<Member> &member) {
    const DataFile *const shard = member->opened();
    return shard && shard->has_followed();
  });
}

// A catalogue that is made meanwhile has the shard if the one before it has.
Result<void> Shards::pin_in_all_states(const Member &shard) {
  for (Held shown = hold();;) {
    Result<void> done;
    each_catalogue([&](const ShardCatalogue &c) {
      if (done) done = c.pin_opened(shard);
    });
    ST_TRY(done);
    Held now = hold();
    if (now.get() == shown.get()) break;
    shown = std::move(now);
  }
  if (!shard.is_shown()) ++unseen_;  // the others are refreshed before it is shown
  return {};
}

void Shards::keep_open(const std::set<std::string> &names) const {
  each_catalogue([&](const ShardCatalogue &c) {
    for (uint32_t i = 0; i < c.shards().size(); ++i)
      if (const Snapshot *state = c.pinned(i); state && names.contains(c.shards()[i]->name()))
        c.shards()[i]->opened()->keep_open(*state);
  });
}

// One look at the folder, not one at each shard. But on btrfs a list may lack a name while another file takes it.
Result<void> Shards::check_all_there(const ShardIndex &index, int32_t timeout_ms) const {
  const auto names = folder_->list();
  if (!names && names.error().os_errno != EACCES) return Failure(names.error());
  std::set<std::string_view> there;  // of a folder that may be searched, and not be listed, each is asked for
  if (names) there.insert(names->begin(), names->end());
  for (uint32_t i = 0; i < index.shards().size(); ++i) {
    const std::string &shard = index.shards()[i];
    if (there.contains(shard)) continue;
    const auto looked = os::look_up(os::Location(folder_, shard), {timeout_ms});
    const int err = looked ? 0 : looked.error().os_errno;
    if (err == ENOENT || err == ENAMETOOLONG) return Failure(missing(path_, i, folder_->path_of(shard)));
    if (!looked && err == 0) return Failure(looked.error());  // it is waited for
  }
  return {};
}

Error Shards::missing(const std::string &path, uint32_t number, const std::string &shard) {
  Error e = error(Status::shard_missing, "shard ", in_quotes(shard), ", which ", in_quotes(path),
                  " names, is not there; fetch it, or the checkpoint, again");
  e.shard = number;
  return e;
}

// Shards that the index names no more stay as long as an older catalogue has them.
std::unique_ptr<ShardCatalogue> Shards::make_catalogue(ReadIndex read, Kept &kept) {
  const Held shown = hold();
  if (!kept.members && !made_in_.this_process()) {  // what its parent shows
    kept.index = shown->read().parsed;
    kept.members = shown->shared_members();
  }
  const auto index = read.parsed;
  const auto members = index == kept.index ? kept.members : members_of(*index, kept.members.get());
  auto catalogue = std::make_unique<ShardCatalogue>(*this, std::move(read), members);
  kept.index = index;
  kept.members = members;
  std::erase_if(kept.with_journals, [&](const std::shared_ptr<Member> &shard) {
    const bool gone = ShardCatalogue::find(*members, shard->name()) != shard;
    if (gone) shard->opened()->close_idle_journals();
    return gone;
  });
  catalogue->pin_shown(kept.settled_at, shown.get());
  return catalogue;
}

// With those of `known` that it names.
std::shared_ptr<const ShardCatalogue::Members> Shards::members_of(const ShardIndex &index,
                                                                  const ShardCatalogue::Members *known) const {
  auto members = std::make_shared<ShardCatalogue::Members>();
  for (const std::string &name : index.shards()) {
    auto member = known ? ShardCatalogue::find(*known, name) : nullptr;
    if (!member && sources_)
      member = std::make_shared<Member>(sources_, name, os::split_path(path_).first + "/" + name);
    else if (!member)
      member = std::make_shared<Member>(folder_, name);
    members->push_back(std::move(member));
  }
  return members;
}

void Shards::close() noexcept {
  if (Kept *const kept = kept_.find()) {
    for (const auto &shard : kept->with_journals) shard->opened()->close_idle_journals();
    kept->with_journals.clear();
    kept->index.reset();
    kept->members.reset();
  }
  MultiFileOf::close();
}

Result<void> Shards::recover_left(int32_t timeout_ms) const {
  const Control control = control_of({});
  const os::LockWait wait{timeout_ms, &control, nullptr};
  ST_TRY(with_room(
      [&] { return write::recover_super_if_needed(at_, wait, options().writable, write::told_to(options().log)); }));
  return {};
}

// One that only patches several shards is decided, too, but leaves them their names, and shares the index. So none that
// replaces shards is alive once that is locked. One that died before that is finished.
Result<void> Shards::await_half_done(int32_t timeout_ms) const {
  if (kept_.mine().exclusive > 0) return {};
  const Control control = control_of({});
  const os::LockWait wait{timeout_ms, &control, nullptr};
  const auto ask = [&](auto what) {
    return with_room([&] { return os::while_stale([&] { return what(at_, wait); }); });
  };
  ST_TRY(const auto decided, ask(write::is_decided));
  if (!decided) return {};
  ST_TRY(auto locked, with_room([&] { return keep_writers_out(at_, wait); }));
  ST_TRY(const auto is_left, ask(write::is_left_half_done));
  locked.reset();
  return is_left ? with_room([&] { return recover(wait); }) : Result<void>();
}

Result<void> Shards::recover(const os::LockWait &wait) const {
  ST_TRY(write::recover_super_or_fail(at_, wait, write::told_to(options().log)));
  return {};
}

Result<void> Shards::rename_index(const os::File &replaced, write::TemporaryFile &fresh) {
  ST_TRY(auto before, replaced.stat());
  ST_TRY(auto after, fresh.file().stat());
  const bool was_own = is_own(before);
  if (!was_own && !hold()->is_of(before)) ++unseen_;  // nobody will see that one any more
  own_before_ = was_own ? own_state_of(before) : 0;
  own_index_ = own_state_of(after);
  return fresh.rename();
}

Result<void> Shards::check_unchanged(const ReadIndex &read, std::atomic<uint64_t> &same_as, Own ours) const {
  if (sources_) return {};
  const auto may_be = [ours](const std::atomic<uint64_t> &index) -> uint64_t {
    return ours == Own::may_follow ? index.load() : 0;
  };
  uint64_t own = may_be(own_index_), before = may_be(own_before_);
  for (;;) {
    struct stat by_path;
    const int r = at_.stat(&by_path);
    if (r < 0 && r != -ENOENT) return Failure(os_error(-r, "look at", at_.path()));
    const uint64_t now = r == 0 ? state_of(by_path) : 0, now_own = r == 0 ? own_state_of(by_path) : 0;
    if (r == 0 && (now == state_of(read.identity) || now == same_as || now_own == own || now_own == before)) return {};
    // Commits of ours may have come in between.
    const uint64_t own_then = std::exchange(own, may_be(own_index_)),
                   before_then = std::exchange(before, may_be(own_before_));
    if (own == own_then && before == before_then) break;
  }
  // MooseFS tells other hosts a second late when a file was written; and anybody may touch one. Then the bytes decide.
  const auto again = with_room([&] { return read_index(at_, {options().lock_timeout_ms}, &read); });
  if (again && os::same_inode(again->identity, read.identity) && again->hash == read.hash) {
    same_as = state_of(again->identity);
    return {};
  }
  if (!again && (again.error().status == Status::io || again.error().status == Status::nomem))
    return Failure(again.error());
  return fail(Status::file_changed, "the index of shards ", in_quotes(path_),
              " was replaced since it was read; refresh the handle, or open it anew");
}

void Shards::ask_anew(const struct stat &index) const {
  if (!sources_ && at_.has_other_hosts(index)) at_.renew();
}

namespace {

// Nobody changes what nobody can lock. Where the index cannot be opened, the next to look at it will tell.
bool has_no_writers(const Error &e) {
  constexpr Status those[] = {Status::lock_unsupported, Status::permission, Status::no_file, Status::file_changed,
                              Status::not_regular};
  return std::ranges::find(those, e.status) != std::end(those);
}

}  // namespace

Result<std::unique_ptr<os::LockedFile>> Shards::keep_writers_out(const os::Location &index, const os::LockWait &wait) {
  constexpr os::LockRange whole = os::whole_file(false);
  auto locked = os::lock_named(index, {whole}, wait, os::holder_of(whole), O_RDONLY);
  if (!locked && has_no_writers(locked.error())) return nullptr;
  return locked;
}

Result<void> Shards::await_writers(const os::Location &index, const os::LockWait &wait) {
  ST_TRY(keep_writers_out(index, wait));
  return {};
}

void Shards::used_journals(const std::shared_ptr<Member> &shard) noexcept try {
  constexpr size_t each = 8;  // descriptors: the folder's, and one a journal, of which writers at once leave a few
  const size_t most = std::max<size_t>(os::most_descriptors(env()) / each, 1);
  Kept &kept = kept_.mine();
  std::lock_guard lock(kept.mutex);
  std::erase(kept.with_journals, shard);
  if (!kept.members || ShardCatalogue::find(*kept.members, shard->name()) != shard)  // the index names it no more
    return shard->opened()->close_idle_journals();
  kept.with_journals.push_back(shard);
  if (kept.with_journals.size() <= most) return;
  kept.with_journals.front()->opened()->close_idle_journals();
  kept.with_journals.erase(kept.with_journals.begin());
} catch (const std::bad_alloc &) {
  shard->opened()->close_idle_journals();
}

// Views that may be written stand for what is shown. So there they are of the same files.
Result<std::unique_ptr<Model>> Shards::reopen(const Catalogue &state, Again as) const {
  if (sources_) return cannot_reopen(in_quotes(path_));
  ST_TRY(auto again, open(env(), path_, options_of(options(), as)));
  if (as != Again::copy_on_write) return again;
  const auto &shown = static_cast<const ShardCatalogue &>(*state.several());
  const Catalogue now = again->catalogue();
  const auto &anew = static_cast<const ShardCatalogue &>(*now.several());
  if (anew.read().hash != shown.read().hash)
    return fail(Status::file_changed, "the index of shards ", in_quotes(path_),
                " was replaced since it was read; refresh the handle, or open it anew");
  std::set<uint32_t> opened;
  for (uint32_t i = 0; i < shown.members(); ++i)
    if (shown.pinned(i)) opened.insert(i);
  ST_TRY(anew.open(opened, {}));  // in one round of looks
  for (const uint32_t i : opened)
    if (!anew.pinned(i)->is_of_same_file(*shown.pinned(i))) return Failure(shown.replaced_since(i));
  return again;
}

// A commit of this handle in another thread may come in between.
Result<std::unique_ptr<Model>> Shards::reopen_shown(Again as) const {
  constexpr int attempts = 100;
  for (int n = 1;; ++n) {
    const Catalogue shown = catalogue();
    auto again = reopen(shown, as);
    if (again || again.error().status != Status::file_changed || n == attempts) return again;
    if (catalogue().several() == shown.several()) return again;
  }
}

Result<void> Shards::refresh() {
  if (sources_) return {};
  const Control control = control_of({});
  const InterruptScope asked([&] { return control.check(0, 0); });
  ST_TRY(at_.check_led_to());
  struct stat index;  // before the shards, which are as new then, or newer
  const bool there = at_.stat(&index) == 0;
  ST_TRY(refresh_shards(options().lock_timeout_ms));
  return show(there ? state_of(index) : 0, options().lock_timeout_ms, Missing::looked_for_anew);
}

// What is found in all of them is shown at once: else a catalogue that is made meanwhile would have a part of it. All
// of it had its names at one moment, at which no commit of others was half done. What is left is recovered first: else
// one file might be opened before that, and another after it. A commit that fails beside the refresh makes unseen_
// grow, and show() refreshes the shards again. So unseen_ is asked before the recovery.
Result<void> Shards::refresh_shards(int32_t timeout_ms) {
  struct Refreshed {
    std::shared_ptr<Member> member;
    DataFile::Look begun;
    std::optional<DataFile::Found> found = {};  // nothing: it is gone
    HeldSnapshot now = {};
    bool is_to_be_found = true;
    DataFile &shard() const { return *member->opened(); }
    const Snapshot &state() const { return found->state ? *found->state : *found->look.shown; }
  };
  std::vector<Refreshed> all;
  std::set<const Member *> added_already;
  const auto add_opened = [&] {
    bool added = false;
    const Held shown = hold();  // others may show the next one meanwhile
    for (const auto &member : shown->shards()) {
      if (!member->opened() || !added_already.insert(member.get()).second) continue;
      all.push_back({member, member->opened()->begin_look()});
      all.back().begun.shown = {};  // its numbers alone are asked for
      added = true;
    }
    return added;
  };
  constexpr int most_looks = 8;  // others may replace shards each time
  const uint64_t unseen = unseen_;
  ST_TRY(recover_left(timeout_ms));
  add_opened();
  for (int looks = 0; looks < most_looks; ++looks) {
    const Held shown = hold();
    const bool is_unseen = shown.alone();
    for (Refreshed &r : all) {
      r.now = {};  // not under the mutex: it may be the last to hold it
      if (!r.is_to_be_found) continue;
      auto found = r.shard().find(timeout_ms, is_unseen ? shown->pinned_of(*r.member) : nullptr);
      if (!found && found.error().status != Status::no_file) return Failure(std::move(found.error()));
      if (found)
        r.found = std::move(*found);
      else
        r.found.reset();
    }
    const uint64_t settled_at = second_to_settle();
    ST_TRY(await_half_done(timeout_ms));
    bool again = false;
    for (Refreshed &r : all) {
      r.is_to_be_found = false;
      if (r.found) {
        ST_TRY(r.is_to_be_found, r.shard().was_replaced_by_others(r.state()));
      }
      again |= r.is_to_be_found;
    }
    if (again) continue;
    Kept &kept = kept_.mine();
    const std::lock_guard lock(kept.mutex);
    again = add_opened();
    for (Refreshed &r : all) {
      if (!r.found || r.shard().is_next(*r.found)) continue;
      r.is_to_be_found = (r.now = r.shard().hold())->look <= r.begun.number;
      again |= r.is_to_be_found;
    }
    if (again) continue;
    // A commit of one shard alone may come in between. What it has made is newer than what was found.
    for (const Refreshed &r : all) {
      if (r.found) r.shard().show(*r.found);
      r.shard().note_refreshed(r.begun);
      r.member->note_shown();
    }
    kept.refreshed = unseen;
    kept.settled_at = settled_at;
    ++shards_newer_;
    return {};
  }
  return Failure(replaced_all_the_time());
}

namespace {

uint64_t clock_is_ahead(os::Env &env) {
  const uint64_t now = env.unix_time(), since = env.monotonic_ms() / 1000;
  return now - std::min(now, since);
}

}  // namespace

uint64_t Shards::second_to_settle() const {
  const uint64_t ahead = clock_is_ahead(env());
  for (uint64_t most = ahead_; most < ahead && !ahead_.compare_exchange_weak(most, ahead);) {
  }
  return env().unix_time();
}

// Both clocks are rounded.
bool Shards::times_tell() const {
  return clock_is_ahead(env()) + 1 >= ahead_;
}

Error Shards::replaced_all_the_time() const {
  return error(Status::busy, "others replace the shards of ", in_quotes(path_), " all the time; try again later");
}

Result<void> Shards::refresh_unshown(Member &shard) const {
  ST_TRY(const auto found, shard.opened()->find(options().lock_timeout_ms));
  const std::lock_guard lock(kept_.mine().mutex);
  if (!shard.is_shown()) shard.opened()->show(found);
  return {};
}

Result<std::unique_ptr<AnyTransaction>> Shards::begin(TransactionOptions options) {
  return begin_on(catalogue(), std::move(options));
}

Result<std::unique_ptr<AnyTransaction>> Shards::begin_on(const Catalogue &state, TransactionOptions options) {
  ST_TRY(auto begun, ShardTransaction::begin(*this, state, std::move(options)));
  return begun;
}

uint64_t size_at(const Result<os::Location> &at) {
  struct stat s;
  return at && at->stat(&s) == 0 ? static_cast<uint64_t>(s.st_size) : 0;
}

}  // namespace st::store
