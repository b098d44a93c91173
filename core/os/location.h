// Where a file is: a folder, held open, and a name in that folder. A path is resolved once. From then on everything is
// done relative to the folder: its owner may move it, or put a link in its place, and still leads nobody elsewhere.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "os/file.h"
#include "os/filesystem.h"
#include "os/range_lock.h"

namespace st::os {

// A folder, open for nothing but its entries: that takes the right to search it, and no more. Any thread, any process.
class Directory {
 public:
  // Status of the system's errno. Symbolic links are followed.
  static Result<std::shared_ptr<const Directory>> find(Env &env, const std::string &path);
  // The folder `name` in this one; not a link to one.
  Result<std::shared_ptr<const Directory>> inside(const std::string &name) const;
  ~Directory();
  Directory(const Directory &) = delete;
  Directory &operator=(const Directory &) = delete;

  Env &env() const { return file_.env(); }
  int fd() const { return file_.fd(); }
  const std::string &path() const { return file_.path(); }  // absolute, as it was when it was resolved; for messages
  std::string path_of(const std::string &name) const;
  bool is(const Directory &other) const;
  bool is_hidden() const { return hidden_; }
  Result<struct stat> identity() const { return file_.stat(); }

  struct Own {
    Filesystem filesystem;
    bool has_other_hosts;
  };
  // Its own storage, asked once; the answer lives as long as this. It is open for nothing but its entries, which does
  // not tell all: a file that is open tells more. What fails is asked again: no answer must stand for "local".
  Result<const Own *> storage() const;

  // These need the right to read it.
  Result<std::vector<std::string>> list() const;
  Result<void> sync() const;
  // For a sync that is sure to have its descriptor when its time comes.
  Result<File> to_sync() const;

 private:
  friend class Location;
  friend class Walk;
  struct Linked {
    std::shared_ptr<const Directory> to;
    Linked *before;
  };

  // What was found out of the files in it: they seldom lie on different mounts.
  struct Known {
    dev_t dev;
    Filesystem filesystem;
  };

  explicit Directory(File file, bool hidden = false) : file_(std::move(file)), hidden_(hidden) {}
  static Result<std::shared_ptr<const Directory>> open(Env &env, int dir, const char *name, int flags,
                                                       std::string shown, bool hidden);
  // The same folder, if a link from here has led there before: so that all files of a cache share one descriptor.
  std::shared_ptr<const Directory> shared(std::shared_ptr<const Directory> to) const;

  File file_;
  const bool hidden_;  // no path from the root leads to it, or only one by way of /proc, which may end
  mutable std::atomic<Linked *> linked_ = nullptr;
  mutable std::atomic<Known *> known_ = nullptr;
  mutable std::atomic<const Own *> own_ = nullptr;
};

// The path, so that it means the same from any folder. Not resolved.
Result<std::string> absolute(Env &env, const std::string &path);

class Walk;

class Location {
 public:
  Location() = default;  // of nothing
  // Symbolic links are followed, that of the last component too. The file need not exist. One that has no name, and is
  // found by /proc/self/fd, can be opened to be read.
  static Result<Location> find(Env &env, const std::string &path);
  // The same with one system call, of a path with no link before its last component, which is not looked at: opening it
  // fails with ELOOP if that is one. Nothing where all of the path must be walked.
  static std::optional<Location> find_unlinked(Env &env, const std::string &path);
  // The same of a file to be made: a link that leads to nothing is what is to be replaced. Status unsupported if there
  // is a file, but one without a name; not_regular if that is a pipe.
  static Result<Location> find_new(Env &env, const std::string &path);
  // The entry `name` of `folder`, which may be a link.
  static Result<Location> find_in(std::shared_ptr<const Directory> folder, const std::string &name);
  // The same, by the path that led to the folder: it is that which must still lead here.
  static Result<Location> find_in(std::shared_ptr<const Directory> folder, const std::string &name,
                                  const std::string &given);
  // An entry of `folder`, not followed.
  Location(std::shared_ptr<const Directory> folder, std::string name);

  explicit operator bool() const { return folder_ != nullptr; }
  Env &env() const { return folder_->env(); }
  const std::shared_ptr<const Directory> &folder() const { return folder_; }
  int dir() const { return folder_->fd(); }
  const std::string &name() const { return name_; }
  const std::string &path() const { return path_; }  // absolute, for messages
  Location beside(std::string name) const { return {folder_, std::move(name)}; }
  // The same entry, which messages call by the name that it will have.
  Location shown_as(const std::string &name) const;

  // Never through a link: status file_changed if the file became one. To write what has no name: statuses of find_new.
  Result<File> open(int flags, mode_t mode = 0) const;
  // What the entry itself is: 0 or -errno.
  int stat(struct stat *out) const;
  int64_t birth_time() const;  // see Env
  // Does the name by now lead to another file than the open one, or to none? Status file_changed if it leads to that
  // file still, but the path that was resolved no longer leads here.
  Result<bool> was_replaced(const File &file) const;
  // Does the path that was resolved still lead here? Status file_changed: its folder was moved, or a link was changed.
  Result<void> check_led_to() const;

  // Is a file, which was opened here, mounted by itself, so that no other can take its place? False if that cannot be
  // told. Fails where no descriptor is left to ask by.
  Result<bool> is_mount(const File &file) const { return lie_on_two_mounts(file, folder_->file_); }

  // The storage of a file here. Asked once, if all files of the folder lie on one mount.
  Filesystem filesystem(const File &file, const struct stat &s) const;
  // May other hosts change it? Costs no system call where it lies on a disk of this machine.
  bool has_other_hosts(const struct stat &s) const { return how_to_read(s) != PastCache::no; }
  // Is the folder on a disk of this machine, or in its memory? Then no other host writes there, whether they share
  // locks or, as on most object stores, they do not. A process may write to the disk for its kernel (ntfs-3g).
  bool is_of_this_machine() const;
  // And so how its bytes are to be asked for, if a decision rests on them.
  PastCache how_to_read(const struct stat &s) const;
  // Then `file`, which was opened here, is read past this kernel's cache, and `s` is looked up anew. Status of ESTALE
  // if the name leads to another by now.
  Result<void> read_past_cache(File *file, struct stat *s) const;
  // Whatever this kernel remembers of the name, the next look asks the server.
  void renew() const;

 private:
  friend class Folders;
  Location(std::shared_ptr<const Directory> folder, std::string name, const std::string &given);
  Location(const Walk &walk, std::shared_ptr<const Directory> folder, std::string name);
  static Location entry_at(const Walk &walk);
  static Result<Location> entry_of(Walk &walk);
  static Result<Location> new_entry_of(Walk &walk);
  Result<Location> find_again(bool as_new) const;
  static PastCache how_to_read(const Filesystem &filesystem);
  bool has_other_hosts() const;  // if there were a file here, or perhaps
  Filesystem filesystem_by_folder(const struct stat &s) const;
  Error no_name() const;
  bool is_led_to_at_once() const;
  Result<bool> is_led_to() const;

  std::shared_ptr<const Directory> folder_;
  std::string name_, path_;
  std::string given_;  // made absolute
  // Where the folder cannot be reached from the root, and the path has none: the folder that it begins in, and the path
  // from there. Else null.
  std::shared_ptr<const Directory> here_;
  std::string from_here_;
  bool nameless_ = false;
};

// Folders that are open: files that are found one by one share them.
class Folders {
 public:
  // If the location lies in one of them it is shared from now on, else it is one of them.
  void share(Location *at);

 private:
  std::vector<std::shared_ptr<const Directory>> open_;
};

// Whatever this kernel remembers of the name in the folder, the next look asks the server.
void renew_name(Env &env, int folder, const std::string &name);

// A plain file, opened without blocking on pipes and devices; and what its stat() said. Another program may have a
// lease on it, as Samba and servers of NFS take them: `wait` says how long it has to give that back. Status busy if it
// does not.
Result<File> open_regular(const Location &at, int flags, struct stat *identity = nullptr,
                          const LockWait &wait = {default_lock_timeout_ms});

}  // namespace st::os
