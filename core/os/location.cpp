#include "os/location.h"

#include <algorithm>
#include <utility>

#include "base/url.h"
#include "os/path.h"
#include "os/remote_source.h"
#include "os/rename_over.h"

namespace st::os {
namespace {

constexpr int folder_flags = O_PATH | O_DIRECTORY;

std::string parent_of(const std::string &path) {
  return split_path(path).first;
}

// Does the path lead to what that is?
bool leads_to(Env &env, const std::string &path, int dir, const char *name) {
  struct stat by_path, there;
  return env.fstatat(AT_FDCWD, path.c_str(), &by_path, 0) == 0 && env.fstatat(dir, name, &there, 0) == 0 &&
         same_inode(by_path, there);
}

Error no_plain_file(const std::string &path) {
  return error(Status::not_regular, in_quotes(path), " is no plain file; give the path of a .safetensors file");
}

}  // namespace

Result<std::shared_ptr<const Directory>> Directory::open(Env &env, int dir, const char *name, int flags,
                                                         std::string shown, bool hidden) {
  ST_TRY(auto file, File::open(env, dir, name, folder_flags | flags, 0, std::move(shown)));
  return std::shared_ptr<const Directory>(new Directory(std::move(file), hidden));
}

Directory::~Directory() {
  for (Linked *l = linked_.load(); l;) delete std::exchange(l, l->before);
  delete known_.load();
  delete own_.load();
}

Result<std::shared_ptr<const Directory>> Directory::inside(const std::string &name) const {
  return open(env(), fd(), name.c_str(), O_NOFOLLOW, path_of(name), hidden_);
}

bool Directory::is(const Directory &other) const {
  if (this == &other) return true;
  const auto mine = identity(), theirs = other.identity();
  return mine && theirs && same_inode(*mine, *theirs);
}

std::string Directory::path_of(const std::string &name) const {
  return path() + (path().ends_with('/') ? "" : "/") + name;
}

Result<std::vector<std::string>> Directory::list() const {
  std::vector<std::string> names;
  if (const int r = env().list(fd(), &names); r < 0) return Failure(os_error(-r, "list", path()));
  return names;
}

Result<File> Directory::to_sync() const {
  auto folder = File::open(env(), fd(), ".", O_RDONLY | O_DIRECTORY, 0, path());
  if (!folder && folder.error().os_errno == EACCES)
    folder.error().message +=
        "; a change is durable once its folder was synced, and that takes the right to read the folder";
  return folder;
}

Result<void> Directory::sync() const {
  ST_TRY(auto folder, to_sync());
  return folder.sync();
}

// No mutex: a thread that a fork left behind may hold it.
std::shared_ptr<const Directory> Directory::shared(std::shared_ptr<const Directory> to) const {
  constexpr size_t most = 16;
  Linked *last = linked_.load(std::memory_order_acquire);
  for (;;) {
    size_t n = 0;
    for (const Linked *l = last; l; l = l->before, ++n)
      if (l->to->is(*to)) return l->to;
    if (n >= most) return to;
    auto linked = std::make_unique<Linked>(Linked{to, last});
    if (linked_.compare_exchange_strong(last, linked.get(), std::memory_order_acq_rel)) return linked.release()->to;
  }
}

// A path, followed component by component, each relative to an open folder: nobody can put a link where none was seen.
class Walk {
 public:
  Walk(Env &env, const std::string &path) : env_(env), path_(plain_path(path)) {}
  Walk(std::shared_ptr<const Directory> from, const std::string &name)
      : env_(from->env()), path_(name), hidden_(from->hidden_), at_(std::move(from)), start_(at_), began_(start_) {}

  // To the folder that the last component lies in; the component is name().
  Result<void> to_entry() { return go(path_, false); }
  Result<void> to_folder() { return go(path_, true); }
  const std::shared_ptr<const Directory> &at() const { return at_; }
  const std::string &name() const { return name_; }
  // Where the path's own last component stands, if that is a link.
  const std::shared_ptr<const Directory> &linked_in() const { return linked_in_; }
  const std::string &link() const { return link_; }
  // Whether name() is an entry of /proc that leads to an open file which has no name of its own.
  bool nameless() const { return nameless_; }
  // Whether the path leads to a folder or to nothing, as it ends in a slash.
  bool is_closed() const { return path_.ends_with('/'); }
  // The working directory, if the path begins there and no path from the root leads there. Else null.
  std::shared_ptr<const Directory> here() const { return began_->is_hidden() ? began_ : nullptr; }
  const std::string &path() const { return path_; }
  // The path, so that it means the same from any folder.
  std::string absolute() const { return root_of(path_).empty() ? began_->path_of(path_) : path_; }

 private:
  Result<void> go(std::string rest, bool folder);
  Result<void> begin(std::string *rest);
  Result<void> step(const std::string &part, std::string *rest);
  Result<void> jump(const std::string &part, const std::string &target);
  int read_link(const std::string &part, std::string *target);
  bool is_in_proc() const;
  bool leads_nowhere(const std::string &part, const std::string &target) const;
  Result<void> check_folder(const std::string &part) const;
  Failure failure(int err) const { return Failure(os_error(err, "open", shown())); }
  std::string shown() const { return start_ ? start_->path_of(path_) : path_; }

  Env &env_;
  const std::string path_;
  bool hidden_ = false;  // whether no path leads there from the root
  std::shared_ptr<const Directory> at_;
  const std::shared_ptr<const Directory> start_;  // of an entry
  std::string name_;
  std::shared_ptr<const Directory> linked_in_;
  std::string link_;
  std::string jumped_to_;  // the path of a link of /proc that was followed
  std::shared_ptr<const Directory> began_;
  bool nameless_ = false;
  int links_left_ = 40;
};

// An absolute path loses its root.
Result<void> Walk::begin(std::string *rest) {
  const std::string root(root_of(*rest));
  if (at_ && root.empty()) return {};
  rest->erase(0, root.size());
  std::string shown = root;
  if (root.empty())
    if (const int r = env_.realpath(".", &shown); r < 0) return failure(-r);
  hidden_ = root.empty() && !leads_to(env_, shown, AT_FDCWD, ".");
  auto opened = Directory::open(env_, AT_FDCWD, root.empty() ? "." : root.c_str(), 0, std::move(shown), hidden_);
  if (!opened) return failure(opened.error().os_errno);
  at_ = std::move(*opened);
  if (!began_) began_ = at_;
  return {};
}

int Walk::read_link(const std::string &part, std::string *target) {
  const int r = env_.readlinkat(at_->fd(), part.c_str(), target);
  if (r >= 0 && links_left_-- == 0) return -ELOOP;
  return r;
}

bool Walk::is_in_proc() const {
  struct statfs fs;
  return env_.fstatfs(at_->fd(), &fs) == 0 && fs.f_type == PROC_SUPER_MAGIC;
}

// A link in /proc gives no path for a file that was deleted, or never had a name (memfd_create, O_TMPFILE, a pipe).
bool Walk::leads_nowhere(const std::string &part, const std::string &target) const {
  if (!is_in_proc()) return false;
  struct stat open, named;
  if (env_.fstatat(at_->fd(), part.c_str(), &open, 0) < 0 || S_ISDIR(open.st_mode)) return false;
  return env_.fstatat(AT_FDCWD, target.c_str(), &named, 0) < 0 || !same_inode(open, named);
}

Result<void> Walk::check_folder(const std::string &part) const {
  struct stat s;
  if (const int r = env_.fstatat(at_->fd(), part.c_str(), &s, 0); r < 0) return failure(-r);
  if (!S_ISDIR(s.st_mode)) return failure(ENOTDIR);
  return {};
}

// Into the folder `part`; of a link what it says comes before the rest.
Result<void> Walk::step(const std::string &part, std::string *rest) {
  if (part == "..") {
    const bool jumped = !jumped_to_.empty() && at_->path() == jumped_to_;
    std::string shown = jumped ? at_->path_of("..") : parent_of(at_->path());
    if (jumped) jumped_to_ = shown;
    auto up = Directory::open(env_, at_->fd(), "..", 0, std::move(shown), hidden_);
    if (!up) return failure(up.error().os_errno);
    at_ = std::move(*up);
    return {};
  }
  auto in = at_->inside(part);
  if (in) {
    at_ = std::move(*in);
    return {};
  }
  const int err = in.error().os_errno;
  if (err != ENOTDIR && err != ELOOP) return failure(err);
  std::string target;
  const int r = read_link(part, &target);
  if (r < 0) return failure(r == -EINVAL ? ENOTDIR : -r);
  if (!root_of(target).empty() && is_in_proc()) return jump(part, target);
  *rest = target + "/" + *rest;
  return begin(rest);
}

// The path that such a link tells is one of another process, whose root and mounts may be others: the kernel knows.
// Where it leads there for us, too, it stays right when that process ends or closes its descriptor.
Result<void> Walk::jump(const std::string &part, const std::string &target) {
  std::string shown;
  hidden_ = env_.realpath(target.c_str(), &shown) < 0 || !leads_to(env_, shown, at_->fd(), part.c_str());
  if (hidden_) shown = at_->path_of(part);
  jumped_to_ = hidden_ ? shown : "";
  auto led = Directory::open(env_, at_->fd(), part.c_str(), 0, std::move(shown), hidden_);
  if (!led) return failure(led.error().os_errno);
  at_ = std::move(*led);
  return {};
}

Result<void> Walk::go(std::string rest, bool folder) {
  if (rest.empty()) return failure(ENOENT);
  ST_TRY(begin(&rest));
  bool is_own = true;  // still the path that was given, at its end
  while (true) {
    rest.erase(0, rest.find_first_not_of('/'));
    const std::string part = rest.substr(0, rest.find('/'));
    rest.erase(0, part.size());
    const bool closed = !rest.empty();
    rest.erase(0, rest.find_first_not_of('/'));
    if (part.empty()) break;
    if (part == ".") continue;
    if (folder || !rest.empty() || part == "..") {
      ST_TRY(step(part, &rest));
      continue;
    }
    std::string target;
    const int r = read_link(part, &target);
    if (r == -EINVAL || r == -ENOENT) {
      if (closed) ST_TRY(check_folder(part));
      name_ = part;
      return {};
    }
    if (r < 0) return failure(-r);
    if (leads_nowhere(part, target)) {
      if (closed) return failure(ENOTDIR);
      name_ = part;
      nameless_ = true;
      return {};
    }
    if (std::exchange(is_own, false)) {
      linked_in_ = at_;
      link_ = part;
    }
    rest = closed ? target + "/" : target;
    ST_TRY(begin(&rest));
  }
  if (!folder) name_ = ".";  // a folder, where a file is looked for
  return {};
}

Result<std::string> absolute(Env &env, const std::string &path) {
  std::string plain = plain_path(path), here;
  if (!root_of(plain).empty()) return plain;
  if (const int r = env.realpath(".", &here); r < 0) return Failure(os_error(-r, "open", path));
  return here + "/" + plain;
}

namespace {

// Nothing is there, and the path is a URL: say so, where a local file is meant.
Failure unless_url(Error e, const std::string &path) {
  if (e.os_errno != ENOENT || !is_url(path)) return Failure(std::move(e));
  return fail(Status::unsupported, in_quotes(without_secrets(path)),
              " is a URL, of which libst only reads models; give the path of a file");
}

}  // namespace

Result<std::shared_ptr<const Directory>> Directory::find(Env &env, const std::string &path) {
  Walk walk(env, path);
  if (auto done = walk.to_folder(); !done) return unless_url(std::move(done.error()), path);
  return walk.at();
}

Location::Location(std::shared_ptr<const Directory> folder, std::string name)
    : folder_(std::move(folder)), name_(std::move(name)), path_(folder_->path_of(name_)), given_(path_) {
  if (!folder_->hidden_) return;
  here_ = folder_;
  from_here_ = name_;
}

Location::Location(std::shared_ptr<const Directory> folder, std::string name, const std::string &given)
    : folder_(std::move(folder)), name_(std::move(name)), path_(folder_->path_of(name_)), given_(given) {}

Location::Location(const Walk &walk, std::shared_ptr<const Directory> folder, std::string name)
    : Location(std::move(folder), std::move(name), walk.absolute()) {
  here_ = walk.here();
  from_here_ = walk.path();
}

Location Location::entry_at(const Walk &walk) {
  Location found(walk, walk.at(), walk.name());
  found.nameless_ = walk.nameless();
  return found;
}

Result<Location> Location::entry_of(Walk &walk) {
  ST_TRY(walk.to_entry());
  return entry_at(walk);
}

Error Location::no_name() const {
  struct stat s;
  if (stat(&s) == 0 && !S_ISREG(s.st_mode)) return no_plain_file(path_);
  return error(Status::unsupported, in_quotes(path_),
               " leads to an open file without a name, which can be read, but not changed or replaced; give it a name "
               "(linkat), or copy it");
}

Result<Location> Location::find(Env &env, const std::string &path) {
  return while_stale([&]() -> Result<Location> {
    Walk walk(env, path);
    auto found = entry_of(walk);
    if (!found) return unless_url(std::move(found.error()), path);
    return found;
  });
}

std::optional<Location> Location::find_unlinked(Env &env, const std::string &path) {
  auto whole = absolute(env, path);
  if (!whole || whole->ends_with('/')) return std::nullopt;
  const std::string closed = *whole + "/";
  for (const char *odd : {"//", "/./", "/../"})
    if (closed.find(odd) != std::string::npos) return std::nullopt;
  // From where it begins. By a path from the root something else may be mounted there, or in it.
  const std::string folder = parent_of(*whole);
  auto opened = File::open_without_links(env, parent_of(plain_path(path)), folder_flags, folder);
  if (!opened) return std::nullopt;
  if (root_of(*whole) != root_of(plain_path(path)) && !leads_to(env, folder, opened->fd(), ".")) return std::nullopt;
  const std::shared_ptr<const Directory> in(new Directory(std::move(*opened)));
  return Location(in, whole->substr(whole->rfind('/') + 1), *whole);
}

Result<Location> Location::new_entry_of(Walk &walk) {
  auto done = walk.to_entry();
  if (!done && (done.error().os_errno != ENOENT || !walk.linked_in() || walk.is_closed()))
    return unless_url(std::move(done.error()), walk.path());
  if (walk.nameless()) return Failure(entry_at(walk).no_name());
  struct stat s;
  if (walk.linked_in() && (!done || Location(walk.at(), walk.name()).stat(&s) == -ENOENT))
    return Location(walk, walk.linked_in(), walk.link());
  return Location(walk, walk.at(), walk.name());
}

Result<Location> Location::find_new(Env &env, const std::string &path) {
  Walk walk(env, path);
  return new_entry_of(walk);
}

Result<Location> Location::find_in(std::shared_ptr<const Directory> folder, const std::string &name) {
  const std::string given = folder->path_of(name);
  return find_in(std::move(folder), name, given);
}

Result<Location> Location::find_in(std::shared_ptr<const Directory> folder, const std::string &name,
                                   const std::string &given) {
  return while_stale([&]() -> Result<Location> {
    Walk walk(folder, name);
    ST_TRY(walk.to_entry());
    Location found(walk.at()->is(*folder) ? folder : folder->shared(walk.at()), walk.name(), given);
    if (folder->hidden_) {
      found.here_ = folder;
      found.from_here_ = name;
    }
    return found;
  });
}

Location Location::shown_as(const std::string &name) const {
  Location shown = *this;
  shown.path_ = folder_->path_of(name);
  return shown;
}

Result<File> Location::open(int flags, mode_t mode) const {
  if (nameless_ && (flags & O_ACCMODE) != O_RDONLY) return Failure(no_name());
  auto file = File::open(env(), dir(), name_, flags | (nameless_ ? 0 : O_NOFOLLOW), mode, path_);
  if (!file && file.error().os_errno == ELOOP) {
    file.error().status = Status::file_changed;
    file.error().message = text(in_quotes(path_), " was replaced by a symbolic link; open it anew by its path");
  }
  return file;
}

// A kernel that leads the name to a file that is gone may say so of the name, until the server is asked for that.
int Location::stat(struct stat *out) const {
  const auto look = [&] { return env().fstatat(dir(), name_.c_str(), out, nameless_ ? 0 : AT_SYMLINK_NOFOLLOW); };
  const int r = look();
  if (r != -ENOENT || !has_other_hosts()) return r;
  renew();
  return look();
}

int64_t Location::birth_time() const {
  return env().birth_time(dir(), name_.c_str());
}

Result<bool> Location::was_replaced(const File &file) const {
  auto opened = file.stat();
  if (!opened && opened.error().os_errno == ESTALE) return true;
  if (!opened) return Failure(std::move(opened.error()));
  if (!nameless_ && opened->st_nlink == 0) return true;  // the name may be remembered still
  auto is_other = [&]() -> Result<bool> {
    struct stat named;
    if (file.reads_past_cache()) renew();
    const int r = stat(&named);
    if (r < 0 && r != -ENOENT && r != -ESTALE) return Failure(os_error(-r, "look at", path_));
    return r < 0 || !same_inode(*opened, named);
  };
  auto other = is_other();
  if (!other || *other) return other;
  auto led = check_led_to();
  if (led || led.error().status != Status::file_changed) {
    if (!led) return Failure(std::move(led.error()));
    return false;
  }
  // It may have been replaced between the two looks, together with a link to it.
  other = is_other();
  if (!other || *other) return other;
  return Failure(std::move(led.error()));
}

// As the kernel follows the path, which takes a look at the folder and one at the name. Else step by step.
bool Location::is_led_to_at_once() const {
  const auto [folder, name] = split_path(given_);
  struct stat by_path, entry;
  if (nameless_ || name != name_ || env().fstatat(AT_FDCWD, folder.c_str(), &by_path, 0) < 0) return false;
  const auto mine = folder_->identity();
  return mine && same_inode(*mine, by_path) && stat(&entry) == 0 && !S_ISLNK(entry.st_mode);
}

// Where no path from the root leads to the working directory, the rest of the path must do.
Result<Location> Location::find_again(bool as_new) const {
  if (!here_) return as_new ? find_new(env(), given_) : find(env(), given_);
  return while_stale([&] {
    Walk walk(here_, from_here_);
    return as_new ? new_entry_of(walk) : entry_of(walk);
  });
}

Result<bool> Location::is_led_to() const {
  if (is_led_to_at_once()) return true;
  for (const bool as_new : {false, true}) {
    auto now = find_again(as_new);
    if (now && now->folder_->is(*folder_) && now->name_ == name_) return true;
    if (now) continue;
    const int err = now.error().os_errno;
    if (err != ENOENT && err != ENOTDIR && err != ELOOP && err != ESTALE) return Failure(std::move(now.error()));
  }
  return false;
}

Result<void> Location::check_led_to() const {
  ST_TRY(auto led, is_led_to());
  if (led) return {};
  return fail(Status::file_changed, in_quotes(given_), " no longer leads to the file that was opened, which was ",
              in_quotes(path_), ": its folder was moved, or a link was changed; open it anew by its path");
}

void Folders::share(Location *at) {
  const auto known = std::ranges::find_if(open_, [&](const auto &folder) { return folder->is(*at->folder_); });
  if (known == open_.end())
    open_.push_back(at->folder_);
  else
    at->folder_ = *known;
}

namespace {

// A kernel looks at a name, and then opens what it leads to. If another host replaces the file in between, the server
// may answer ENOENT. The name has led to a file all the time.
Result<File> open_named(const Location &at, int flags) {
  auto file = at.open(flags);
  struct stat s;
  if (!file && file.error().os_errno == ENOENT && at.stat(&s) == 0) file.error().os_errno = ESTALE;
  return file;
}

// The kernel asks for the lease back as soon as somebody opens the file. It would wait itself, and nothing would end
// that; so it is told not to, and answers EAGAIN.
Result<File> open_leased(const Location &at, int flags, const LockWait &wait) {
  auto file = open_named(at, flags);
  if (file || file.error().os_errno != EAGAIN) return file;
  const File closed = File::closed(at.env(), at.path());
  Patience patience(closed, wait);
  while (!file && file.error().os_errno == EAGAIN) {
    auto more = patience.check(no_offset);
    if (!more && more.error().status == Status::busy)
      return fail(Status::busy, "another program has a lease on ", in_quotes(at.path()),
                  ", as servers of files take it, and does not give it back; try again, or allow more time");
    ST_TRY(std::move(more));
    patience.sleep();
    file = open_named(at, flags);
  }
  return file;
}

}  // namespace

Result<File> open_regular(const Location &at, int flags, struct stat *identity, const LockWait &wait) {
  bool again = false;
  const auto look = [&]() -> Result<File> {
    // This kernel may still lead the name to the file that is there no more.
    if (std::exchange(again, true)) at.renew();
    ST_TRY(auto file, open_leased(at, flags | O_NONBLOCK | O_NOCTTY, wait));
    ST_TRY(auto s, file.stat());
    ST_TRY(at.read_past_cache(&file, &s));
    if (identity) *identity = s;
    if (!S_ISREG(s.st_mode)) return Failure(no_plain_file(at.path()));
    return file;
  };
  auto file = while_stale(look);
  for (int left = 10; !file && file.error().os_errno == ENOENT && left > 0; --left) {
    ST_TRY(const bool changed, await_rename_over(at, wait));
    if (!changed) break;
    file = while_stale(look);
  }
  return file;
}

}  // namespace st::os
