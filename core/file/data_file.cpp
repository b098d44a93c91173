#include "file/data_file.h"

#include <new>

#include "journal/recover.h"
#include "os/waited.h"
#include "read/gather.h"

namespace st::store {

Result<std::unique_ptr<DataFile>> DataFile::open(os::Env &env, const std::string &path, OpenOptions options,
                                                 os::Folders *folders) {
  const auto open_at = [&](os::Location at) {
    if (folders) folders->share(&at);
    return open(std::move(at), options);
  };
  // Usually no link is in the way.
  if (auto unlinked = os::Location::find_unlinked(env, path)) {
    auto opened = open_at(std::move(*unlinked));
    if (opened || opened.error().os_errno != ELOOP) return opened;
  }
  ST_TRY(auto at, os::Location::find(env, path));
  return open_at(std::move(at));
}

Result<std::unique_ptr<DataFile>> DataFile::open(os::Location at, OpenOptions options) {
  os::Env &env = at.env();
  std::unique_ptr<DataFile> c(new DataFile(env, std::move(options)));
  c->path_ = at.path();
  c->at_ = std::move(at);

  ST_TRY(auto snapshot, c->look(c->options_.writable, c->options_.lock_timeout_ms));
  ST_TRY(read::check_map_setting(env, c->options_.map));
  ST_TRY(c->strategy_, read::choose_strategy(env, c->options_.bulk, snapshot->filesystem));
  ST_TRY(c->undo_from_, write::undo_from(env, snapshot->filesystem));
  if (c->options_.writable) {
    c->journals_ = std::make_unique<write::JournalFolder>(c->at_, snapshot->identity);
    c->deferred_ = std::make_unique<DeferredCommits>(env, c->path_, *c->journals_);
  }
  c->adopt(c->place(std::move(snapshot)));
  return c;
}

Result<std::unique_ptr<DataFile>> DataFile::open_source(const std::shared_ptr<os::SourceEnv> &source,
                                                        OpenOptions options) {
  const os::Source &given = source->source();
  if (options.writable)
    return fail(Status::unsupported, "the source ", in_quotes(given.name()),
                " can only be read; save a copy to a file, and change that");
  options.descriptors.reset();  // a source has none that are scarce
  const os::Filesystem nothing_mapped{os::Storage::object_store, "source", false};
  std::unique_ptr<DataFile> c(new DataFile(*source, std::move(options)));
  c->source_ = source;
  c->strategy_ = read::strategy_of_source(c->options_.bulk, given);
  ST_TRY(auto file, os::File::open(*source, AT_FDCWD, given.name(), O_RDONLY, 0, given.name()));
  auto snapshot = Snapshot::take(std::move(file), {c->options_.map, false, &nothing_mapped, c->options_.log});
  if (!snapshot) {
    snapshot.error().message += text(" (", in_quotes(given.name()), ")");
    return Failure(std::move(snapshot.error()));
  }
  c->adopt(c->place(std::move(*snapshot)));
  return c;
}

Result<std::unique_ptr<DataFile>> DataFile::open_memory(os::Env &env, const std::byte *bytes, size_t size,
                                                        read::MapMode map) {
  std::unique_ptr<DataFile> c(new DataFile(env, {}));
  ST_TRY(auto snapshot, Snapshot::of_memory(env, bytes, size, map));
  c->strategy_.reason = "the file was given as memory";
  c->adopt(c->place(std::move(snapshot)));
  return c;
}

std::string DataFile::shown_name() const {
  if (source_) return text("the source ", in_quotes(source_->source().name()));
  return path_.empty() ? "a file that was given as memory" : in_quotes(path_);
}

Failure cannot_reopen(std::string_view what) {
  return fail(Status::unsupported, what, " cannot be opened again; use the same handle, which any thread may read");
}

Result<std::unique_ptr<DataFile>> DataFile::reopen(const Snapshot &state, Again as) const {
  if (path_.empty()) return cannot_reopen(shown_name());
  ST_TRY(auto here, state.here());
  ST_TRY(auto replaced, at_.was_replaced(here.file));
  if (replaced) {
    struct stat named;
    const bool is_gone = at_.stat(&named) == -ENOENT;
    return fail(Status::file_changed, in_quotes(path_),
                is_gone ? " is no longer there; this handle still reads it"
                        : " now names another file; open it anew by its path");
  }
  return open(at_, options_of(options_, as));
}

Result<std::unique_ptr<DataFile>> DataFile::reopen_shown(Again as) const {
  constexpr int attempts = 100;
  for (int n = 1;; ++n) {
    const HeldSnapshot shown = hold();
    auto again = reopen(*shown, as);
    if (again || again.error().status != Status::file_changed || n == attempts) return again;
    // In this order: what is no longer being placed by the second look is shown by the third.
    struct stat named;
    if (at_.stat(&named) == 0 && named.st_ino == placing_) return open(at_, options_of(options_, as));
    if (hold().get() == shown.get()) return again;
  }
}

// The file as it stands there now, with nothing left to recover.
Result<std::unique_ptr<Snapshot>> DataFile::look(bool follows, int32_t lock_timeout_ms) {
  const Control control = this->control();
  const os::LockWait wait{lock_timeout_ms, &control, &counters_.lock_waits};
  return os::while_stale([&]() -> Result<std::unique_ptr<Snapshot>> {
    struct stat identity;
    ST_TRY(auto file, open_regular(at_, options_.writable ? O_RDWR : O_RDONLY, &identity, wait));
    ST_TRY(auto met, recover_if_needed(identity, wait));
    if (met == Met::hot) {  // a change of several files has put a new one here; on an overlay any change has
      ST_TRY(file, open_regular(at_, options_.writable ? O_RDWR : O_RDONLY, &identity, wait));
    }
    // Another host may have finished what this one met; pages that were remembered meanwhile are half of a change.
    return take(std::move(file), met == Met::nothing ? &identity : nullptr, follows || met == Met::hot, options_.log);
  });
}

// Without `identity` the file may have changed since that was asked.
Result<std::unique_ptr<Snapshot>> DataFile::take(os::File file, const struct stat *identity, bool follows,
                                                 const Log &log) const {
  struct stat now;
  if (!identity) {
    ST_TRY(now, file.stat());
    identity = &now;
  }
  const os::Filesystem filesystem = at_.filesystem(file, *identity);
  if (follows) file.read_past_cache(at_.how_to_read(*identity));
  auto snapshot = Snapshot::take(std::move(file), *identity, {options_.map, follows, &filesystem, log});
  if (!snapshot) snapshot.error().message += text(" (", in_quotes(path_), ")");
  if (snapshot && options_.descriptors && os::tells_times(filesystem))
    (*snapshot)->birth = env().birth_time((*snapshot)->file.fd(), "");
  return snapshot;
}

// Beside commits it looks once more for each state that they have shown meanwhile. Beside other refreshes one that
// began later is as good.
Result<void> DataFile::refresh() {
  if (path_.empty()) return {};
  const Control control = this->control();
  const InterruptScope asked([&] { return control.check(0, 0); });
  for (const uint64_t begun = ++looks_;;) {
    ST_TRY(const auto found, find(options_.lock_timeout_ms));
    if (show(found) || shows_since(begun)) return {};
  }
}

Result<DataFile::Found> DataFile::find(int32_t lock_timeout_ms, const Snapshot *unseen) {
  constexpr auto half = os::Descriptors::GiveUp::half;
  for (;;) {
    Found found{begin_look(), {}};
    const auto look_now = [&] { return look(true, lock_timeout_ms); };
    ST_TRY(auto fresh, os::Descriptors::with_room(options_.descriptors, half, look_now));
    // In a folder that was moved nothing new would ever be seen.
    ST_TRY(at_.check_led_to());
    const HeldSnapshot &now = found.look.shown;
    // Views that may be written must not change under a reader, and do not tell whether the file did. A handle that has
    // relied on the cache of a kernel that other hosts tell nothing does so no more.
    const bool same_file = now->is_of_same_file(*fresh);
    const bool follows = now->reads_past_cache() == fresh->reads_past_cache();
    found.is_left_behind = same_file && follows && is_left_behind(*now, *fresh);
    const bool stays =
        same_file && follows && !found.is_left_behind && now->content.wanted() != read::MapMode::copy_on_write;
    // Asked after the look: a commit that begins to withhold later has not made what was found.
    const bool withheld = !same_file && is_withheld();
    // What was read into memory of our own does not show what others patch: it goes, or if somebody may look at it, is
    // read once more to where it is.
    if (!withheld && (!stays || (now->has_own_memory() && now.alone(now.get() == unseen ? 1 : 0)))) {
      ST_TRY(const auto placed, place_found(found, std::move(fresh)));
      if (!placed) continue;
    } else if (now->has_own_memory()) {
      auto read = now->refresh_own_memory();
      if (!read && read.error().status != Status::file_changed) return Failure(std::move(read.error()));
      // It may have gone, or a new file have taken its name. If that is withheld, what is there stays until it is
      // shown.
      if (!read && !withheld) {
        struct stat named;
        const int there = at_.stat(&named);
        if (there == -ENOENT || (there == 0 && !os::same_inode(named, now->identity))) continue;
        return Failure(std::move(read.error()));
      }
    }
    ST_TRY(refresh_before(*now));
    return found;
  }
}

// A state that nobody looked at gives way to another one, and may be given out before that is shown. Then its views
// show what others patch, as those of `now` do.
Result<void> DataFile::refresh_before(const Snapshot &now) const {
  Result<void> done;
  versions_.each([&](const Snapshot &state) {
    const bool is_before = &state != &now && state.is_of_same_file(now) &&
                           state.content.wanted() != read::MapMode::copy_on_write && state.has_own_memory();
    if (!done || !is_before) return;
    done = state.refresh_own_memory();
    if (!done && done.error().status == Status::file_changed) done = {};  // nobody patches it any more
  });
  return done;
}

bool DataFile::show(const Found &found) noexcept {
  if (!found.state) return is_next(found);
  if (journals_) journals_->follow(found.state->identity.st_ino);  // in vain if it is not shown: that costs a sync
  const bool shown = versions_.show_after(found.look.shown, found.state);
  // Another time of the file alone may be that of its mode: an overlay may copy that up without the bytes (metacopy).
  if (shown && found.is_left_behind && !os::same_mtime(found.look.shown->identity, found.state->identity))
    has_changed_ = true;
  return shown;
}

// On an overlay: does `now` map the file of the lower layer, which was changed since? The change has put a copy into
// the upper layer, where all that is opened later finds it.
bool DataFile::is_left_behind(const Snapshot &now, const Snapshot &fresh) const {
  if (!os::maps_what_was_opened(fresh.filesystem.type) || os::same_times(now.identity, fresh.identity)) return false;
  return !has_changed_ && !options_.writable && now.content.map() != read::MapMode::none;
}

Result<void> DataFile::refresh_settled() {
  const Control control = this->control();
  auto recovered = recover({options_.lock_timeout_ms, &control, &counters_.lock_waits});
  // Where nothing can be written, is there anything to be?
  if (!recovered && recovered.error().status != Status::needs_recovery) return recovered;
  return refresh();
}

void warn_that_not_shown(const Log &log) noexcept try {
  if (log)
    log(LogLevel::warning,
        "the change is committed, but memory ran out before the handle could show it; free some and refresh it");
} catch (const std::bad_alloc &) {
}

HeldSnapshot DataFile::place(std::unique_ptr<Snapshot> state, uint64_t look) {
  state->look = look;
  if (options_.descriptors && state->env) state->share_descriptor(options_.descriptors, at_);
  return versions_.place(std::move(state));
}

// Where nothing holds the old file open, a new one may have its inode. No patch changes the size, or when it was made.
bool DataFile::is_of(const Snapshot &state, const struct stat &named) const {
  if (!os::same_inode(named, state.identity) || named.st_size != state.identity.st_size) return false;
  return state.birth < 0 || os::same_times(named, state.identity) || state.may_be_born(at_.birth_time());
}

// A file that is put in place by a commit of this handle is shown before it is no longer being placed, or withheld. So
// the second question is asked before the third.
Result<bool> DataFile::was_replaced_by_others(const Snapshot &state) const {
  for (;;) {
    const HeldSnapshot before = hold();
    struct stat named;
    if (state.reads_past_cache()) at_.renew();
    const int r = at_.stat(&named);
    if (r < 0 && r != -ENOENT && r != -ESTALE) return Failure(os_error(-r, "look at", path_));
    if (r < 0 || is_of(state, named)) return false;
    const bool is_being_placed = named.st_ino == placing_ || is_withheld();
    const HeldSnapshot now = hold();
    if (now->others != state.others) return true;
    if (is_being_placed || is_of(*now, named)) return false;
    if (now.get() == before.get()) return true;
  }
}

bool DataFile::is_untouched_since(uint64_t second, const Snapshot &state) const {
  struct stat named;
  return os::tells_times(state.filesystem) && at_.stat(&named) == 0 && os::same_inode(named, state.identity) &&
         os::was_changed_before(named, second);
}

void DataFile::keep_open(const Snapshot &state) noexcept try {
  if (!options_.descriptors) return;
  const auto open = state.hold_open();
  if (!open) return;
  state.stay_open(*open);  // before the others: see keep_open_as_others
  versions_.each([&](const Snapshot &s) {
    if (s.is_of_same_file(state)) s.stay_open(*open);
  });
} catch (const std::bad_alloc &) {
}

void DataFile::end_keeping_open(const Snapshot &state) noexcept {
  struct stat named;
  if (!options_.descriptors || at_.stat(&named) != 0 || !os::same_inode(named, state.identity)) return;
  versions_.each([&](const Snapshot &s) {
    if (s.is_of_same_file(state)) s.end_staying_open();
  });
}

// A publish that began to keep states open before this one was placed has not met it. This one meets what is kept.
void DataFile::keep_open_as_others(const Snapshot &placed) const {
  if (!options_.descriptors) return;
  versions_.each([&](const Snapshot &s) {
    if (!s.is_of_same_file(placed)) return;
    if (const auto held = s.kept_open()) placed.stay_open(held);
  });
}

void DataFile::adopt(const HeldSnapshot &made) noexcept {
  if (journals_) journals_->follow(made->identity.st_ino);
  versions_.show(made);
}

// A copy-on-write mapping that stands while this process patches keeps the old bytes (os/writable_mappings.h). A patch
// through this handle tells each state that is placed. One that was not placed yet, but mapped, missed that: then it
// goes. A long look would miss one patch after the other, so it is mapped once more at its end.
// False: a patch came in between; look again.
Result<bool> DataFile::place_found(Found &found, std::unique_ptr<Snapshot> state) {
  const bool keeps_old = state->content.wanted() == read::MapMode::copy_on_write;
  uint64_t patches = found.look.patches;
  if (keeps_old && patches_ != patches) {
    patches = patches_;
    ST_TRY(state->map_anew());
  }
  const Snapshot &before = *found.look.shown;
  const bool is_own = state->is_of_same_file(before) || state->identity.st_ino == placing_;
  state->others = before.others + (is_own ? 0 : 1);
  found.state = place(std::move(state), found.look.number);
  keep_open_as_others(*found.state);
  // A write, so that a patch either is seen here or sees what was placed.
  return !keeps_old || patches_.fetch_add(0) == patches;
}

Result<HeldSnapshot> DataFile::adopt_found(const Look &look, std::unique_ptr<Snapshot> state) {
  Found found{look, {}};
  ST_TRY(const auto placed, place_found(found, std::move(state)));
  ++follows_;  // before anybody sees it
  return placed && show(found) ? found.state : HeldSnapshot();
}

void DataFile::show_patch(const Snapshot &of, size_t index, uint64_t offset, uint64_t n, const Log &log) {
  ++patches_;
  versions_.each([&](const Snapshot &state) {
    if (!state.is_of_same_file(of)) return;
    try {
      auto shown = state.refresh(index, offset, n);
      if (!shown) log(LogLevel::warning, shown.error().message);
    } catch (const std::bad_alloc &) {
      state.outdate(index, offset, n);
      warn_that_not_shown(log);
    }
  });
}

// Before the header is believed, what a crashed writer had promised is kept.
Result<DataFile::Met> DataFile::recover_if_needed(const struct stat &identity, const os::LockWait &wait) {
  auto opened = write::Folder::open(at_, identity, options_.log);
  if (!opened && opened.error().status == Status::journal && !options_.writable && write::all_rest(at_))
    return Met::journals;
  ST_TRY(auto folder, std::move(opened));
  if (!folder) return Met::nothing;
  ST_TRY(auto journals, write::find_hot_journals(*folder, identity));
  if (!journals.committed && !options_.writable) {
    if (journals.idle) drop_idle(std::move(*folder), identity);
    return Met::journals;
  }
  if (!journals.committed && !journals.idle) {
    write::Folder::remove_if_empty(at_);
    return Met::journals;
  }
  // Rubbish is removed only if nobody is in the way.
  auto recovered = recover({journals.committed ? wait.timeout_ms : 0, wait.control, wait.waits});
  if (!recovered && journals.committed) return Failure(std::move(recovered.error()));
  return journals.committed ? Met::hot : Met::journals;
}

// A reader keeps no writer waiting, and no rubbish keeps a reader out.
void DataFile::drop_idle(write::Folder folder, const struct stat &identity) {
  const uint32_t dropped = write::drop_idle(folder, identity, options_.log);
  counters_.recoveries += dropped;
  folder = {};  // on Windows it could not go while it is open
  if (dropped > 0) write::Folder::remove_if_empty(at_);
}

Result<void> DataFile::recover(const os::LockWait &wait) {
  ST_TRY(auto done, write::recover(at_, wait, write::told_to(options_.log)));
  counters_.recoveries += done.applied + done.undone + done.dropped;
  if (done.aside > 0)
    return fail(Status::journal, done.why_aside,
                "; the file may hold a half-finished change: verify it, then open again");
  return {};
}

Result<bool> DataFile::settle_deferred(const os::LockWait &wait) {
  if (!deferred_) return false;
  if (poisoned()) ST_TRY(deferred_->leave(wait));  // a second sync would not tell what was lost
  bool open_outcome = false;
  auto settled = deferred_->settle(wait, &open_outcome);
  if (settled || !open_outcome) return settled;
  poison();
  Error e = std::move(settled.error());
  if (e.message.empty()) e.message = "memory ran out";
  e.message = text("earlier changes of ", in_quotes(path_), " are durable in their journals, and not in the file (",
                   e.message, "); close the handle and open the file anew, which finishes them");
  e.status = Status::needs_recovery;
  return Failure(std::move(e));
}

Result<void> DataFile::settle_or_recover(const os::LockWait &wait) {
  ST_TRY(auto settled, settle_deferred(wait));
  return settled ? Result<void>() : recover(wait);
}

Result<void> DataFile::sync() {
  if (poisoned())
    return fail(Status::poisoned, "an earlier write or sync of ", in_quotes(path_),
                " failed; close the handle and open the file anew, which finishes what is in its journals");
  const Control control = this->control();
  ST_TRY(settle_deferred({options_.lock_timeout_ms, &control, &counters_.lock_waits}));
  return {};
}

// What cannot be finished now is finished by the next opener.
void DataFile::end_writing() noexcept {
  if (!deferred_) return;
  const os::WaitedByCall call(os::WaitedByCall::anew);  // a callback of another call may close a file
  try {
    constexpr int32_t most_ms = 10000;
    const int32_t wanted_ms = options_.lock_timeout_ms;
    auto settled = settle_deferred({wanted_ms < 0 ? most_ms : std::min(wanted_ms, most_ms), nullptr, nullptr});
    if (!settled && options_.log) options_.log(LogLevel::warning, settled.error().message);
  } catch (const std::bad_alloc &) {
  }
  deferred_.reset();
  journals_.reset();
}

// A file that has lost its name, and then its descriptor, may still be mapped.
Result<std::optional<Access>> DataFile::here_unless_mapped(const Snapshot &s) {
  auto here = s.here();
  if (here) return *here;
  if (here.error().status == Status::file_changed && s.mapped()) return std::nullopt;
  return Failure(std::move(here.error()));
}

Result<DataFile::Reach> DataFile::reach(const Snapshot &s) {
  ST_TRY(const auto here, here_unless_mapped(s));
  if (!here) return Reach{{nullptr, s.mapped()}, {}};
  if (!s.env) return Reach{{nullptr, s.content.bytes()}, {}};
  return Reach{{&here->file, nullptr}, here->held};
}

Result<const std::byte *> DataFile::view(const Snapshot &s, size_t i) const {
  const TensorView t = s.header.index.at(i);
  if (t.nbytes == 0) return nullptr;
  if (const std::byte *bytes = try_view(s, i, t)) return bytes;
  auto here = s.here();
  if (!here) return Failure(std::move(here.error()).about_tensor_at_least(t.name));
  const Control control = this->control();
  const InterruptScope waits([&] { return control.check(0, t.nbytes); });
  auto bytes = here->content.view(here->file, i, s.file_offset(t), t.nbytes, &counters_.bytes_read);
  if (!bytes) return Failure(std::move(bytes.error()).about_tensor_at_least(t.name));
  return bytes;
}

bool DataFile::lends(const void *bytes, uint64_t n) const {
  bool found = false;
  versions_.each([&](const Snapshot &s) { found = found || s.lends(bytes, n); });
  return found;
}

Result<void> DataFile::read(const Snapshot &s, size_t i, void *to) const {
  const TensorView t = s.header.index.at(i);
  auto from = reach(s);
  if (!from) return Failure(std::move(from.error()).about_tensor_at_least(t.name));
  if (auto done = read::copy(from->bytes, s.file_offset(t), t.nbytes, to, control()); !done)
    return Failure(std::move(done.error()).about_tensor_at_least(t.name));
  counters_.bytes_read += t.nbytes;
  return {};
}

Result<void> DataFile::read_slice(const Snapshot &s, size_t i, const SlicePlan &plan, void *to) const {
  return read_slice_with(s, i, plan, to, control());
}

Result<void> DataFile::read_slice_with(const Snapshot &s, size_t i, const SlicePlan &plan, void *to,
                                       const Control &control) const {
  const TensorView t = s.header.index.at(i);
  auto from = reach(s);
  if (!from) return Failure(std::move(from.error()).about_tensor_at_least(t.name));
  if (source_ && plan.run_count() > 1) {
    const BulkRequest slice{i, &plan, static_cast<std::byte *>(to)};
    if (auto done = gather_slices(s, *from->bytes.file, {&slice}, plan.nbytes(), control, {}); !done)
      return Failure(std::move(done.error()).about_tensor_at_least(t.name));
    return {};
  }
  auto bytes = read::copy_slice(from->bytes, s.file_offset(t), plan, to, control);
  if (!bytes) return Failure(std::move(bytes.error()).about_tensor_at_least(t.name));
  counters_.bytes_read += *bytes;
  return {};
}

// Out of a source, where each read may be a request to a server.
Result<void> DataFile::gather_slices(const Snapshot &s, const os::File &file,
                                     const std::vector<const BulkRequest *> &slices, uint64_t total,
                                     const Control &control, const Share &share) const {
  const read::Strategy strategy = strategy_of(share);
  const uint64_t limit = limit_of(share);
  read::Gather gather(file, strategy, control, total, std::min(read::Gather::most_room, limit ? limit : UINT64_MAX));
  for (const BulkRequest *r : slices) ST_TRY(gather.add(s.file_offset(s.header.index.at(r->index)), *r->slice, r->to));
  ST_TRY(auto done, gather.finish());
  count(done);
  return {};
}

}  // namespace st::store
