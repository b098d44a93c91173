// The folder `<file>.st-journal` (see names.h) beside a data file, where each transaction has
// one journal. Holds no paths and follows no links. Trusts what the file's
// owner, root and this user made: anything else may have been planted.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/control.h"
#include "journal/journal.h"
#include "journal/verdict.h"
#include "newfile/names.h"
#include "os/location.h"
#include "os/per_process.h"

namespace st::write {

inline constexpr std::string_view aside_suffix = ".bad";
inline constexpr std::string_view gone_suffix =
    ".gone";  // of a journal that is about to be unlinked: see drop_for_good
bool is_dropped(std::string_view name);
// What has another name is nobody's journal, whatever is in it: it is not written to, nor removed.
bool may_be_journal(std::string_view name);

// An open journal folder.
class Folder {
 public:
  // Nothing, if there is none: the usual case costs one system call. Status
  // journal if it may have been planted; where anybody may create files beside
  // `file` that says nothing about it, so it is logged and passed over.
  static Result<std::optional<Folder>> open(const os::Location &file, const struct stat &data, const Log &log);
  // The same, and none is passed over. One that keeps others out may be in the making: it is waited for, a stranger's
  // only if `awaits_strangers`.
  static Result<std::optional<Folder>> open_trusted(const os::Location &file, const struct stat &data,
                                                    bool awaits_strangers = true);
  // Does open() pass over what open_trusted() so `refused`?
  static bool may_be_planted(const Error &refused, const os::Location &file, const struct stat &data);
  // Another user's, which may be planted: to be looked at, and not believed.
  static Result<Folder> open_untrusted(const os::Location &file);
  // Made if there is none, and its entry in the parent durable.
  static Result<Folder> create(const os::Location &file, const struct stat &data);
  // Does nothing while anybody has a journal in it.
  static bool remove_if_empty(const os::Location &file);  // whether it was there, and went
  static constexpr const char *removed_empty = "an empty journal folder was removed";

  const os::File &dir() const { return dir_; }
  // What a journal in it gets.
  const Rights &rights() const { return rights_; }
  // A journal in it, just opened; what other hosts write to it is seen.
  void opened(os::File *journal) const { journal->read_like(dir_); }
  // The error of a journal that could not be made. In another user's folder it names that user, with status journal.
  Error cannot_make(Error e) const;
  Result<std::vector<std::string>> journals() const;  // names, without those moved aside

 private:
  os::File dir_;
  Rights rights_;
};

// Was what we looked at removed meanwhile? A server says so in its own way.
bool is_gone(const Error &e);

// How a user finishes what a journal or folder of this user began: the end of a message to another user.
std::string who_finishes(uid_t user);

// May what is beside a file, by its owner and mode, be trusted by `self`? Anybody may write to it only if anybody may
// write to the file, too: so it is of all files on a disk of Windows, as a rule, or after `chmod -R 777`.
Verdict trust(const struct stat &s, const struct stat &data, uid_t self);

// A handle's journals. Retired ones are parked for the next transaction, which
// saves creating, allocating and freeing a file each time; they are unlinked,
// and the folder with the last, when the handle is closed.
class JournalFolder {
 public:
  JournalFolder(os::Location file, struct stat data);
  ~JournalFolder();

  // A journal and the folder that it lies in.
  struct Taken {
    std::unique_ptr<Journal> journal;
    std::shared_ptr<Folder> folder;
  };
  // One that is empty and locked, for a transaction.
  Result<Taken> take();
  // To be gone on with: as that one will be.
  JournalPlan plan_next() const;
  // Takes an empty one back: invalidated, or never committed.
  void give_back(Taken taken) noexcept;
  // Removes those that wait.
  void close_idle() noexcept;
  // The file that the name leads to now, and which is locked: no power cut will bring another back. The
  // writer that gave it the name may have died before it synced that.
  Result<void> make_name_durable(uint64_t inode);
  // This is the file that the handle shows from now on. (Of another the number may be given to a third.)
  void follow(uint64_t inode) {
    shown_ = inode;
    if (named_ != inode) named_ = 0;
  }
  // Is it the folder that stands beside the file now?
  Result<bool> stands(const Folder &folder) const;
  // Does recovery find it there, in the folder that stands beside the file now?
  Result<bool> is_beside(const Taken &taken) const;
  // The same; status io if not. Takes no memory if so: it is also asked after the point of no return.
  Result<void> check_beside(const Taken &taken) const;

 private:
  static constexpr size_t most_parked = 4;
  struct Kept {
    Kept() { parked.reserve(most_parked); }
    std::mutex mutex;  // of what follows
    std::shared_ptr<Folder> folder;
    std::vector<std::unique_ptr<Journal>> parked;
  };
  void remove_if_empty() noexcept;
  void close_unused(Kept &kept) noexcept;
  void drop_parked(Kept &kept) noexcept;
  void drop_guessed(Kept &kept) noexcept;

  os::Env &env_;
  const os::Location file_, beside_;  // and the folder
  const struct stat data_;
  // Under its name, durably. What `data_` was of is so from the first journal on, as making the folder syncs its
  // parent.
  std::atomic<uint64_t> named_;
  std::atomic<uint64_t> shown_;
  mutable os::PerProcess<Kept> kept_;  // a child's are its own, and its parent's locks not the child's
};

}  // namespace st::write
