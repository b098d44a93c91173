#include "engine/shard_folder.h"

#include <algorithm>
#include <cerrno>
#include <new>

#include "base/url.h"
#include "file/replace_file.h"
#include "format/shard_index.h"
#include "journal/hot_journal.h"
#include "journal/move_aside.h"
#include "newfile/names.h"
#include "os/named_lock.h"
#include "os/path.h"
#include "os/remote_source.h"
#include "shards/old_shards.h"

namespace st::store {
namespace {

bool is_shard_name(std::string_view name) {
  return name.starts_with("model-") && name.ends_with(".safetensors");
}

// Also of a shard that was only being written there: then it is a temporary of a temporary.
bool is_shard_place(std::string_view name) {
  const std::string_view target = write::target_of_temporary(name, write::temporary_infix);
  return is_shard_name(target) || is_shard_name(write::target_of_temporary(target, write::temporary_infix));
}

bool is_list(std::string_view name) {
  return write::is_temporary_of(name, ShardFolder::index_name, write::undecided_infix);
}

bool is_new_index(std::string_view name) {
  return write::is_temporary_of(name, ShardFolder::index_name, write::temporary_infix);
}

bool may_be_left(const std::string &name) {
  return is_list(name) || is_shard_place(name) || is_new_index(name);
}

}  // namespace

// Told when the list is no longer locked.
Result<bool> ShardFolder::recover(os::Env &env, const std::string &path, const os::LockWait &wait,
                                  const write::Findings &findings) {
  write::KeptFindings found;
  return write::tell_at_end(found, findings, [&]() -> Result<bool> {
    ShardFolder folder(env, &found);
    folder.path_ = path;
    ST_TRY(folder.inside_, os::Directory::find(env, path));
    ST_TRY(const auto names, folder.inside_->list());
    // What lies beside the journals of an index may be a new index, which they decide about.
    const std::string journals = write::journal_folder_name(index_name);
    const auto is_checkpoints = [&](const std::string &name) { return is_index_name(name) || name == journals; };
    if (std::ranges::any_of(names, is_checkpoints) || std::ranges::none_of(names, may_be_left)) return false;
    ST_TRY(const bool is_alone, folder.remove_left(wait));
    if (!is_alone) return true;
    // A list that stays counts as long as its index does.
    const auto stays = [&](const std::string &name) {
      struct stat s;
      return is_list(name) && os::Location(folder.inside_, name).stat(&s) == 0;
    };
    if (std::ranges::none_of(names, stays))
      for (std::string &removed : write::TemporaryFile::remove_stale(folder.index()))
        folder.tell(LogLevel::info, std::move(removed));
    folder.tell_what_stays(names);
    return true;
  });
}

// A stranger's, or what no writer makes.
void ShardFolder::tell_what_stays(const std::vector<std::string> &names) const {
  for (const std::string &name : names) {
    const os::Location at{inside_, name};
    struct stat s;
    if (!may_be_left(name) || at.stat(&s) != 0) continue;
    if (s.st_uid == at.env().geteuid())
      tell(LogLevel::warning, text(in_quotes(at.path()), " could not be removed; it stays"));
    else
      tell(LogLevel::warning,
           text(in_quotes(at.path()), " was left by user ", s.st_uid,
                is_list(name) ? ", and so were shards that it may list" : "", "; let that user recover the folder"));
  }
}

os::Location ShardFolder::place_of(const std::string &shard) const {
  const os::Location at(
      inside_, write::temporary_prefix(shard, write::temporary_infix) + std::string(write::temporary_digits, '0'));
  return at.shown_as(shard);
}

ShardFolder::~ShardFolder() {
  const bool has_any = made_ || !written_.empty();
  if (!has_any || !made_in_.this_process()) return;
  for (const Written &w : written_) inside_->env().unlinkat(inside_->fd(), w.now.c_str(), 0);
  try {  // or a cut might bring the shards back without it
    if (fresh_index_) static_cast<void>(inside_->sync());
  } catch (const std::bad_alloc &) {
  }
  fresh_index_.reset();
  list_.reset();
  if (made_) at_.env().unlinkat(at_.dir(), at_.name().c_str(), AT_REMOVEDIR);
}

Result<ShardFolder> ShardFolder::make(os::Env &env, const std::string &path) {
  ShardFolder folder(env);
  folder.path_ = path;
  std::string plain = os::plain_path(path);  // a slash at the end is of what is there
  while (plain.size() > os::root_of(plain).size() && plain.ends_with('/')) plain.pop_back();
  auto at = os::Location::find_new(env, plain);
  if (!at && at.error().os_errno == 0) return Failure(std::move(at.error()));
  if (!at) return Failure(os_error(at.error().os_errno, "create the folder", path));
  folder.at_ = std::move(*at);
  // A URL that names no bucket is the path of a folder that could be made here.
  struct stat there;
  if (os::is_url(path) && !os::is_url(plain) && folder.at_.stat(&there) == -ENOENT)
    return fail(Status::unsupported, in_quotes(without_secrets(path)),
                " is a URL, of which libst only reads models; give the path of a folder");
  const int made =
      os::repeat_interrupted([&] { return env.mkdirat(folder.at_.dir(), folder.at_.name().c_str(), 0777); });
  if (made < 0 && made != -EEXIST) return Failure(os_error(-made, "create the folder", path));
  folder.made_ = made == 0;
  ST_TRY(folder.inside_, folder.at_.folder()->inside(folder.at_.name()));
  ST_TRY(folder.remove_left({}));
  ST_TRY(folder.check_empty());
  return folder;
}

// On btrfs a list may lack the name while another index takes it.
bool ShardFolder::has_index(const std::vector<std::string> &names) const {
  struct stat s;
  return std::ranges::any_of(names, is_index_name) || index().stat(&s) == 0;
}

// False: an index lies there. Then nothing is left: all that it may name is a checkpoint's.
Result<bool> ShardFolder::remove_left(const os::LockWait &wait) {
  for (;;) {
    ST_TRY(auto names, inside_->list());
    if (has_index(names)) return false;
    if (!list_) {
      ST_TRY(list_, write::TemporaryFile::create(index(), 0666, write::undecided_infix));
    }
    ST_TRY(names, inside_->list());
    bool is_alone = true;
    for (const std::string &name : names) {
      if (!is_list(name) || name == list_->temporary()) continue;
      ST_TRY(is_alone, remove_listed({inside_, name}, wait));
      if (!is_alone) break;
    }
    if (!is_alone) continue;
    for (const std::string &name : names)
      if (is_shard_place(name) && write::remove_unlocked({inside_, name}))
        tell(LogLevel::info, write::removed_new_file(name));
    return true;
  }
}

namespace {

// A list of another user's may be one that can only be read: then shared, which its writer keeps out, too.
struct LockedList {
  std::unique_ptr<os::LockedFile> locked;
  bool writes = true;
};

Result<LockedList> lock_list(const os::Location &list, const os::LockWait &wait) {
  auto locked = os::lock_whole_file(list, wait);
  if (locked) return LockedList{std::move(*locked), true};
  if (locked.error().os_errno != EACCES) return Failure(std::move(locked.error()));
  constexpr os::LockRange whole = os::whole_file(false);
  locked = os::lock_named(list, {whole}, wait, os::holder_of(whole), O_RDONLY);
  if (!locked) return Failure(std::move(locked.error()));
  return LockedList{std::move(*locked), false};
}

bool keeps_others_out(const LockedList &list, const os::File &second) {
  constexpr os::LockRange whole = os::whole_file(true);
  return (list.writes ? os::locks_exclude(list.locked->file, second, whole) : os::is_locked(second, whole))
      .value_or(false);
}

}  // namespace

// Several that wait in one folder wait for lists with later names than that of their own, or have none. So no two wait
// for each other.
Result<void> ShardFolder::await_writer(const os::Location &list, const os::LockWait &wait) {
  if (list.name() < list_->temporary()) list_.reset();
  auto ended = lock_list(list, wait);
  if (ended || ended.error().os_errno == ENOENT || ended.error().os_errno == ESTALE) return {};
  if (ended.error().status != Status::busy) return Failure(std::move(ended.error()));
  ended.error().message = text("another process is writing shards into the folder ", in_quotes(path_), "; wait for it",
                               found_ ? ", or allow more time" : ", or give another folder");
  return Failure(std::move(ended.error()));
}

// False: another process had it, and has ended; look at the folder anew.
Result<bool> ShardFolder::remove_listed(const os::Location &list, const os::LockWait &wait) {
  struct stat there = {};
  if (list.stat(&there) == 0 && !S_ISREG(there.st_mode)) return true;  // a stranger's, as no writer makes one
  auto opened = lock_list(list, {});
  if (!opened && opened.error().status == Status::busy) {
    ST_TRY(await_writer(list, wait));
    return false;
  }
  if (!opened && opened.error().os_errno == ENOENT) return true;  // its writer is done
  // A stranger's, which lets nobody see whether it is a list.
  if (!opened && opened.error().os_errno == EACCES && there.st_uid != list.env().geteuid()) return true;
  if (!opened && opened.error().status != Status::lock_unsupported) return Failure(std::move(opened.error()));
  os::File second;
  if (opened) {
    ST_TRY(second, list.open(opened->writes ? O_RDWR : O_RDONLY));
  }
  if (!opened || !keeps_others_out(*opened, second))
    return fail(Status::busy, "another process has begun to write shards into the folder ", in_quotes(path_),
                ", and without locks nobody can tell whether it still does; if not, remove ", in_quotes(list.path()));
  // Before it died, its writer may have come to name the index.
  ST_TRY(const auto names, inside_->list());
  if (has_index(names)) return false;
  const os::File &file = opened->locked->file;
  ST_TRY(auto s, file.stat());
  if (s.st_uid != list.env().geteuid()) return true;  // nobody else says what is removed for this user
  std::optional<std::vector<write::OldShard>> listed;
  // The index that names them has had its name, if it is not there by its temporary one.
  if (std::ranges::any_of(names, is_new_index) && static_cast<uint64_t>(s.st_size) <= write::longest_old_list) {
    std::string text(static_cast<size_t>(s.st_size), '\0');
    ST_TRY(file.read(text.data(), text.size(), 0));
    listed = write::parse_old_list(text);
  }
  bool removed = false, any_stays = false;
  for (const write::OldShard &shard : listed.value_or(std::vector<write::OldShard>())) {
    const os::Location at{inside_, shard.name};
    const auto now = OldShards::shard_at(at, 0);
    if (!is_shard_name(shard.name) || (now ? *now != shard : now.error().os_errno == ENOENT)) continue;
    if (!now || list.env().unlinkat(at.dir(), at.name().c_str(), 0) != 0) {
      any_stays = true;
      tell(LogLevel::warning, text(in_quotes(at.path()), " could not be removed; it stays"));
      continue;
    }
    removed = true;
    tell(LogLevel::info, text("shard ", in_quotes(shard.name), ": no index came to name it; it was removed"));
  }
  if (removed) ST_TRY(inside_->sync());  // or a cut might bring them back alone
  if (any_stays) return true;            // nothing else says whose it is
  if (list.env().unlinkat(list.dir(), list.name().c_str(), 0) == 0)
    tell(LogLevel::info, text("list ", in_quotes(list.name()), ": the shards of a reshard that died; it was removed"));
  return true;
}

Result<void> ShardFolder::check_empty() const {
  ST_TRY(auto names, inside_->list());
  if (has_index(names)) names.emplace_back(index_name);
  for (const std::string &name : names)
    if (name.ends_with(".safetensors") || is_index_name(name))
      return fail(Status::invalid_argument, "the folder ", in_quotes(path_), " holds ", in_quotes(name),
                  " already; give an empty one, so that no two checkpoints are mixed");
  return {};
}

// Whose they are is on the disk before the first of them has its name.
Result<void> ShardFolder::name_all(const os::LockWait &wait, const Log &log) {
  std::vector<write::OldShard> listed;
  for (const Written &w : written_) {
    ST_TRY(auto shard, OldShards::shard_at({inside_, w.now}, 0));
    shard.name = w.shard;
    listed.push_back(std::move(shard));
  }
  const std::string text = write::spell(listed);
  ST_TRY(list_->file().write_new(text));
  ST_TRY(list_->file().sync());
  ST_TRY(inside_->sync());
  ST_TRY(check_empty());
  for (Written &w : written_) {
    os::Env &env = inside_->env();
    struct stat fresh;
    if (const int r = os::Location(inside_, w.now).stat(&fresh); r < 0)
      return Failure(os_error(-r, "look at", inside_->path_of(w.now)));
    ST_TRY(write::move_all_aside({inside_, w.shard}, fresh, wait, log));
    const int r = os::repeat_interrupted(
        [&] { return env.renameat(inside_->fd(), w.now.c_str(), inside_->fd(), w.shard.c_str()); });
    if (r < 0) return Failure(os_error(-r, "rename into place", inside_->path_of(w.shard)));
    w.now = w.shard;
  }
  return inside_->sync();
}

Result<void> ShardFolder::finish(const std::string &text, mode_t mode, const write::SaveOptions &options) {
  ST_TRY(fresh_index_, write::TemporaryFile::create(index(), mode));
  ST_TRY(fresh_index_->file().write_new(text));
  ST_TRY(name_all({options.lock_timeout_ms}, options.log));
  if (made_) ST_TRY(at_.folder()->sync());
  auto placed = write::replace_file(index(), fresh_index_, mode, options.lock_timeout_ms, {}, options.log);
  const bool may_be_undone = !placed && placed.error().status == Status::needs_recovery;
  if (may_be_undone) list_->leave();  // or nothing would say whose the shards are
  if (placed || may_be_undone) keep();
  return placed;
}

// The index names them.
void ShardFolder::keep() {
  written_.clear();
  made_ = false;
  fresh_index_.reset();
  list_.reset();
  static_cast<void>(inside_->sync());  // a list that comes back says nothing beside an index
}

}  // namespace st::store
