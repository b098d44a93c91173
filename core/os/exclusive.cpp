#include "os/exclusive.h"

#include <cerrno>

#include "os/lock_holder.h"
#include "os/turnstile.h"

namespace st::os {
namespace {

Failure no_plain_file(const os::Location &at) {
  return fail(Status::not_regular, in_quotes(at.path()), " is no plain file");
}

// Decided by the file that was opened, and not by a look before: the folder's owner may put a link there in between.
Result<os::File> open_no_link(const os::Location &at) {
  auto file = at.open(O_RDWR | O_NONBLOCK);
  if (!file && file.error().os_errno == ELOOP) return no_plain_file(at);
  if (!file) return file;
  ST_TRY(auto s, file->stat());
  if (!S_ISREG(s.st_mode)) return no_plain_file(at);
  ST_TRY(at.read_past_cache(&*file, &s));
  return file;
}

}  // namespace

Result<std::unique_ptr<Exclusive>> lock_whole_file(const os::Location &at, const os::LockWait &wait) {
  constexpr int attempts = 100;
  os::Turnstile turnstile([&](const os::File &file) { return at.was_replaced(file).value_or(false); });
  for (int i = 0; i < attempts; ++i) {
    ST_TRY(auto file, os::while_stale([&] { return open_no_link(at); }));
    auto exclusive = std::make_unique<Exclusive>();
    exclusive->file = std::move(file);
    auto locked = turnstile.lock(exclusive->file, {os::whole_file(true)}, wait, &exclusive->lock);
    if (!locked && wait.timeout_ms == 0) return Failure(std::move(locked.error()));  // in passing: no matter who
    if (!locked) return Failure(os::tell_holder(std::move(locked.error()), exclusive->file, os::whole_file(true)));
    if (!*locked) {
      turnstile.keep(std::move(exclusive->file));
      continue;
    }
    ST_TRY(auto replaced, at.was_replaced(exclusive->file));
    if (!replaced) return exclusive;
  }
  return fail(Status::busy, in_quotes(at.path()), " is being replaced all the time; try again");
}

}  // namespace st::os
