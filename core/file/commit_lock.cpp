#include "file/commit_lock.h"

#include <algorithm>

#include "file/slices.h"
#include "file/staging.h"
#include "journal/identity.h"
#include "journal/recover.h"
#include "os/lock_holder.h"
#include "os/turnstile.h"

namespace st::store {
namespace {

// The header's bytes shared, so that nobody publishes or recovers meanwhile,
// and the tensors' bytes exclusive.
std::vector<os::LockRange> ranges_to_lock(const Staged &staged) {
  std::vector<os::LockRange> ranges{{0, staged.snapshot->header.data_offset(), false}};
  if (staged.publishes()) ranges = {os::whole_file(true)};
  for (const Covered &c : bytes_to_lock(staged)) ranges.push_back({c.begin, c.end - c.begin, true});
  return ranges;
}

// One lock may be for many tensors, of which another process has a few.
Covered locked_by_others(const os::File &file, const Covered &wanted) {
  auto part = os::locked_part(file, {wanted.begin, wanted.end - wanted.begin, true});
  if (!part || !*part) return wanted;  // it is free by now, or a neighbour in its page was locked
  return {(*part)->begin, (*part)->begin + (*part)->length};
}

// What another does, so that the whole file cannot be locked. A copy of the file shares its lock (model/held_still.h),
// and a patch shares the header's bytes.
const char *deed_on_whole(const os::File &file, const Staged &staged) {
  const auto keeps_readers_out = [&](uint64_t length) { return os::is_locked(file, {0, length, false}); };
  if (!keeps_readers_out(os::whole_file_bytes).value_or(true)) return " is reading all";
  return keeps_readers_out(staged.snapshot->header.data_offset()).value_or(false) ? " is working on all"
                                                                                  : " is changing a part";
}

// Which tensor could not be locked, and which process holds it?
Error name_blocked(const Staged &staged, Error busy, const os::File &file) {
  if (busy.status != Status::busy) return busy;
  if (busy.offset >= os::turnstile_begin) return os::tell_holder(std::move(busy), file, os::whole_file(true));
  const std::vector<Covered> locks = bytes_to_lock(staged);
  // The first that does not end before: a lock may begin with its page.
  const auto blocked = std::find_if(locks.begin(), locks.end(), [&](const Covered &c) { return c.end > busy.offset; });
  const bool is_tensor = blocked != locks.end() && busy.offset > 0;
  const std::string name(is_tensor ? name_in(staged, locked_by_others(file, *blocked)) : std::string_view());
  const os::LockRange range = is_tensor            ? os::LockRange{busy.offset, blocked->end - busy.offset, true}
                              : staged.publishes() ? os::whole_file(true)
                                                   : os::LockRange{0, staged.snapshot->header.data_offset(), false};
  busy.holder_pid = os::find_lock_holder(file, range);
  const bool is_read = is_tensor && !os::is_locked(file, {range.begin, range.length, false}).value_or(true);
  busy.message = text(busy.holder_pid ? text("process ", busy.holder_pid) : std::string("another worker"),
                      is_tensor            ? is_read ? " is reading tensor " : " is changing tensor "
                      : staged.publishes() ? deed_on_whole(file, staged)
                                           : " is working on all",
                      is_tensor ? in_quotes(name) : std::string(), " of ", in_quotes(staged.file.path()),
                      "; try again, or allow more time");
  return is_tensor ? std::move(busy).about_tensor(name) : busy;
}

Result<bool> settle_hot_journals(Staged &staged) {
  std::optional<write::Folder> looked;
  const write::Folder *folder = staged.journal.folder.get();
  // It may have been removed since the staging. Then other writers' journals lie in the one that stands there now.
  // Where other hosts write, one of them has done that, and may have our locks: then the commit ends at its next
  // question.
  if (folder && !staged.has_other_hosts()) {
    ST_TRY(const auto stands, staged.file.journals().stands(*folder));
    if (!stands) folder = nullptr;
  }
  if (!folder) {
    ST_TRY(looked, write::open_to_copy(staged.file.location(), staged.snapshot->identity, write::Held::waits,
                                       staged.later.log()));
    if (!looked) return true;
    folder = &*looked;
  }
  const std::string own = staged.journal.journal ? staged.journal.journal->name() : std::string();
  std::vector<write::Piece> locked;
  if (staged.publishes())
    locked = {{0, {0, staged.snapshot->file_size(), 0}, nullptr}};
  else
    for (const Covered &c : bytes_to_lock(staged)) locked.push_back({c.begin, {0, c.end - c.begin, 0}, nullptr});
  return write::settle_hot_journals(*folder, staged.snapshot->identity, {own, locked});
}

// Once a handle: is a second descriptor really kept out?
Result<void> test_locks(const Staged &staged, const os::File &locked) {
  if (staged.file.locks_tested()) return {};
  os::LockRange range{0, 1, true};
  if (!staged.publishes()) {
    const Covered first = bytes_to_lock(staged).front();
    range = {first.begin, first.end - first.begin, true};
  }
  ST_TRY(auto second, open_regular(staged.file.location(), O_RDWR));
  ST_TRY(auto exclude, os::locks_exclude(locked, second, range));
  if (!exclude)
    return fail(
        Status::lock_unsupported, "the filesystem of ", in_quotes(staged.file.path()), " (",
        staged.snapshot->filesystem.type,
        ") grants every lock to everybody, so changes could not be kept apart; copy the file to one that locks");
  staged.file.set_locks_tested();
  return {};
}

write::Identity identity_of(const Snapshot &s) {
  return {s.identity.st_ino, s.file_size(), s.header.data_offset(), s.header_hash};
}

// Is what is locked what the header said, and free of hot journals? `began` before it was opened.
Result<write::Look> look(Staged &staged, const DataFile::Look &began, os::LockedFile &locked,
                         write::Identity *identity) {
  ST_TRY(*identity, write::identify(locked.file, staged.snapshot->header.data_offset()));
  if (*identity != identity_of(*staged.snapshot)) {
    // Perhaps the handle shows it already.
    if (HeldSnapshot shown = staged.file.hold(); *identity == identity_of(*shown)) {
      ST_TRY(follow_to(staged, std::move(shown)));
      return write::Look::again;
    }
    locked.lock.release();
    ST_TRY(auto found, staged.file.take(std::move(locked.file), nullptr, true, staged.later.log()));
    ST_TRY(follow_to(staged, began, std::move(found)));
    return write::Look::again;
  }
  ST_TRY(auto settled, settle_hot_journals(staged));
  if (!settled) return write::Look::hot;
  // A publisher that has lost its locks may have given the name to another file, before its journal was taken away.
  if (staged.has_other_hosts()) {
    ST_TRY(auto replaced, staged.file.location().was_replaced(locked.file));
    if (replaced) return write::Look::again;
  }
  ST_TRY(test_locks(staged, locked.file));
  return write::Look::settled;
}

}  // namespace

Result<write::Look> lock_for_commit(Staged &staged, int32_t timeout_ms, HotJournals hot, CommitLock *lock) {
  const os::LockWait wait{timeout_ms, &staged.control, &staged.file.counters().lock_waits};
  DataFile::Look began;
  write::LockSteps steps{
      [&] {
        began = staged.file.begin_look();
        return ranges_to_lock(staged);
      },
      [&](Error blocked, const os::File &file) { return name_blocked(staged, std::move(blocked), file); },
      [&](os::LockedFile &file) { return look(staged, began, file, &lock->identity); },
      {}};
  if (hot == HotJournals::recover) steps.recover = [&] { return staged.file.settle_or_recover(wait); };
  return write::lock_settled(staged.file.location(), wait, steps, &lock->held);
}

Result<void> check_in_place(const Staged &staged, const CommitLock &lock) {
  ST_TRY(auto replaced, staged.file.location().was_replaced(lock.file()));
  if (replaced)
    return fail(Status::file_changed, in_quotes(staged.file.path()),
                " was replaced by something that takes no locks while the change was prepared; nothing was changed; "
                "open it anew");
  return {};
}

}  // namespace st::store
