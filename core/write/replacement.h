// A new file that is to take the place of another, or of none: built under a
// temporary name beside its target, then renamed. Whoever opens the target sees
// the old file or the new one, whole, at every instant and after any crash.
//
// The temporary is `.<target>.st-tmp-<16 digits>`, and locked while its writer
// lives; one that is not is rubbish of a writer that died. One that a transaction
// on several files is to put in its place is `.<target>.st-new-<16 digits>`: there a
// super-journal says, also after its writer died, whether it is rubbish.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "os/range_lock.h"

namespace st::write {

inline constexpr std::string_view temporary_infix = ".st-tmp-", undecided_infix = ".st-new-";
// What the temporaries of a target begin with.
std::string temporary_prefix(const std::string &base, std::string_view infix);

struct SwapFailure {
  Error error;
  bool replaced;  // the new file stands, but a power cut may bring the old one back
};

class Replacement {
 public:
  // `target`: absolute, and no symbolic link. Removes what dead writers of it
  // have left. `mode` is subject to the umask.
  static Result<std::unique_ptr<Replacement>> create(os::Env &env, const std::string &target, mode_t mode,
                                                     std::string_view infix = temporary_infix);
  ~Replacement();

  // Open for reading and writing, and locked as a whole until this object
  // dies: whoever finds it under its new name waits until that is durable.
  const os::File &file() const { return file_; }
  // Another description of the same file, without the lock.
  Result<os::File> open_again() const;

  // Makes the file durable, gives it the name, and makes that durable.
  tl::expected<void, SwapFailure> take_place();

  // The same in steps, for a transaction on several files. The folder is to be synced by who calls.
  const std::string &temporary() const { return temporary_; }
  const os::File &dir() const { return dir_; }
  Result<void> rename();
  // The temporary stays, whatever becomes of this object.
  void leave() { named_ = false; }

  // Is there a temporary of `target`, whosesoever?
  static bool is_any(os::Env &env, const std::string &target, std::string_view infix);
  // Removes temporaries of `target` whose writers are gone. Undecided ones only under an exclusive lock on `target`, or
  // one may be decided, and its writer dead, after the look for whoever decides.
  static void remove_stale(os::Env &env, const std::string &target, std::string_view infix = temporary_infix);

 private:
  Replacement() = default;
  Result<void> make(mode_t mode);
  bool stands() const;
  static void remove_stale(const os::File &dir, const std::string &base, std::string_view infix);

  pid_t process_ = 0;
  os::File dir_;
  std::string base_, infix_, temporary_;
  os::File file_;
  os::RangeLock lock_;  // of file_: dies first
  bool named_ = false;  // temporary_ exists, and is ours
};

}  // namespace st::write
