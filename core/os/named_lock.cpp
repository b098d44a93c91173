#include "os/named_lock.h"

#include <cerrno>

#include "os/lock_holder.h"
#include "os/waited.h"

namespace st::os {

TellBlocked holder_of(const LockRange &wanted) {
  return [wanted](Error blocked, const os::File &file) { return tell_holder(std::move(blocked), file, wanted); };
}

namespace {

// A name that leads to a removed file, look after look, is held there by a mount. Any other is given to new files.
Error replaced_for_ever(const Location &at) {
  struct stat s;
  if (at.stat(&s) == 0 && s.st_nlink == 0)
    return error(Status::file_changed, in_quotes(at.path()),
                 " was replaced or removed where it comes from, and a mount of this file alone still shows the old "
                 "one; mount its folder in place of the file");
  return error(Status::busy, in_quotes(at.path()), " is being replaced all the time; try again");
}

}  // namespace

Result<std::unique_ptr<LockedFile>> lock_named(const os::Location &at, const std::vector<LockRange> &ranges,
                                               const os::LockWait &wait, const TellBlocked &tell, int flags,
                                               Turnstile::As as) {
  const WaitedByCall call(WaitedByCall::if_outside);
  os::Turnstile turnstile([&](const os::File &file) { return at.was_replaced(file).value_or(false); }, as);
  for (int i = 0; i < most_lock_attempts; ++i) {
    auto locked = std::make_unique<LockedFile>();
    ST_TRY(locked->file, open_regular(at, flags, nullptr, wait));
    ST_TRY(auto pages, to_pages(locked->file, ranges));
    auto had = turnstile.lock(locked->file, std::move(pages), wait, &locked->lock);
    if (!had) return Failure(tell(std::move(had.error()), locked->file));
    if (!*had) {
      turnstile.keep(std::move(locked->file));
      continue;
    }
    ST_TRY(auto replaced, at.was_replaced(locked->file));
    if (!replaced) return locked;
  }
  return Failure(replaced_for_ever(at));
}

Result<std::unique_ptr<LockedFile>> lock_whole_file(const os::Location &at, const os::LockWait &wait) {
  constexpr LockRange whole = whole_file(true);
  auto locked = lock_named(at, {whole}, wait, [&](Error blocked, const os::File &file) {
    if (wait.timeout_ms == 0) return blocked;  // in passing: no matter who
    return tell_holder(std::move(blocked), file, whole);
  });
  // Decided by the file that was opened, and not by a look before: the folder's owner may put a link there in between.
  if (!locked && (locked.error().os_errno == ELOOP || locked.error().status == Status::not_regular))
    return fail(Status::not_regular, in_quotes(at.path()), " is no plain file");
  return locked;
}

}  // namespace st::os
