#include "newfile/temporary_file.h"

#include <algorithm>
#include <cerrno>
#include <vector>

#include "os/random.h"
#include "os/rename_over.h"

namespace st::write {

// What it may only read, as its writer had given it the rights of the file that it was to replace, it locks shared:
// that keeps a writer out, too. Another sweeper may do so as well. So each asks for the other's lock when it has its
// own: one of them sees the other, and leaves the file. If they did not, the first would remove it, a living writer
// take its name, and the second remove the writer's.
// It is looked at before it is opened, as to open a pipe or a device may do something.
bool remove_unlocked(const os::Location &at, const struct stat *known) {
  struct stat seen;
  if (at.stat(&seen) != 0 || !S_ISREG(seen.st_mode) || (known && !os::same_inode(seen, *known))) return false;
  bool writes = true;
  const auto opened = [&] { return at.open((writes ? O_RDWR : O_RDONLY) | O_NONBLOCK | O_NOCTTY); };
  auto file = opened();
  if (!file && file.error().os_errno == EACCES) {
    writes = false;
    file = opened();
  }
  if (!file) return false;
  const auto s = file->stat();
  if (!s || !os::same_inode(*s, seen)) return false;
  auto lock = os::RangeLock::acquire(*file, {os::whole_file(writes)}, {});
  if (!lock) return false;
  if (!writes) {
    const auto other = os::is_locked(*file, os::whole_file(true));
    if (!other || *other) return false;
  }
  auto second = opened();
  if (!second) return false;
  // Another sweeper may have been here before, and a living writer have the name by now.
  const auto named = second->stat();
  if (!named || !os::same_inode(*named, *s)) return false;
  const auto excludes =
      writes ? os::locks_exclude(*file, *second, os::whole_file(true)) : os::is_locked(*second, os::whole_file(true));
  if (!excludes || !*excludes) return false;
  return at.env().unlinkat(at.dir(), at.name().c_str(), 0) == 0;
}

// A temporary is stale if its lock is free.
std::vector<std::string> TemporaryFile::remove_stale(const os::Location &target,
                                                     std::initializer_list<std::string_view> infixes,
                                                     os::Neighbours *listed) {
  std::string prefix = temporary_prefix(target.name(), *infixes.begin());
  const auto shorten = [&](const std::string &other) {
    prefix.erase(std::mismatch(prefix.begin(), prefix.end(), other.begin(), other.end()).first, prefix.end());
  };
  for (const std::string_view infix : infixes) shorten(temporary_prefix(target.name(), infix));
  std::vector<std::string> removed;
  struct stat s;
  const auto in_two_steps = os::is_replaced_in_two_steps(target);
  if (!in_two_steps) return removed;
  if (*in_two_steps) {
    target.renew();  // what this host remembers to be there may have the second name alone
    if (target.stat(&s) == -ENOENT && !os::await_rename_over(target, {})) return removed;
    shorten(temporary_prefix(target.name(), os::second_name_infix));
  }
  for (const std::string &name : os::Neighbours::beginning_with(target, prefix, listed)) {
    const bool is_one = std::any_of(infixes.begin(), infixes.end(), [&](std::string_view infix) {
      return is_temporary_of(name, target.name(), infix);
    });
    if (is_one && remove_unlocked(target.beside(name))) removed.push_back(removed_new_file(name));
    if (*in_two_steps && os::had_name(name) == target.name() && target.stat(&s) == 0)
      remove_unlocked(target.beside(name));
  }
  return removed;
}

bool TemporaryFile::is_any(const os::Location &target, std::string_view infix, os::Neighbours *listed) {
  const auto names = os::Neighbours::beginning_with(target, temporary_prefix(target.name(), infix), listed);
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string &name) { return is_temporary_of(name, target.name(), infix); });
}

Result<std::unique_ptr<TemporaryFile>> TemporaryFile::create(const os::Location &target, mode_t mode,
                                                             std::string_view infix, Stale stale) {
  std::unique_ptr<TemporaryFile> r(new TemporaryFile(target, infix, mode));
  if (infix == temporary_infix) {
    // Another host may take this one for dead, and write its own file under a name that both know. This one would then
    // rename that file.
    r->may_have_first_name_ = target.is_of_this_machine();
    if (stale == Stale::to_be_removed && r->may_be_left()) remove_stale(target);
  }
  ST_TRY(r->make());
  return r;
}

// The folder may hold a hundred thousand other files, each of which is saved after such a look.
bool TemporaryFile::may_be_left() const {
  const std::string prefix = temporary_prefix(target_.name(), infix_);
  struct stat s;
  return !may_have_first_name_ ||
         std::any_of(std::begin(first_digits), std::end(first_digits),
                     [&](std::string_view d) { return target_.beside(prefix + std::string(d)).stat(&s) != -ENOENT; });
}

Result<void> TemporaryFile::make() {
  constexpr size_t attempts = 100;
  const size_t first = may_have_first_name_ ? std::size(first_digits) : 0;
  const std::string prefix = temporary_prefix(target_.name(), infix_);
  Error last;
  for (size_t i = 0; i < attempts; ++i) {
    temporary_ = prefix + (i < first ? std::string(first_digits[i]) : os::random_name(env()));
    auto file = os::File::open(env(), target_.dir(), temporary_, O_RDWR | O_CREAT | O_EXCL, mode_, target_.path());
    if (!file) {
      if (file.error().os_errno == EACCES)
        return Failure(os_error(EACCES, text("create a new ", in_quotes(target_.name()), " in the folder"),
                                target_.folder()->path()));
      if (file.error().os_errno != EEXIST) return Failure(std::move(file.error()));
      last = std::move(file.error());
      continue;
    }
    file_ = std::move(*file);
    named_ = true;
    // Between the two calls somebody may take it for stale and remove it: it is
    // ours once it is both locked and linked.
    auto lock = os::RangeLock::acquire(file_, {os::whole_file(true)}, {});
    if (!lock && lock.error().status == Status::busy) {
      // The sweep that took it for stale may have removed it, and somebody else's file may have the name by now.
      named_ = false;
      if (const auto ours = file_.stat()) remove_unlocked(target_.beside(temporary_), &*ours);
      last = std::move(lock.error());
      continue;
    }
    // A filesystem without locks has no patches and no publishes to be kept
    // apart from; a file can still be saved there.
    if (!lock && lock.error().status != Status::lock_unsupported) return Failure(std::move(lock.error()));
    if (lock) lock_ = std::move(*lock);
    ST_TRY(auto s, file_.stat());
    if (s.st_nlink > 0) return {};
    named_ = false;
    lock_.release();  // or it would end the next one's, which is of file_ too
    last =
        error(Status::io, "temporary files in ", in_quotes(target_.folder()->path()), " vanish; see what removes them");
  }
  return Failure(std::move(last));
}

TemporaryFile::~TemporaryFile() {
  if (!named_ || !made_in_.this_process()) return;
  if (!is_anothers()) env().unlinkat(target_.dir(), temporary_.c_str(), 0);
}

Result<os::File> TemporaryFile::open_again() const {
  return os::File::open(env(), target_.dir(), temporary_, O_RDWR | O_NOFOLLOW, 0, target_.path());
}

}  // namespace st::write
