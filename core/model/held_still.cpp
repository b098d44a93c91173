#include "model/held_still.h"

#include <algorithm>
#include <cerrno>
#include <map>

#include "journal/recover.h"
#include "os/remote_source.h"
#include "os/waited.h"

namespace st::store {
namespace {

// The folder of its journals. Nothing, if there is none, or all in it rest.
Result<std::optional<write::Folder>> journals_of(const os::Location &at, const struct stat &now) {
  auto folder = write::open_to_copy(at, now, write::Held::lives, {});
  if (!folder && folder.error().status == Status::journal && write::all_rest(at)) return std::nullopt;
  return folder;
}

// A dead writer's change that is to be finished first. The kernel may free the file of a dying one before its journal:
// only a recovery can tell, and that wants the file for writing.
Result<bool> is_any_hot(const write::Folder &journals, const struct stat &now, bool is_dying_too) {
  const write::Piece all{0, {0, static_cast<uint64_t>(now.st_size), 0}, nullptr};
  const auto locked = is_dying_too ? std::span(&all, 1) : std::span<const write::Piece>();
  ST_TRY(auto found, write::find_hot_journals(journals, now, {{}, locked}));
  return found.committed;
}

bool is_for_reading_only(const Error &e) {
  return e.os_errno == EACCES || e.os_errno == EPERM || e.os_errno == EROFS || e.os_errno == ETXTBSY;
}

// Could a recovery have it?
Result<bool> opens_for_writing(const os::Location &at, const os::LockWait &wait) {
  auto opened = open_regular(at, O_RDWR, nullptr, wait);
  if (opened || is_for_reading_only(opened.error())) return opened.has_value();
  return Failure(std::move(opened.error()));
}

// On an overlay: the file of the lower layer was opened, and changes since go to a copy in the upper one.
bool is_left_behind(const Snapshot &known, const struct stat &now) {
  return os::maps_what_was_opened(known.filesystem.type) && !os::same_times(known.identity, now);
}

}  // namespace

const HeldStill::Held *HeldStill::find(const struct stat &file) const {
  const auto found = by_inode_.find({file.st_dev, file.st_ino});
  return found == by_inode_.end() ? nullptr : &held_[found->second];
}

// False: it is no longer there. Adds nothing to what is held where nothing can be locked.
Result<bool> HeldStill::lock(const os::Location &at, const Snapshot *known, const os::LockWait &wait) {
  constexpr os::LockRange whole = os::whole_file(false);
  // On an overlay an open for writing would copy all of it.
  const bool may_write = known && !os::maps_what_was_opened(known->filesystem.type);
  const auto lock_for_reading = [&](const os::LockWait &some) {
    return os::lock_named(at, {whole}, some, os::holder_of(whole), O_RDONLY, os::Turnstile::As::its_ranges);
  };
  // Open for writing, the file has its turn among patches. But a watcher takes the close of such a descriptor for a
  // change, and a server takes back what it has delegated. So it is opened so only where there is something to wait
  // for.
  auto locked = lock_for_reading(may_write ? os::LockWait{0, wait.control, nullptr} : wait);
  if (!locked && may_write && locked.error().status == Status::busy) {
    locked = os::lock_named(at, {whole}, wait, os::holder_of(whole), O_RDWR, os::Turnstile::As::writer);
    if (!locked && is_for_reading_only(locked.error())) locked = lock_for_reading(wait);
  }
  if (!locked) {
    const Error &e = locked.error();
    if (e.os_errno == ENOENT || e.os_errno == ESTALE) return false;
    const bool nobody_can = e.status == Status::lock_unsupported || e.status == Status::permission;
    if (nobody_can || e.status == Status::file_changed) return true;  // that: the file has no name any more
    return Failure(std::move(locked.error()));
  }
  ST_TRY(auto now, (*locked)->file.stat());
  held_.push_back({std::move(*locked), now, may_write});
  by_inode_.try_emplace({now.st_dev, now.st_ino}, held_.size() - 1);
  return true;
}

Result<bool> HeldStill::hold(const os::Location &at, const Snapshot *known, const os::LockWait &wait) {
  // By another name it may be held already. A second lock would wait for those that wait for the first.
  struct stat named;
  const Held *held = !held_.empty() && at.stat(&named) == 0 ? find(named) : nullptr;
  if (!held) {
    const size_t before = held_.size();
    ST_TRY(auto is_there, lock(at, known, wait));
    if (!is_there || held_.size() == before) return is_there;
    held = &held_.back();
  }
  const struct stat now = held->identity;
  if (known && (!os::same_inode(now, known->identity) || is_left_behind(*known, now))) return false;
  ST_TRY(const auto journals, journals_of(at, now));
  if (!journals) return true;
  bool may_write = held->may_write;
  ST_TRY(auto hot, is_any_hot(*journals, now, may_write));
  if (hot && may_write) {
    ST_TRY(may_write, opens_for_writing(at, wait));
    if (!may_write) {
      ST_TRY(hot, is_any_hot(*journals, now, false));
    }
  }
  if (!hot) return true;
  let_go();  // a recovery wants the file for itself, and may want others
  if (may_write) {
    ST_TRY(write::recover(at, wait, {}));
  }
  return false;
}

// In the order of commits: indexes, then the files by their paths.
Result<bool> HeldStill::hold(std::span<const ModelView *const> views, const os::LockWait &wait) {
  std::map<std::string_view, const os::Location *> indexes;
  std::vector<const Opened *> files;
  for (const ModelView *view : views) {
    if (view->files().empty() || view->files().front().data_file->path().empty()) continue;
    if (view->index()) indexes.emplace(view->path(), view->index());
    for (const Opened &f : view->files()) files.push_back(&f);
  }
  for (const auto &[path, index] : indexes) {
    ST_TRY(auto held, hold(*index, nullptr, wait));
    if (!held) return false;
  }
  std::sort(files.begin(), files.end(),
            [](const Opened *a, const Opened *b) { return a->data_file->path() < b->data_file->path(); });
  for (const Opened *f : files) {
    auto held = os::Descriptors::with_room(f->data_file->options().descriptors, os::Descriptors::GiveUp::all,
                                           [&] { return hold(f->data_file->location(), f->snapshot, wait); });
    if (!held || !*held) return held;
  }
  for (const ModelView *view : views) ST_TRY(view->check_unchanged());
  return true;
}

Result<void> HeldStill::repeat(const std::string &path, const std::function<Result<bool>()> &open_and_hold) {
  constexpr int most = 100;
  const os::WaitedByCall call(os::WaitedByCall::if_outside);
  for (int i = 1; i <= most; ++i) {
    let_go();  // a recovery wants the file for itself
    auto held = open_and_hold();
    const bool again = held || (held.error().status == Status::file_changed && !os::is_url(path));
    if (!again || (!held && i == most)) return Failure(std::move(held.error()));
    if (held && *held) return {};
  }
  return fail(Status::file_changed, in_quotes(path), " is replaced all the time; try again");
}

}  // namespace st::store
