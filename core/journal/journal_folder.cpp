#include "journal/journal_folder.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "journal/claim.h"
#include "journal/made_entry.h"
#include "journal/super_journal.h"
#include "os/range_lock.h"

namespace st::write {
namespace {

// A change that was refused may have been so for want of space, and others wait for it, too.
constexpr uint64_t largest_parked = uint64_t{256} << 20, largest_unserved = journal_step;

constexpr std::string_view kept_by_server = "@eaDir";  // what a disk of Synology's keeps of a folder

// A file that is removed, and open still, on NFS, libfuse (sshfs), SMB or AFS; or that of a disk.
bool is_of_server(std::string_view name) {
  constexpr std::string_view removed[] = {".nfs", ".fuse_hidden", ".smb", ".__afs"};  // then digits
  return name == kept_by_server || std::ranges::any_of(removed, [&](std::string_view begin) {
           return name.starts_with(begin) && name.size() > begin.size() &&
                  name.find_first_not_of("0123456789abcdefABCDEF", begin.size()) == std::string_view::npos;
         });
}

os::Location folder_of(const os::Location &file) {
  return file.beside(journal_folder_name(file.name()));
}

constexpr int dir_flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;

Result<os::File> open_dir(const os::Location &folder) {
  return os::File::open(folder.env(), folder.dir(), folder.name(), dir_flags, 0, folder.path());
}

// Has its maker not come to give it to the readers of the file?
bool is_being_made(const os::Location &folder, const struct stat &data, bool by_strangers) {
  constexpr mode_t of_others = 0077;
  struct stat s;
  return folder.stat(&s) == 0 && S_ISDIR(s.st_mode) && (s.st_mode & of_others) == 0 &&
         (data.st_mode & of_others) != 0 && (by_strangers || trust(s, data, folder.env().geteuid()).is_good());
}

// To be read, also amid Folder::create() of another user. Nothing: there is none.
Result<std::optional<os::File>> open_made(const os::Location &folder, const struct stat &data, bool by_strangers) {
  constexpr os::LockWait longest{100};
  const auto open = [&] {
    return os::File::open_if_there(folder.env(), folder.dir(), folder.name(), dir_flags, folder.path());
  };
  auto dir = open();
  if (dir || dir.error().os_errno != EACCES) return dir;
  const os::File closed = os::File::closed(folder.env(), folder.path());
  os::Patience patience(closed, longest);
  while (!dir && dir.error().os_errno == EACCES && is_being_made(folder, data, by_strangers) && patience.check(0)) {
    patience.sleep();
    dir = open();
  }
  return dir;
}

}  // namespace

bool is_gone(const Error &e) {
  return e.os_errno == ENOENT || e.os_errno == ESTALE;
}

Verdict trust(const struct stat &s, const struct stat &data, uid_t self) {
  if (s.st_mode & ~data.st_mode & S_IWOTH) return Verdict::bad("anybody may write to it, and not to the file");
  if (s.st_uid != self && s.st_uid != data.st_uid && s.st_uid != 0)
    return Verdict::bad(text("it belongs to user ", s.st_uid, ", who is neither the file's owner nor you"));
  return Verdict::good();
}

bool may_be_journal(std::string_view name) {
  return transaction_of(name).has_value() || is_of_server(name);
}

bool is_dropped(std::string_view name) {
  return name.ends_with(gone_suffix) && may_be_journal(name.substr(0, name.size() - gone_suffix.size()));
}

std::string who_finishes(uid_t user) {
  return text("user ", user, " may have the file open to change it, or had when a program was stopped: user ", user,
              " finishes it by closing the file, or by opening it once more to change it");
}

namespace {

bool is_aside(std::string_view name) {
  return name.ends_with(aside_suffix);
}

// What is left of a folder whose writer has finished: then no close and no open of that writer's helps.
std::optional<std::string> only_aside(const os::File &dir) {
  std::vector<std::string> names;
  if (dir.env().list(dir.fd(), &names) < 0 || names.empty()) return std::nullopt;
  return std::all_of(names.begin(), names.end(), is_aside) ? std::optional(dir.path() + "/" + names.front())
                                                           : std::nullopt;
}

// With a folder that trust() refuses. A writer's must never be removed: it may hold a change that was promised.
std::string what_to_do(const os::File &dir, const struct stat &s) {
  if ((s.st_mode & S_IWOTH) != 0)
    return "have the file's owner look at it; where a filesystem gives all folders these rights, mount it with others "
           "(umask=022)";
  if (const auto aside = only_aside(dir))
    return text("nothing waits in it, but ", in_quotes(*aside),
                ", which a recovery moved aside, keeps it there; look at that journal and remove it, as user ",
                s.st_uid, " or as root");
  return who_finishes(s.st_uid);
}

// The usual reason: a writer has it open that cannot let in all readers of the file.
Error cannot_open(Error e, const os::Location &folder) {
  struct stat s;
  if (e.os_errno == EACCES && folder.stat(&s) == 0) e.message += "; " + who_finishes(s.st_uid);
  return e;
}

// Just made. Another process of this user's may use it already. But it may also be another folder of this user's, which
// the owner of the parent has moved there: that one is not to be opened to anybody, nor is a journal to lie in it. What
// servers put into any folder says nothing.
Result<void> check_made(const os::File &dir) {
  std::vector<std::string> names;
  if (const int r = dir.env().list(dir.fd(), &names); r < 0) return Failure(dir.error(-r, "list"));
  const auto may_be_there = [](const std::string &name) {
    return transaction_of(name).has_value() || is_of_server(name);
  };
  if (std::all_of(names.begin(), names.end(), may_be_there)) return {};
  return fail(Status::journal, "the journal folder ", in_quotes(dir.path()),
              " was exchanged for another when it had just been made; see who moves folders there, and move the file "
              "to a folder of your own");
}

// A stranger's folder that lets nobody in, and which the file's owner would never have made?
bool keeps_out(const Error &e, const os::Location &file, const struct stat &data) {
  const os::Location at = folder_of(file);
  struct stat s;
  return e.os_errno == EACCES && at.stat(&s) == 0 && !trust(s, data, at.env().geteuid()).is_good();
}

}  // namespace

bool Folder::may_be_planted(const Error &refused, const os::Location &file, const struct stat &data) {
  struct stat parent;
  return (refused.status == Status::journal || keeps_out(refused, file, data)) &&
         file.env().fstat(file.dir(), &parent) == 0 && (parent.st_mode & S_IWOTH) != 0;
}

Result<std::optional<Folder>> Folder::open(const os::Location &file, const struct stat &data, const Log &log) {
  auto opened = open_trusted(file, data);
  if (opened || !may_be_planted(opened.error(), file, data)) return opened;
  if (log) log(LogLevel::warning, opened.error().message + "; it was passed over");
  return std::nullopt;
}

Result<std::optional<Folder>> Folder::open_trusted(const os::Location &file, const struct stat &data,
                                                   bool awaits_strangers) {
  os::Env &env = file.env();
  const os::Location at = folder_of(file);
  const os::PastCache how = file.how_to_read(data);
  if (how != os::PastCache::no) at.renew();
  auto made = open_made(at, data, awaits_strangers);
  if (made && !*made) return std::nullopt;
  auto dir = made ? Result<os::File>(**std::move(made)) : Failure(std::move(made.error()));
  Verdict verdict = Verdict::good();
  std::string advice;
  if (!dir) {
    if (dir.error().os_errno != ENOTDIR && dir.error().os_errno != ELOOP)
      return Failure(cannot_open(std::move(dir.error()), at));
    verdict = Verdict::bad("it is no folder");
    advice = "look at it and remove it";
  } else {
    ST_TRY(auto s, dir->stat());
    dir->read_past_cache(how);
    verdict = trust(s, data, env.geteuid());
    if (!verdict.is_good()) advice = what_to_do(*dir, s);
  }
  if (verdict.is_good()) {
    Folder folder;
    folder.dir_ = std::move(*dir);
    return folder;
  }
  return fail(Status::journal, "the journal folder ", in_quotes(at.path()), " is not to be trusted: ", verdict.why(),
              "; ", advice);
}

Result<Folder> Folder::open_untrusted(const os::Location &file) {
  Folder folder;
  ST_TRY(folder.dir_, open_dir(folder_of(file)));
  ST_TRY(const auto s, folder.dir_.stat());
  folder.dir_.read_past_cache(file.how_to_read(s));
  return folder;
}

Result<Folder> Folder::create(const os::Location &file, const struct stat &data) {
  os::Env &env = file.env();
  const os::Location at = folder_of(file);
  Folder folder;
  folder.rights_ = rights_of(file, data);  // first, as nobody else can use the folder until it has them
  const int made = os::repeat_interrupted([&] { return env.mkdirat(at.dir(), at.name().c_str(), 0700); });
  if (made < 0 && made != -EEXIST) return Failure(os_error(-made, "create the journal folder", at.path()));
  MadeEntry entry(env, at.dir(), at.name().c_str(), AT_REMOVEDIR);  // left, it might keep everybody from the file
  if (made != 0) entry.keep();
  auto dir = open_dir(at);
  if (!dir && (dir.error().os_errno == ENOTDIR || dir.error().os_errno == ELOOP))
    return fail(Status::journal, in_quotes(at.path()),
                " is no folder, so there is no place for a journal; look at it and remove it");
  if (!dir && made == 0 && dir.error().os_errno == EACCES) {
    dir.error().message += "; see whether this process's umask takes rights from the owner of a new folder";
  } else if (!dir) {
    dir.error() = cannot_open(std::move(dir.error()), at);
  }
  if (!dir) return Failure(std::move(dir.error()));
  ST_TRY(auto s, dir->stat());
  if (const Verdict verdict = trust(s, data, env.geteuid()); !verdict.is_good())
    return fail(Status::journal, "the journal folder ", in_quotes(at.path()), " is not to be trusted: ", verdict.why(),
                "; ", what_to_do(*dir, s));

  dir->read_past_cache(file.how_to_read(data));
  constexpr mode_t of_others = 0077;
  const bool is_new =
      made == 0 && s.st_uid == env.geteuid() && (s.st_mode & of_others) == 0;  // and no other, moved there
  if (made == 0) ST_TRY(check_made(*dir));
  if (is_new) open_to_readers(*dir, folder.rights_);
  // Durable even if somebody else made it: its maker may not have come to this yet.
  ST_TRY(file.folder()->sync());
  folder.dir_ = std::move(*dir);
  entry.keep();
  return folder;
}

bool Folder::remove_if_empty(const os::Location &file) {
  const os::Location at = folder_of(file);
  return at.env().unlinkat(at.dir(), at.name().c_str(), AT_REMOVEDIR) == 0;
}

Error Folder::cannot_make(Error e) const {
  const auto s = dir_.stat();
  if (e.os_errno != EACCES || !s || s->st_uid == dir_.env().geteuid()) return e;
  Error refused = error(Status::journal, "the journal folder ", in_quotes(dir_.path()), " belongs to user ", s->st_uid,
                        ", and you may not write to it (", e.message, "); ", who_finishes(s->st_uid));
  refused.os_errno = e.os_errno;
  return refused;
}

Result<std::vector<std::string>> Folder::journals() const {
  std::vector<std::string> names;
  // A server that looks for it by its path says ENOENT when its last user has removed it. Another may stand there.
  if (const int r = dir_.env().list(dir_.fd(), &names); r < 0)
    return Failure(dir_.error(r == -ENOENT ? ESTALE : -r, "list"));
  // One that is removed, and open still, may be a journal.
  std::erase_if(names, [](const std::string &name) { return is_aside(name) || name == kept_by_server; });
  return names;
}

JournalFolder::JournalFolder(os::Location file, struct stat data)
    : env_(file.env()),
      file_(std::move(file)),
      beside_(folder_of(file_)),
      data_(data),
      named_(data.st_ino),
      shown_(data.st_ino),
      kept_(env_) {}

void JournalFolder::remove_if_empty() noexcept {
  env_.unlinkat(beside_.dir(), beside_.name().c_str(), AT_REMOVEDIR);  // fails while others use it
}

JournalFolder::~JournalFolder() {
  close_idle();
}

void JournalFolder::close_idle() noexcept {
  Kept *const kept = kept_.find();
  if (!kept) return;
  std::lock_guard lock(kept->mutex);
  if (kept->folder) drop_parked(*kept);
}

void JournalFolder::drop_parked(Kept &kept) noexcept {
  for (const auto &journal : kept.parked) env_.unlinkat(kept.folder->dir().fd(), journal->name().c_str(), 0);
  kept.parked.clear();
  remove_if_empty();
  kept.folder.reset();
}

// What was made beside a file that another had replaced keeps readers out. The handle shows that other file by now, and
// its rights are known.
void JournalFolder::drop_guessed(Kept &kept) noexcept {
  if (!kept.folder || kept.folder.use_count() != 1) return;
  const Rights &rights = kept.folder->rights();
  if (rights.are_guessed && rights.data.st_ino != shown_) drop_parked(kept);
}

Result<void> JournalFolder::make_name_durable(uint64_t inode) {
  if (named_ == inode) return {};
  ST_TRY(file_.folder()->sync());
  named_ = inode;
  return {};
}

Result<bool> JournalFolder::stands(const Folder &folder) const {
  return is_under_name(beside_.dir(), beside_.name(), folder.dir());
}

Result<bool> JournalFolder::is_beside(const Taken &taken) const {
  auto found = stands(*taken.folder);
  if (!found || !*found) return found;
  return is_under_name(taken.folder->dir().fd(), taken.journal->name(), taken.journal->file());
}

Result<void> JournalFolder::check_beside(const Taken &taken) const {
  ST_TRY(const auto found, is_beside(taken));
  if (found) return {};
  const os::File &dir = taken.folder->dir();
  if (dir.reads_past_cache())
    return fail(Status::file_changed, "another host has taken over what was begun here with ", in_quotes(file_.path()),
                ", as this one was stopped or cut off, and lost its locks; open it anew");
  return fail(Status::io, "the journal folder of ", in_quotes(file_.path()),
              " was removed while a change was being made; nothing was changed; see what removes it, and try again");
}

JournalPlan JournalFolder::plan_next() const {
  Kept &kept = kept_.mine();
  std::lock_guard lock(kept.mutex);
  if (kept.parked.empty()) return {};
  return kept.parked.back()->plan_anew();
}

Result<JournalFolder::Taken> JournalFolder::take() {
  constexpr int attempts = 100;
  Kept &kept = kept_.mine();
  std::lock_guard lock(kept.mutex);
  drop_guessed(kept);
  Error last;
  for (int i = 0; i < attempts; ++i) {
    if (!kept.folder) {
      auto opened = std::make_shared<Folder>();  // before there is anything that would be left without memory for it
      struct stat shown = data_;
      shown.st_ino = shown_;
      auto folder = Folder::create(file_, shown);
      if (!folder && is_gone(folder.error())) {  // removed between our two calls
        last = std::move(folder.error());
        continue;
      }
      if (!folder) return Failure(std::move(folder.error()));
      *opened = std::move(*folder);
      kept.folder = std::move(opened);
    }
    std::unique_ptr<Journal> journal;
    if (!kept.parked.empty()) {
      journal = std::move(kept.parked.back());
      kept.parked.pop_back();
      journal->begin();
    } else if (auto created = Journal::create(kept.folder->dir(), kept.folder->rights())) {
      journal = std::move(*created);
    } else if (!is_gone(created.error())) {
      Error refused = kept.folder->cannot_make(std::move(created.error()));
      close_unused(kept);
      return Failure(std::move(refused));
    }
    Taken taken{std::move(journal), kept.folder};
    if (taken.journal && check_beside(taken)) return taken;
    // Somebody removed or moved the folder; a journal that recovery would not
    // find is worth nothing.
    if (taken.journal) env_.unlinkat(kept.folder->dir().fd(), taken.journal->name().c_str(), 0);
    last = error(Status::io, "the journal folder of ", in_quotes(file_.path()),
                 " vanishes as soon as it is made; see what removes it");
    kept.folder.reset();
  }
  return Failure(std::move(last));
}

void JournalFolder::give_back(Taken taken) noexcept {
  Kept &kept = kept_.mine();
  std::unique_lock lock(kept.mutex);
  const uint64_t most = taken.journal->served() ? largest_parked : largest_unserved;
  const bool good = !taken.journal->lost() && taken.journal->taken() <= most;
  taken.journal->rest();
  if (good && taken.folder == kept.folder && kept.parked.size() < most_parked)
    kept.parked.push_back(std::move(taken.journal));
  else
    env_.unlinkat(taken.folder->dir().fd(), taken.journal->name().c_str(), 0);
  lock.unlock();          // other threads do not wait until all blocks of a large one are free
  taken.journal.reset();  // on NFS a file that is open keeps another name there, and the folder could not go
  lock.lock();
  taken.folder.reset();
  close_unused(kept);
}

// An open folder without a journal would be in the way of others: Windows may remove it only when all have closed it.
// A transaction that is under way has it open, too; or none is open, as close_idle() came between.
void JournalFolder::close_unused(Kept &kept) noexcept {
  if (kept.parked.empty() && kept.folder.use_count() == 1) kept.folder.reset();
  if (!kept.folder) remove_if_empty();
}

}  // namespace st::write
