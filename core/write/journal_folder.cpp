#include "write/journal_folder.h"

#include <cerrno>

namespace st::write {
namespace {

constexpr uint64_t largest_parked = uint64_t{256} << 20;
constexpr size_t most_parked = 4;

std::string folder_path(const std::string &path) {
  return path + std::string(folder_suffix);
}

}  // namespace

std::string distrust(const struct stat &s, const struct stat &data, uid_t self) {
  if (s.st_mode & S_IWOTH) return "anybody may write to it";
  if (s.st_uid != self && s.st_uid != data.st_uid && s.st_uid != 0)
    return text("it belongs to user ", s.st_uid, ", who is neither the file's owner nor you");
  return {};
}

Result<os::File> Folder::open_dir(os::Env &env, const std::string &path) {
  return os::File::open(env, AT_FDCWD, folder_path(path), O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, folder_path(path));
}

Result<std::optional<Folder>> Folder::open(os::Env &env, const std::string &path, const struct stat &data,
                                           const Log &log) {
  auto dir = open_dir(env, path);
  if (!dir && dir.error().os_errno == ENOENT) return std::nullopt;
  std::string why;
  if (!dir) {
    if (dir.error().os_errno != ENOTDIR && dir.error().os_errno != ELOOP) return Failure(std::move(dir.error()));
    why = "it is no folder";
  } else {
    auto s = dir->stat();
    if (!s) return Failure(std::move(s.error()));
    why = distrust(*s, data, env.geteuid());
  }
  if (why.empty()) {
    Folder folder;
    folder.dir_ = std::move(*dir);
    return folder;
  }
  why = text("the journal folder ", in_quotes(folder_path(path)), " is not to be trusted: ", why);
  struct stat parent;
  if (env.fstatat(AT_FDCWD, os::split_path(path).first.c_str(), &parent, 0) == 0 && (parent.st_mode & S_IWOTH)) {
    if (log) log(LogLevel::warning, why + "; it was passed over");
    return std::nullopt;
  }
  return fail(Status::journal, why, "; have the file's owner look at it and remove it");
}

Result<Folder> Folder::create(os::Env &env, const std::string &path, const struct stat &data) {
  const std::string name = folder_path(path);
  const int made = os::repeat_interrupted([&] { return env.mkdirat(AT_FDCWD, name.c_str(), 0700); });
  if (made < 0 && made != -EEXIST) return Failure(os_error(-made, "create the journal folder", name));
  auto dir = open_dir(env, path);
  if (!dir && (dir.error().os_errno == ENOTDIR || dir.error().os_errno == ELOOP))
    return fail(Status::journal, in_quotes(name),
                " is no folder, so there is no place for a journal; look at it and remove it");
  if (!dir) return Failure(std::move(dir.error()));
  auto s = dir->stat();
  if (!s) return Failure(std::move(s.error()));
  if (const std::string why = distrust(*s, data, env.geteuid()); !why.empty())
    return fail(Status::journal, "the journal folder ", in_quotes(name), " is not to be trusted: ", why,
                "; remove it, or move the file to a folder of your own");

  if (made == 0) open_to_readers(*dir, data);
  // Durable even if somebody else made it: he may not have come to this yet.
  auto parent =
      os::File::open(env, AT_FDCWD, os::split_path(path).first, O_RDONLY | O_DIRECTORY, 0, os::split_path(path).first);
  if (!parent) return Failure(std::move(parent.error()));
  if (auto synced = parent->sync(); !synced) return Failure(std::move(synced.error()));
  Folder folder;
  folder.dir_ = std::move(*dir);
  return folder;
}

void Folder::remove_if_empty(os::Env &env, const std::string &path) {
  env.unlinkat(AT_FDCWD, folder_path(path).c_str(), AT_REMOVEDIR);
}

Result<std::vector<std::string>> Folder::journals() const {
  std::vector<std::string> names;
  if (const int r = dir_.env().list(dir_.fd(), &names); r < 0) return Failure(dir_.error(-r, "list"));
  std::erase_if(names, [](const std::string &name) { return name.ends_with(aside_suffix); });
  return names;
}

JournalFolder::JournalFolder(os::Env &env, std::string path, struct stat data)
    : env_(env), path_(std::move(path)), folder_path_(folder_path(path_)), data_(data), process_(env.getpid()) {
  parked_.reserve(most_parked);
}

JournalFolder::~JournalFolder() {
  let_go();
}

void JournalFolder::let_go() noexcept {
  std::lock_guard lock(mutex_);
  if (!folder_ || env_.getpid() != process_) return;  // see forget_if_forked
  for (const auto &journal : parked_) env_.unlinkat(folder_->dir().fd(), journal->name().c_str(), 0);
  parked_.clear();
  env_.unlinkat(AT_FDCWD, folder_path_.c_str(), AT_REMOVEDIR);  // fails while others use it
  folder_.reset();
}

// In a child these are the parent's, and its locks with them.
void JournalFolder::forget_if_forked() {
  const pid_t self = env_.getpid();
  if (self == process_) return;
  process_ = self;
  parked_.clear();
  folder_.reset();
}

bool JournalFolder::is_beside(const Journal &journal) const {
  struct stat by_name;
  const std::string path = folder_path_ + "/" + journal.name();
  const auto ours = journal.file().stat();
  return ours && env_.fstatat(AT_FDCWD, path.c_str(), &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
         os::same_inode(by_name, *ours);
}

Result<JournalFolder::Taken> JournalFolder::take() {
  constexpr int attempts = 100;
  std::lock_guard lock(mutex_);
  forget_if_forked();
  Error last;
  for (int i = 0; i < attempts; ++i) {
    if (!folder_) {
      auto folder = Folder::create(env_, path_, data_);
      if (!folder && folder.error().os_errno == ENOENT) {  // removed between our two calls
        last = std::move(folder.error());
        continue;
      }
      if (!folder) return Failure(std::move(folder.error()));
      folder_ = std::make_shared<Folder>(std::move(*folder));
    }
    std::unique_ptr<Journal> journal;
    if (!parked_.empty()) {
      journal = std::move(parked_.back());
      parked_.pop_back();
      journal->begin();
    } else if (auto created = Journal::create(folder_->dir(), data_)) {
      journal = std::move(*created);
    } else if (created.error().os_errno != ENOENT) {
      return Failure(std::move(created.error()));
    }
    if (journal && is_beside(*journal)) return Taken{std::move(journal), folder_};
    // Somebody removed or moved the folder; a journal that recovery would not
    // find is worth nothing.
    if (journal) env_.unlinkat(folder_->dir().fd(), journal->name().c_str(), 0);
    last = error(Status::io, "the journal folder of ", in_quotes(path_),
                 " vanishes as soon as it is made; see what removes it");
    folder_.reset();
  }
  return Failure(std::move(last));
}

void JournalFolder::give_back(Taken taken) noexcept {
  std::lock_guard lock(mutex_);
  if (taken.folder == folder_ && parked_.size() < most_parked && taken.journal->allocated() <= largest_parked)
    parked_.push_back(std::move(taken.journal));
  else
    env_.unlinkat(taken.folder->dir().fd(), taken.journal->name().c_str(), 0);
  if (!folder_) env_.unlinkat(AT_FDCWD, folder_path_.c_str(), AT_REMOVEDIR);  // let_go() came between
}

}  // namespace st::write
