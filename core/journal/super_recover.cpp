#include "journal/super_recover.h"

#include <algorithm>
#include <cerrno>
#include <optional>

#include "base/hash.h"
#include "journal/claim.h"
#include "journal/move_aside.h"
#include "journal/roll_forward.h"
#include "newfile/temporary_file.h"
#include "os/rename_over.h"

namespace st::write {
namespace {

Result<std::optional<SuperManifest>> read_list(const Found &found) {
  const CommitRecord &r = found.record;
  if (r.ranges > longest_super_list || r.manifest > found.size || r.ranges > found.size - r.manifest)
    return std::nullopt;
  std::vector<std::byte> manifest(r.ranges);
  ST_TRY(found.file.read(manifest.data(), manifest.size(), r.manifest));
  if (hash64(manifest.data(), manifest.size()) != r.manifest_hash) return std::nullopt;
  return decode_super(manifest);
}

// Others may have put it there, or have decided by it. Then other parts may be in their files, and this one must stay.
Error undecided(const os::Location &shard, const std::string &why) {
  return error(Status::needs_recovery, "a part of a transaction on several files waits beside ",
               in_quotes(shard.path()), ", and whether it was decided cannot be told: ", why);
}

// No cut and no writer that wakes up will make it a decision. Status io, ESTALE: another has claimed it.
Result<void> take_away(const Folder &folder, std::string name, Found &super) {
  const os::File &dir = folder.dir();
  if (!dir.reads_past_cache()) return stay_empty(super);
  ST_TRY(auto ours, claim(folder, &name, super));
  if (ours && super.waits()) return {};
  ST_TRY(const bool gone, ours ? drop_for_good(folder, name) : Result<bool>(false));
  return gone ? Result<void>() : Failure(dir.error(ESTALE, "settle a super-journal in"));
}

}  // namespace

Result<Decision> decision_on(const os::Location &shard, const CommitRecord &part, const struct stat &data,
                             bool durably) {
  auto folder = Folder::open_trusted(shard.beside(part.super_of), data, false);
  if (!folder && (folder.error().status == Status::journal || folder.error().os_errno == EACCES))
    return Failure(undecided(shard, folder.error().message));
  if (!folder) return Failure(std::move(folder.error()));
  if (!*folder) return Decision::no;
  std::string name = super_name(part.transaction);
  auto looked = look_for(**folder, &name, data, durably);
  if (!looked && durably && means_read_only(looked.error())) return Decision::unknown;
  if (!looked && looked.error().os_errno == EACCES) return Failure(undecided(shard, looked.error().message));
  if (!looked) return Failure(std::move(looked.error()));
  if (!*looked) return Decision::no;
  if (!(*looked)->is_trusted)
    return Failure(undecided(
        shard, text("the super-journal ", in_quotes((*folder)->dir().path() + "/" + name),
                    " is not to be trusted: ", (*looked)->verdict.why(), "; have the file's owner look at it")));
  // Its writer may have died before this was durable, or a sync may have failed: written once more, it is not taken for
  // what was lost then. But a forged part may lead to any journal, also of a living writer.
  const auto is_empty = [&] { return !(*looked)->waits() && !(*looked)->is_done(); };
  if (is_empty() && durably && (*looked)->is_linked) return Decision::unknown;
  if (is_empty() && durably) {
    auto stays = take_away(**folder, name, **looked);
    if (!stays && means_read_only(stays.error())) return Decision::unknown;
    ST_TRY(std::move(stays));
  }
  if (is_empty()) return Decision::no;
  const bool is_ours =
      (*looked)->verdict.is_good() && (*looked)->record.is_super() && (*looked)->record.transaction == part.transaction;
  return is_ours ? Decision::yes : Decision::unknown;
}

namespace {

class SuperRecovery {
 public:
  SuperRecovery(const os::Location &index, const os::LockWait &wait) : index_(index), wait_(wait) {}

  // False: something is to be told before the next super-journal is settled.
  Result<bool> run();
  Recovered result;
  KeptFindings news;

 private:
  void tell(LogLevel level, Status status, std::string message) { news.keep({level, status, std::move(message)}); }
  Error read_only(Error &&e) const { return means_read_only(e) ? needs_recovery(index_.path(), e) : std::move(e); }
  Result<bool> settle_all(const Folder &folder, std::vector<std::string> names, const struct stat &by_path,
                          const os::File &index);
  Result<void> settle(const Folder &folder, std::string name, Found &super, const os::File &index);
  Result<Verdict> read_list_of(const std::string &name, const Found &super, const os::File &index,
                               SuperManifest *list) const;
  Result<bool> is_name_of(const os::File &index, const std::string &name) const;

  const os::Location &index_;
  const os::LockWait &wait_;
};

Result<bool> SuperRecovery::run() {
  ST_TRY(const auto by_path, os::look_up(index_, wait_));
  const Log told = [&](LogLevel level, const std::string &m) { tell(level, Status::journal, m); };
  ST_TRY(auto there, Folder::open(index_, by_path, tell_passed_over(index_, told)));
  auto exclusive = lock_whole_file(index_, wait_);
  if (!exclusive) {
    if (!means_read_only(exclusive.error())) return Failure(std::move(exclusive.error()));
    if (there) ST_TRY(check_none_waits(*there, by_path, index_.path(), exclusive.error()));
    return true;
  }
  // As in the recovery of a file, what counts is what is there now.
  ST_TRY(auto folder, Folder::open(index_, by_path, {}));
  std::vector<std::string> names;
  if (folder) {
    ST_TRY(names, folder->journals());
    ST_TRY(const bool all, settle_all(*folder, names, by_path, (*exclusive)->file));
    if (!all) return false;
  }
  for (std::string &removed : TemporaryFile::remove_stale(index_, {undecided_infix}))
    tell(LogLevel::info, Status::ok, std::move(removed));
  (*exclusive)->lock.release();
  if (Folder::remove_if_empty(index_) && names.empty()) tell(LogLevel::info, Status::ok, Folder::removed_empty);
  return true;
}

Result<bool> SuperRecovery::settle_all(const Folder &folder, std::vector<std::string> names, const struct stat &by_path,
                                       const os::File &index) {
  ST_TRY(drop_gone(folder, &names));
  for (const std::string &name : names) {
    std::string left;
    ST_TRY(auto looked, look_to_settle(folder, name, by_path, index_.path(), &left));
    if (!looked) continue;  // it has gone
    if (left.empty() && !news.empty()) return false;
    if (left.empty())
      ST_TRY(settle(folder, name, *looked, index));
    else
      tell(LogLevel::warning, Status::journal,
           text("super-journal ", in_quotes(name), " decides nothing; it was left (", left, ")"));
  }
  return true;
}

// Some systems do not tell large letters from small ones. There a list may spell the name of the index in another way.
// A hard link is another name: then the folder lists both, and of two spellings one.
Result<bool> SuperRecovery::is_name_of(const os::File &index, const std::string &name) const {
  if (name == index_.name()) return true;
  const os::Location named = index_.beside(name);
  struct stat by_name;
  const int r = named.stat(&by_name);
  if (r == -ENOENT || r == -ENOTDIR || r == -EINVAL || r == -ENAMETOOLONG) return false;  // it names no file
  if (r < 0) return Failure(os_error(-r, "look at", named.path()));
  ST_TRY(const auto locked, index.stat());
  if (!os::same_inode(by_name, locked)) return false;
  if (locked.st_nlink == 1) return true;
  ST_TRY(const auto names, index_.folder()->list());
  const auto is_listed = [&](const std::string &n) { return std::find(names.begin(), names.end(), n) != names.end(); };
  return !is_listed(name) || !is_listed(index_.name());
}

// A good one is in `list`.
Result<Verdict> SuperRecovery::read_list_of(const std::string &name, const Found &super, const os::File &index,
                                            SuperManifest *list) const {
  if (!super.verdict.is_good()) return super.verdict;
  if (!super.record.is_super() || transaction_of(name) != super.record.transaction)
    return Verdict::bad("it is no super-journal");
  ST_TRY(auto read, read_list(super));
  ST_TRY(const auto is_ours, read ? is_name_of(index, read->index.file) : Result<bool>(false));
  if (!is_ours) return Verdict::bad("its list of files is damaged");
  *list = std::move(*read);
  return Verdict::good();
}

Result<void> SuperRecovery::settle(const Folder &folder, std::string name, Found &super, const os::File &index) {
  if (!super.waits()) {
    ST_TRY(auto dropped, drop_if_idle(folder, &name, super));
    result.dropped += dropped;
    if (dropped || !super.waits()) return {};
  } else {
    ST_TRY(auto ours, claim(folder, &name, super));
    if (!ours) return {};
    // Its writer was alive, and has finished.
    if (!super.waits()) return empty_and_drop(folder, name, super);
  }
  ST_TRY(check_named(index_, index));
  SuperManifest list;
  ST_TRY(auto verdict, read_list_of(name, super, index, &list));
  RollForward forward(index_.folder(), list, super.record.transaction, wait_);
  if (verdict.is_good()) {
    auto judged = forward.judge(index, super);
    if (!judged) return Failure(read_only(std::move(judged.error())));
    verdict = std::move(*judged);
  }
  if (!verdict.is_good()) {
    ST_TRY(auto aside, move_aside(folder, name));
    ++result.aside;
    result.why_aside = text("the super-journal ", in_quotes(name), " was not applied: ", verdict.why(),
                            "; it was moved aside to ", in_quotes(aside));
    tell(LogLevel::warning, Status::journal, result.why_aside);
    return {};
  }
  ST_TRY(confirm(super));
  StillOurs ours(super.file, [&] { return check_claimed(folder, name, super); });
  ST_TRY(ours.ask());
  ST_TRY(forward.apply(ours));
  ST_TRY(drop_applied(folder, name, super));
  forward.drop_parts();
  ++result.applied;
  tell(LogLevel::info, Status::ok,
       text("super-journal ", in_quotes(name), ": its committed transaction on ", list.parts.size(),
            " shards was finished"));
  return {};
}

}  // namespace

Result<Recovered> recover_super(const os::Location &index, const os::LockWait &wait, const Findings &findings) {
  SuperRecovery recovery(index, wait);
  for (bool all = false; !all;) {
    ST_TRY(all, tell_at_end(recovery.news, findings, [&] { return os::while_stale([&] { return recovery.run(); }); }));
  }
  return std::move(recovery.result);
}

Result<Recovered> recover_super_or_fail(const os::Location &index, const os::LockWait &wait, const Findings &findings) {
  auto done = recover_super(index, wait, findings);
  if (done && done->aside > 0)
    return fail(Status::journal, done->why_aside,
                "; the checkpoint may hold a half-finished change: verify it, then open again");
  return done;
}

namespace {

Result<Recovered> recover_super_at(const os::Location &index, const os::LockWait &wait, bool tidy,
                                   const Findings &findings) {
  ST_TRY(const auto by_path, os::look_up(index, wait));
  const Log told = [&](LogLevel level, const std::string &m) {
    if (findings) findings({level, Status::journal, m});
  };
  ST_TRY(auto folder, Folder::open(index, by_path, told));
  if (!folder) return Recovered{};
  ST_TRY(auto journals, find_hot_journals(*folder, by_path));
  if (!journals.committed) {
    if (tidy && journals.idle) static_cast<void>(recover_super(index, {0, wait.control, wait.waits}, findings));
    if (tidy && !journals.idle) Folder::remove_if_empty(index);
    return Recovered{};
  }
  return recover_super_or_fail(index, wait, findings);
}

struct Beside {
  struct stat index;
  std::optional<Folder> folder;  // nothing, too, if the caller need not trust the user who made it
  bool is_strangers = false;     // then: nothing in it is left by a dead writer
};

Result<Beside> look_beside(const os::Location &index, const os::LockWait &wait) {
  Beside found = {};
  ST_TRY(found.index, os::look_up(index, wait));
  auto opened = Folder::open(index, found.index, {});
  found.is_strangers = !opened && opened.error().status == Status::journal && all_rest(index);
  if (found.is_strangers) return found;
  ST_TRY(found.folder, std::move(opened));
  return found;
}

bool gives_names(const SuperManifest &list) {
  const auto is_given = [](const SuperParticipant &p) { return !p.first.empty() || !p.second.empty(); };
  return is_given(list.index) || std::any_of(list.parts.begin(), list.parts.end(), is_given);
}

}  // namespace

Result<bool> is_decided(const os::Location &index, const os::LockWait &wait) {
  ST_TRY(const auto beside, look_beside(index, wait));
  if (!beside.folder) return beside.is_strangers && !all_rest(index, Held::waits);
  // Asked as if all bytes of the index were locked: then the journal of a living writer counts, too.
  const Piece all{0, {0, static_cast<uint64_t>(beside.index.st_size), 0}, nullptr};
  ST_TRY(const auto journals, find_hot_journals(*beside.folder, beside.index, {{}, {&all, 1}}));
  return journals.committed;
}

// What cannot be read is left to recovery.
Result<bool> is_left_half_done(const os::Location &index, const os::LockWait &wait) {
  ST_TRY(const auto beside, look_beside(index, wait));
  if (!beside.folder) return false;
  ST_TRY(const auto names, beside.folder->journals());
  for (const std::string &name : names) {
    ST_TRY(auto found, look_at(*beside.folder, name, beside.index, false));
    if (!found || !found->waits() || is_dropped(name)) continue;
    if (!found->file) return true;
    ST_TRY(const auto list, read_list(*found));
    if (!list || gives_names(*list)) return true;
  }
  return false;
}

// Another host may remove the folder amid a look at it, and its server then forgets it.
Result<Recovered> recover_super_if_needed(const os::Location &index, const os::LockWait &wait, bool tidy,
                                          const Findings &findings) {
  return os::while_stale([&] { return recover_super_at(index, wait, tidy, findings); });
}

}  // namespace st::write
