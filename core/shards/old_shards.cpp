#include "shards/old_shards.h"

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "journal/journal_folder.h"
#include "newfile/copy_attributes.h"
#include "newfile/names.h"
#include "newfile/temporary_file.h"
#include "os/named_lock.h"
#include "os/rename_over.h"
#include "shards/shards.h"

namespace st::store {
namespace {

uint64_t nanoseconds(const struct timespec &t) {
  return static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec);
}

bool is_still(const write::OldShard &listed, const struct stat &s) {
  return s.st_ino == listed.inode && static_cast<uint64_t>(s.st_size) == listed.size &&
         nanoseconds(s.st_mtim) == listed.changed_ns;
}

void tell(const write::Findings &findings, LogLevel level, Status status, std::string message) {
  if (findings) findings({level, status, std::move(message)});
}

// The list, and the index that it lies beside, say what is removed from the folder. `modes`: of both.
write::Verdict judge_writers(mode_t modes, const struct stat &folder) {
  const bool anybody_may_remove = (folder.st_mode & (S_IWOTH | S_ISVTX)) == S_IWOTH;
  if ((modes & S_IWOTH) == 0 || anybody_may_remove) return write::Verdict::good();
  return write::Verdict::bad(
      "anybody may write to it or to the index, and may not remove what lies beside them; "
      "take the right to write from them (chmod o-w)");
}

// What a dead writer has left beside it is dropped. Is nothing left?
bool goes_without_journal(const os::Location &shard) {
  static_cast<void>(write::recover(shard, {}, {}));
  struct stat folder;
  return shard.beside(write::journal_folder_name(shard.name())).stat(&folder) == -ENOENT;
}

}  // namespace

os::Location OldShards::list_at() const {
  return index_.beside(write::old_list_name(index_.name()));
}

Result<write::OldShard> OldShards::shard_at(const os::Location &at, uint64_t until) {
  struct stat s;
  if (const int r = at.stat(&s); r < 0) return Failure(os_error(-r, "look at", at.path()));
  return write::OldShard{at.name(), s.st_ino, static_cast<uint64_t>(s.st_size), nanoseconds(s.st_mtim), until};
}

Result<OldShards> OldShards::look(const os::Location &index, const ShardIndex &now) {
  OldShards old(index);
  std::set<std::string> families;
  for (const std::string &shard : now.shards()) {
    old.generation_ = std::max(old.generation_, write::generation_of(shard));
    families.insert(write::with_generation(shard, 0));
  }
  ST_TRY(auto names, index.folder()->list());
  for (const std::string &name : names) {
    const std::string_view target = write::target_of_temporary(name, write::temporary_infix);
    if (families.contains(write::with_generation(target, 0)) || target == old.list_at().name())
      old.temporary_.push_back(name);
    if (old.is_other(name)) old.others_.push_back(name);
    if (!name.ends_with(write::folder_suffix)) continue;
    const std::string shard = name.substr(0, name.size() - write::folder_suffix.size());
    struct stat s;
    if (families.contains(write::with_generation(shard, 0)) && !std::ranges::binary_search(now.shards(), shard) &&
        index.beside(shard).stat(&s) == -ENOENT)
      old.without_file_.push_back(shard);
  }
  // One with a number that the index had not come to is of a writer that did not come to the index. Where no list lies,
  // no writer has given such a name.
  const uint64_t reached = old.generation_;
  ST_TRY(old.read_list(now));
  const bool has_list = old.has_list_ && old.verdict_.is_good();
  std::set<std::string_view> listed;
  for (const write::OldShard &shard : old.listed_) listed.insert(shard.name);
  for (const std::string &name : names) {
    if (!families.contains(write::with_generation(name, 0))) continue;
    const uint64_t number = write::generation_of(name);
    if (number > reached && has_list && !listed.contains(name)) {
      ST_TRY(const auto stranger, old.is_strangers(name));
      if (!stranger) old.unnamed_.push_back(name);
    }
    if (number < write::most_generation) old.generation_ = std::max(old.generation_, number);
  }
  return old;
}

// A sync that failed may leave a file under both the name that it was made with and its own.
bool OldShards::is_temporary(const struct stat &file) const {
  return std::any_of(temporary_.begin(), temporary_.end(), [&](const std::string &name) {
    struct stat s;
    return index_.beside(name).stat(&s) == 0 && os::same_inode(s, file);
  });
}

// May the list's maker unlink whatever lies there anyway? The members of a folder's group are not looked up: the maker
// made the list there.
void OldShards::look_at(const struct stat &folder) {
  const bool may_write = (folder.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (folder.st_mode & S_ISVTX) == 0;
  maker_may_unlink_ = maker_ == 0 || maker_ == folder.st_uid || may_write;
}

// Where users cannot unlink another's files, nobody else says which of a user's files are removed. Not even the owner
// of the index does: its list may name any file beside it.
bool OldShards::may_name(const struct stat &file) const {
  return maker_may_unlink_ || maker_ == index_.env().geteuid() || maker_ == file.st_uid;
}

Result<bool> OldShards::is_strangers(const std::string &name) const {
  const os::Location at = index_.beside(name);
  struct stat s;
  const int r = at.stat(&s);
  if (r < 0 && r != -ENOENT) return Failure(os_error(-r, "look at", at.path()));
  return r == 0 && !may_name(s);
}

// A good one is in `list`.
Result<write::Verdict> OldShards::judge_list(const os::File &file, std::vector<write::OldShard> *list) {
  ST_TRY(auto s, file.stat());
  if (s.st_nlink > 1) {
    os::remove_second_names(list_at());
    ST_TRY(s, file.stat());
  }
  struct stat index;
  if (const int r = index_.stat(&index); r < 0) return Failure(os_error(-r, "look at", index_.path()));
  if (!S_ISREG(s.st_mode)) return write::Verdict::bad("it is no plain file");
  if (s.st_nlink > (is_temporary(s) ? 2 : 1)) return write::Verdict::bad("it has another name");
  if (write::Verdict owned = write::trust(s, index, index_.env().geteuid()); !owned.is_good()) return owned;
  ST_TRY(const auto folder, index_.folder()->identity());
  if (write::Verdict by = judge_writers(s.st_mode | index.st_mode, folder); !by.is_good()) return by;
  maker_ = s.st_uid;
  look_at(folder);
  const auto size = static_cast<uint64_t>(s.st_size);
  if (size > write::longest_old_list) return write::Verdict::bad(text("it has ", size, " bytes"));
  std::string bytes(size, '\0');
  ST_TRY(file.read(bytes.data(), size, 0));
  auto parsed = write::parse_old_list(bytes);
  if (!parsed) return write::Verdict::bad("it is damaged");
  *list = std::move(*parsed);
  return write::Verdict::good();
}

Result<void> OldShards::read_list(const ShardIndex &now) {
  struct stat there;
  const int r = list_at().stat(&there);
  if (r == -ENOENT) return {};
  if (r < 0) return Failure(os_error(-r, "look at", list_at().path()));
  has_list_ = true;
  if (!S_ISREG(there.st_mode)) {
    verdict_ = write::Verdict::bad("it is no plain file");
    return {};
  }
  std::vector<write::OldShard> list;
  auto file = os::open_regular(list_at(), O_RDONLY);
  if (!file && file.error().os_errno == ENOENT) {  // whoever looks without a lock may see it go
    has_list_ = false;
    return {};
  }
  if (!file) return Failure(std::move(file.error()));
  ST_TRY(verdict_, judge_list(*file, &list));
  return take_in(std::move(list), now);
}

Result<void> OldShards::take_in(std::vector<write::OldShard> list, const ShardIndex &now) {
  const std::set<std::string_view> named(now.shards().begin(), now.shards().end());
  for (write::OldShard &old : list) {
    generation_ = std::max(generation_, write::generation_of(old.name));
    if (named.contains(old.name)) continue;
    const os::Location at = index_.beside(old.name);
    struct stat s;
    const int looked = at.stat(&s);
    if (looked < 0 && looked != -ENOENT) return Failure(os_error(-looked, "look at", at.path()));
    if (looked < 0 || !is_still(old, s)) continue;
    if (!may_name(s)) {  // the others of the list are that user's to name
      verdict_ = write::Verdict::bad(
          text("it is user ", maker_, "'s, and names ", in_quotes(old.name), " of user ", s.st_uid));
      continue;
    }
    listed_.push_back(std::move(old));
  }
  return {};
}

bool OldShards::is_other(const std::string &name) const {
  return is_index_name(name) && name != index_.name();
}

// None: one of them cannot be read, so nobody knows. On btrfs a list may lack one while another file takes its name. So
// there is a second list.
std::optional<std::set<std::string>> OldShards::named_by_others(const os::LockWait &wait,
                                                                const write::Findings &findings) const {
  const auto nobody_knows = [&](const Error &e) {
    tell(findings, LogLevel::warning, Status::ok,
         text("no old shard was removed, as another index in the folder cannot be read: ", e.message));
    return std::nullopt;
  };
  std::set<std::string> others(others_.begin(), others_.end()), named;
  const auto again = index_.folder()->list();
  if (!again) return nobody_knows(again.error());
  std::ranges::copy_if(*again, std::inserter(others, others.end()), [&](const auto &name) { return is_other(name); });
  for (const std::string &name : others) {
    auto at = os::Location::find_in(index_.folder(), name);
    auto read = at ? Shards::read_index(*at, wait) : Result<ReadIndex>(Failure(at.error()));
    if (!read) return nobody_knows(read.error());
    named.insert(read->index().shards().begin(), read->index().shards().end());
  }
  return named;
}

void OldShards::put_list_aside(const write::Findings &findings) {
  const os::Location at = list_at();
  const std::string aside = at.name() + std::string(write::aside_suffix);
  const int moved = index_.env().renameat(at.dir(), at.name().c_str(), at.dir(), aside.c_str());
  tell(findings, LogLevel::warning, Status::journal,
       text("the list of old shards ", in_quotes(at.path()), " is not believed (", verdict_.why(),
            moved < 0 ? "), nor can it be moved aside" : "); it was moved aside as *.bad",
            ", and old shards that it names may stay; remove those that you know"));
}

// The file may be a link; then that goes, and not what it leads to.
bool OldShards::remove(const std::string &name, const write::OldShard *listed, const write::Findings &findings) const {
  const os::Location at = index_.beside(name);
  struct stat s;
  const int looked = at.stat(&s);
  if (looked == -ENOENT || (looked == 0 && (!may_name(s) || (listed && !is_still(*listed, s))))) return true;
  const bool removed = looked == 0 && (S_ISLNK(s.st_mode) ? at.env().unlinkat(at.dir(), name.c_str(), 0) == 0
                                                          : write::remove_unlocked(at, &s));
  tell(findings, removed ? LogLevel::info : LogLevel::warning, Status::ok,
       text(listed ? "old shard " : "shard ", in_quotes(at.path()), listed ? "" : ", which no index names,",
            removed ? " was removed" : " could not be removed, or somebody works on it; it stays"));
  return removed;
}

std::set<std::string> OldShards::due(uint64_t now) const {
  std::set<std::string> names(unnamed_.begin(), unnamed_.end());
  for (const write::OldShard &old : listed_)
    if (old.until <= now) names.insert(old.name);
  return names;
}

// A writer on another host may have lost its locks, and be about to rename an index that names what is unnamed still.
// Without its new index it cannot; unless it has. Where a decided change waits, the new index may be that of the
// change.
Result<bool> OldShards::take_new_index(const os::File &locked) const {
  if (!locked.reads_past_cache()) return true;
  if (!write::all_rest(index_)) return false;
  write::TemporaryFile::remove_stale(index_, {write::undecided_infix});
  if (write::TemporaryFile::is_any(index_, write::undecided_infix)) return false;
  ST_TRY(const auto replaced, index_.was_replaced(locked));
  return !replaced;
}

Result<void> OldShards::remove(uint64_t now, const os::File &locked, const os::LockWait &wait,
                               const write::Findings &findings) {
  if (!verdict_.is_good()) put_list_aside(findings);
  for (const std::string &name : temporary_)
    if (write::remove_unlocked(index_.beside(name)))
      tell(findings, LogLevel::info, Status::ok, write::removed_new_file(name));
  const auto is_due = [&](const write::OldShard &old) { return old.until <= now; };
  if (unnamed_.empty() && std::none_of(listed_.begin(), listed_.end(), is_due)) return {};
  ST_TRY(const auto none_comes, take_new_index(locked));
  if (!none_comes) return {};
  const auto named = named_by_others(wait, findings);
  if (!named) return {};
  // The journal that a dead writer has beside one goes first.
  std::set<std::string> may_go;
  for (const write::OldShard &old : listed_)
    if (is_due(old) && !named->contains(old.name) && goes_without_journal(index_.beside(old.name)))
      may_go.insert(old.name);
  ST_TRY(auto folder, index_.folder()->to_sync());
  // An older index must not come back by a power cut when its shards are gone.
  ST_TRY(folder.sync());
  std::erase_if(unnamed_, [&](const std::string &name) {  //
    return !named->contains(name) && remove(name, nullptr, findings);
  });
  std::erase_if(listed_, [&](const write::OldShard &old) {
    return may_go.contains(old.name) && remove(old.name, &old, findings);
  });
  // Nor a shard, when it is no longer listed.
  return folder.sync();
}

void OldShards::drop_journals(const write::Findings &findings) const {
  const auto tell_of = [&](LogLevel level, const std::string &message) { tell(findings, level, Status::ok, message); };
  struct stat index;
  if (index_.stat(&index) < 0) return;
  for (const std::string &shard : without_file_) {
    const os::Location at = index_.beside(shard);
    const auto folder = write::Folder::open_trusted(at, index, false);
    if (!folder || !*folder) continue;
    // No more than there are now: other users may write there, and could make more all the time.
    const auto found = (*folder)->journals();
    for (size_t left = found ? found->size() : 0; left > 0;) {
      const size_t dropped = write::drop_idle(**folder, index, tell_of);
      if (dropped == 0) break;
      left -= std::min(left, dropped);
    }
    if (write::Folder::remove_if_empty(at)) tell_of(LogLevel::info, write::Folder::removed_empty);
  }
}

Result<std::string> OldShards::spell(const std::vector<write::OldShard> &more) const {
  std::vector<write::OldShard> all;
  const auto is_in_more = [&](const write::OldShard &old) {
    return std::any_of(more.begin(), more.end(), [&](const write::OldShard &m) { return m.name == old.name; });
  };
  for (const write::OldShard &old : listed_)
    if (!is_in_more(old)) all.push_back(old);
  all.insert(all.end(), more.begin(), more.end());
  if (all.empty()) return std::string();
  std::string text = write::spell(all);
  if (text.size() > write::longest_old_list)
    return fail(Status::unsupported, in_quotes(list_at().path()), " would name too many old shards (", all.size(),
                "); remove them with st_recover");
  return text;
}

Result<void> OldShards::write_list(const std::string &text, const os::File &index, const Log &log) const {
  const os::Location at = list_at();
  if (text.empty()) {
    const int r = at.env().unlinkat(at.dir(), at.name().c_str(), 0);
    return r < 0 && r != -ENOENT ? Failure(os_error(-r, "remove", at.path())) : Result<void>();
  }
  ST_TRY(auto made, write::TemporaryFile::create(at, 0600));
  const os::File &file = made->file();
  ST_TRY(file.write_new(text));
  ST_TRY(write::copy_attributes(index, file, log));
  ST_TRY(const auto s, file.stat());
  if (const mode_t mode = s.st_mode & 07777, kept = mode & ~mode_t{S_IWGRP | S_IWOTH}; kept != mode)
    file.env().fchmod(file.fd(), kept);  // fails where all files have one mode
  ST_TRY(file.sync());
  return made->rename();
}

namespace {

Result<void> remove_all_old(const os::Location &index, const os::LockWait &wait, const write::Findings &findings) {
  const auto look = [&]() -> Result<OldShards> {
    ST_TRY(auto read, Shards::read_index(index, wait));
    return OldShards::look(index, read.index());
  };
  ST_TRY(auto seen, look());
  seen.drop_journals(findings);
  if (seen.nothing()) return {};
  ST_TRY(auto exclusive, os::lock_whole_file(index, wait));
  ST_TRY(auto old, look());
  ST_TRY(auto folder, index.folder()->to_sync());
  const bool only_list = old.only_list();
  ST_TRY(const auto before, old.spell({}));
  ST_TRY(old.remove(UINT64_MAX, exclusive->file, wait, findings));
  ST_TRY(auto list, old.spell({}));
  if (list.empty() && !old.unnamed().empty()) return {};  // which somebody works on: they lie beside a list
  const bool is_believed = old.verdict().is_good();
  if (is_believed && list == before && !list.empty()) return {};
  // The owner of the index would not believe a list of another user's. The old list names some that have gone, which
  // does no harm.
  ST_TRY(const auto index_now, exclusive->file.stat());
  const uid_t self = index.env().geteuid();
  const bool may_stay = is_believed && self != 0 && self != index_now.st_uid;
  if (may_stay && !list.empty()) return {};
  const Log to_nobody = [](LogLevel, const std::string &) {};
  auto written = old.write_list(list, exclusive->file, to_nobody);
  if (!written && may_stay && written.error().status == Status::permission) return {};
  ST_TRY(std::move(written));
  if (only_list) tell(findings, LogLevel::info, Status::ok, "a list of old shards, of which none is left, was removed");
  return folder.sync();
}

}  // namespace

Result<void> remove_old_shards(const os::Location &index, const os::LockWait &wait, const write::Findings &findings) {
  write::KeptFindings found;
  const auto keep = [&](const write::Finding &f) { return found.keep(f), true; };
  return write::tell_at_end(found, findings, [&] { return remove_all_old(index, wait, keep); });
}

}  // namespace st::store
