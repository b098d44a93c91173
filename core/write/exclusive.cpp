#include "write/exclusive.h"

#include <cerrno>

namespace st::write {
namespace {

Failure no_plain_file(const std::string &path) {
  return fail(Status::not_regular, in_quotes(path), " is no plain file");
}

// Decided by what was opened, and not by a look before: who owns the folder may put a link there in between.
Result<os::File> open_no_link(os::Env &env, const std::string &path) {
  auto file = os::File::open(env, AT_FDCWD, path, O_RDWR | O_NONBLOCK | O_NOFOLLOW, 0, path);
  if (!file && file.error().os_errno == ELOOP) return no_plain_file(path);
  if (!file) return file;
  auto s = file->stat();
  if (!s) return Failure(std::move(s.error()));
  if (!S_ISREG(s->st_mode)) return no_plain_file(path);
  return file;
}

}  // namespace

Result<std::unique_ptr<Exclusive>> lock_whole_file(os::Env &env, const std::string &path, const os::LockWait &wait,
                                                   os::Links links) {
  constexpr int attempts = 100;
  for (int i = 0; i < attempts; ++i) {
    auto file = links == os::Links::refuse ? open_no_link(env, path)
                                           : os::File::open(env, AT_FDCWD, path, O_RDWR | O_NONBLOCK, 0, path);
    if (!file) return Failure(std::move(file.error()));
    auto exclusive = std::make_unique<Exclusive>();
    exclusive->file = std::move(*file);
    auto lock = os::RangeLock::acquire(exclusive->file, {{0, 0, true}}, wait);
    if (!lock) return Failure(std::move(lock.error()));
    exclusive->lock = std::move(*lock);
    auto replaced = os::was_replaced(exclusive->file, path, links);
    if (!replaced) return Failure(std::move(replaced.error()));
    if (!*replaced) return exclusive;
  }
  return fail(Status::busy, in_quotes(path), " is being replaced all the time; try again");
}

}  // namespace st::write
