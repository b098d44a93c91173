#include "write/replacement.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <vector>

#include "os/random_name.h"

namespace st::write {
namespace {

// Room in a name of 255 bytes for the dot, the infix and the digits.
constexpr size_t longest_base = 200;

Result<os::File> open_folder(os::Env &env, const std::string &path) {
  return os::File::open(env, AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0, path);
}

}  // namespace

std::string temporary_prefix(const std::string &base, std::string_view infix) {
  size_t n = std::min(base.size(), longest_base);
  while (n > 0 && n < base.size() && (static_cast<unsigned char>(base[n]) & 0xC0) == 0x80) --n;  // whole characters
  return "." + base.substr(0, n) + std::string(infix);
}

// A temporary is stale if its lock is to be had, where locks mean anything.
void Replacement::remove_stale(const os::File &dir, const std::string &base, std::string_view infix) {
  os::Env &env = dir.env();
  const std::string prefix = temporary_prefix(base, infix);
  std::vector<std::string> names;
  if (env.list(dir.fd(), &names) < 0) return;
  for (const std::string &name : names) {
    if (!name.starts_with(prefix)) continue;
    const std::string shown = dir.path() + "/" + name;
    const int flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK;
    auto file = os::File::open(env, dir.fd(), name, flags, 0, shown);
    if (!file) continue;
    auto lock = os::RangeLock::acquire(*file, {{0, 0, true}}, {});
    if (!lock) continue;
    auto second = os::File::open(env, dir.fd(), name, flags, 0, shown);
    if (!second) continue;
    const auto excludes = os::locks_exclude(*file, *second, {0, 0, true});
    if (excludes && *excludes) env.unlinkat(dir.fd(), name.c_str(), 0);
  }
}

void Replacement::remove_stale(os::Env &env, const std::string &target, std::string_view infix) {
  const auto [folder, base] = os::split_path(target);
  if (auto dir = open_folder(env, folder)) remove_stale(*dir, base, infix);
}

bool Replacement::is_any(os::Env &env, const std::string &target, std::string_view infix) {
  const auto [folder, base] = os::split_path(target);
  const std::string prefix = temporary_prefix(base, infix);
  std::vector<std::string> names;
  auto dir = open_folder(env, folder);
  return dir && env.list(dir->fd(), &names) >= 0 &&
         std::any_of(names.begin(), names.end(), [&](const std::string &name) { return name.starts_with(prefix); });
}

Result<std::unique_ptr<Replacement>> Replacement::create(os::Env &env, const std::string &target, mode_t mode,
                                                         std::string_view infix) {
  std::unique_ptr<Replacement> r(new Replacement());
  r->process_ = env.getpid();
  const auto [folder, base] = os::split_path(target);
  r->base_ = base;
  r->infix_ = infix;
  auto dir = open_folder(env, folder);
  if (!dir) return Failure(std::move(dir.error()));
  r->dir_ = std::move(*dir);
  if (infix == temporary_infix) remove_stale(r->dir_, base, infix);
  if (auto made = r->make(mode); !made) return Failure(std::move(made.error()));
  return r;
}

Result<void> Replacement::make(mode_t mode) {
  constexpr int attempts = 100;
  Error last;
  for (int i = 0; i < attempts; ++i) {
    temporary_ = temporary_prefix(base_, infix_) + os::random_name(dir_.env());
    auto file = os::File::open(dir_.env(), dir_.fd(), temporary_, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, mode,
                               dir_.path() + "/" + temporary_);
    if (!file) {
      if (file.error().os_errno != EEXIST) return Failure(std::move(file.error()));
      last = std::move(file.error());
      continue;
    }
    file_ = std::move(*file);
    named_ = true;
    // Between the two calls somebody may take it for stale and remove it: it is
    // ours once it is both locked and linked.
    auto lock = os::RangeLock::acquire(file_, {{0, 0, true}}, {});
    if (!lock && lock.error().status == Status::busy) {
      dir_.env().unlinkat(dir_.fd(), temporary_.c_str(), 0);
      last = std::move(lock.error());
      continue;
    }
    // A filesystem without locks has no patches and no publishes to be kept
    // apart from; a file can still be saved there.
    if (!lock && lock.error().status != Status::lock_unsupported) return Failure(std::move(lock.error()));
    if (lock) lock_ = std::move(*lock);
    auto s = file_.stat();
    if (!s) return Failure(std::move(s.error()));
    if (s->st_nlink > 0) return {};
    lock_.release();  // or it would end the next one's, which is of file_ too
    last = error(Status::io, "temporary files in ", in_quotes(dir_.path()), " vanish; see what removes them");
  }
  return Failure(std::move(last));
}

Replacement::~Replacement() {
  if (named_ && file_.env().getpid() == process_) dir_.env().unlinkat(dir_.fd(), temporary_.c_str(), 0);
}

Result<os::File> Replacement::open_again() const {
  return os::File::open(dir_.env(), dir_.fd(), temporary_, O_RDWR | O_NOFOLLOW, 0, dir_.path() + "/" + base_);
}

// Does the target's name lead to our file?
bool Replacement::stands() const {
  struct stat by_name;
  const auto ours = file_.stat();
  return ours && dir_.env().fstatat(dir_.fd(), base_.c_str(), &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
         os::same_inode(by_name, *ours);
}

Result<void> Replacement::rename() {
  const int renamed = os::repeat_interrupted(
      [&] { return dir_.env().renameat(dir_.fd(), temporary_.c_str(), dir_.fd(), base_.c_str()); });
  // An error may come after the fact (a network filesystem): look.
  if (renamed < 0 && !stands()) return Failure(file_.error(-renamed, "rename"));
  named_ = false;
  return {};
}

tl::expected<void, SwapFailure> Replacement::take_place() {
  using Failed = tl::unexpected<SwapFailure>;
  if (auto synced = file_.sync(); !synced) return Failed({std::move(synced.error()), false});
  if (auto renamed = rename(); !renamed) return Failed({std::move(renamed.error()), false});
  try {
    if (auto synced = dir_.sync(); !synced) return Failed({std::move(synced.error()), true});
  } catch (const std::bad_alloc &) {
    return Failed({Error{Status::nomem, {}}, true});  // its sentence would take memory
  }
  return {};
}

}  // namespace st::write
