// A new file that is to take the place of another, or of none: built under a
// temporary name beside its target, then renamed. An open of the target sees
// the old file or the new one, whole, at every instant and after any crash.
//
// The temporary is `.<target>.st-tmp-<16 digits>` (see names.h), and locked while its writer
// lives; an unlocked one is a dead writer's, and stale. Where only this host writes, the
// first of several writers has digits that the next one looks for. So the folder is listed
// only if something may be left. A transaction on several files
// makes `.<target>.st-new-<16 digits>`: there a super-journal says, also after the
// writer's death, whether it is stale.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/control.h"
#include "newfile/names.h"
#include "os/made_in.h"
#include "os/neighbours.h"
#include "os/range_lock.h"

namespace st::write {

// The mode of a file that replaces none, and is made of none; subject to the umask.
inline constexpr mode_t mode_of_new = 0666;

struct SwapFailure {
  Error error;
  bool replaced;  // the new file stands, but a power cut may bring the old one back
};

// May a new file take the place of `file`, which was opened at `at`? Status unsupported: it is a mount point of its
// own. Status permission: it is another user's, in a sticky folder; or the folder lets nothing go (chattr).
Result<void> check_replaceable(const os::Location &at, const os::File &file);

// Removes a plain file that nobody has locked, if it is the `known` one. False: it is still there, or never was.
bool remove_unlocked(const os::Location &at, const struct stat *known = nullptr);
// What is told of a temporary that went so.
inline std::string removed_new_file(std::string_view name) {
  return text("new file ", in_quotes(name), ": it never took its place; it was removed");
}

class TemporaryFile {
 public:
  // Removes what dead writers of `target` have left if something may be, unless that was done. `mode` is subject to the
  // umask.
  enum class Stale { to_be_removed, removed };
  static Result<std::unique_ptr<TemporaryFile>> create(const os::Location &target, mode_t mode,
                                                       std::string_view infix = temporary_infix,
                                                       Stale stale = Stale::to_be_removed);
  ~TemporaryFile();

  // Called by the target's path in messages. Open for reading and writing, and locked as a whole until this object
  // dies: a process that finds it under its new name waits until that is durable.
  const os::File &file() const { return file_; }
  // Has it the rights of a file that replaces none? A caller that gives it others notes it here.
  bool is_as_new() const { return as_new_; }
  void note_as_new(bool is) { as_new_ = is; }
  // Another description of the same file, without the lock.
  Result<os::File> open_again() const;

  // What follows is in rename_into_place.cpp. Makes the file durable.
  Result<void> sync(const Control &control) const;
  // The same, gives it the name, and makes that durable. Status file_changed if the target's path no
  // longer leads to where this is: then the file is not renamed. It can be stopped until the file is durable. `may` is
  // asked right before the rename, when nothing else is left to do.
  using May = std::function<Result<void>()>;
  tl::expected<void, SwapFailure> rename_into_place(const Control &control, const May &may = {});

  // The same in steps, for a transaction on several files. The caller must sync the folder.
  const std::string &temporary() const { return temporary_; }
  // Has nobody removed it? Status io, or file_changed where another host may have.
  Result<void> check_is_there() const;
  Result<void> rename();
  // The name of the temporary from now on, which is free.
  Result<void> rename_beside(const std::string &name);
  // The temporary stays when this object dies; or after all it does not.
  void leave(bool stays = true) { named_ = !stays; }

  // Does any temporary of `target` exist? Looks into `listed`, or lists the folder.
  static bool is_any(const os::Location &target, std::string_view infix, os::Neighbours *listed = nullptr);
  // Removes temporaries of `target` whose writers are gone, after one look into the folder. Undecided ones only under
  // an exclusive lock on `target`: else one may be decided, and its writer die, after the look for a decision. Answers
  // a sentence for each.
  static std::vector<std::string> remove_stale(const os::Location &target,
                                               std::initializer_list<std::string_view> infixes = {temporary_infix},
                                               os::Neighbours *listed = nullptr);

 private:
  TemporaryFile(os::Location target, std::string_view infix, mode_t mode)
      : target_(std::move(target)), infix_(infix), mode_(mode) {}
  bool may_be_left() const;
  Result<void> make();
  os::Env &env() const { return target_.env(); }
  bool stands(const os::Location &at) const;
  // Two names are for all writers. If somebody removes the file by hand, another writer may have its name.
  // Takes no memory.
  bool is_anothers() const noexcept;
  Result<void> rename_to(const os::Location &to);

  bool may_have_first_name_ = false;  // see names.h
  const os::Location target_;
  const os::MadeIn made_in_{env()};
  const std::string infix_;
  const mode_t mode_;
  bool as_new_ = true;
  std::string temporary_;
  os::File file_;
  os::RangeLock lock_;  // of file_: dies first
  bool named_ = false;  // temporary_ exists, and is ours
};

}  // namespace st::write
