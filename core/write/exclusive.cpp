#include "write/exclusive.h"

namespace st::write {

Result<std::unique_ptr<Exclusive>> lock_whole_file(os::Env &env, const std::string &path, const os::LockWait &wait) {
  constexpr int attempts = 100;
  for (int i = 0; i < attempts; ++i) {
    auto file = os::File::open(env, AT_FDCWD, path, O_RDWR | O_NONBLOCK, 0, path);
    if (!file) return Failure(std::move(file.error()));
    auto exclusive = std::make_unique<Exclusive>();
    exclusive->file = std::move(*file);
    auto lock = os::RangeLock::acquire(exclusive->file, {{0, 0, true}}, wait);
    if (!lock) return Failure(std::move(lock.error()));
    exclusive->lock = std::move(*lock);
    auto replaced = os::was_replaced(exclusive->file, path);
    if (!replaced) return Failure(std::move(replaced.error()));
    if (!*replaced) return exclusive;
  }
  return fail(Status::busy, quoted(path), " is being replaced all the time; try again");
}

}  // namespace st::write
