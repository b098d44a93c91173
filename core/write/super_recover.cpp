#include "write/super_recover.h"

#include <cerrno>
#include <optional>

#include "hash.h"
#include "write/exclusive.h"
#include "write/identity.h"
#include "write/orphan.h"
#include "write/replacement.h"
#include "write/super_journal.h"

namespace st::write {
namespace {

constexpr uint64_t longest_list = uint64_t{64} << 20;

Result<std::optional<SuperList>> read_list(const Found &found) {
  const CommitRecord &r = found.record;
  if (r.ranges > longest_list || r.manifest > found.size || r.ranges > found.size - r.manifest) return std::nullopt;
  std::vector<std::byte> manifest(r.ranges);
  if (auto got = found.file.read(manifest.data(), manifest.size(), r.manifest); !got)
    return Failure(std::move(got.error()));
  if (hash64(manifest.data(), manifest.size()) != r.manifest_hash) return std::nullopt;
  return decode_super(manifest);
}

Result<Form> form_of_shard(const os::File &file) {
  auto identity = identify(file);
  if (!identity) return Failure(std::move(identity.error()));
  return Form{identity->size, identity->header_hash};
}

// A file of the transaction, with all that recovery needs to know of it.
struct Target {
  const SuperEntry *entry = nullptr;
  std::unique_ptr<Exclusive> locked;
  struct Temporary {
    os::File file;
    os::RangeLock lock;  // of file: dies first
  };
  std::unique_ptr<Temporary> first, second;  // those that have not taken their place yet
  std::optional<Folder> folder;
  std::unique_ptr<Found> journal;  // of this transaction, if it is still there
  std::unique_ptr<Replay> replay;
};

// Brings every file of a decided transaction to its new state. All is checked, and
// locked, before the first is touched.
class RollForward {
 public:
  RollForward(os::Env &env, const os::File &dir, const SuperList &list, uint64_t transaction, const os::LockWait &wait)
      : env_(env), dir_(dir), list_(list), transaction_(transaction), wait_(wait) {}

  // Empty: it may go on.
  Result<std::string> why_not(const os::File &index);
  Result<void> apply();

 private:
  Result<std::string> look_at_temporaries(Target &target, const os::File &now, bool is_index);
  Result<std::string> look_at_journal(Target &target);
  Result<std::unique_ptr<Target::Temporary>> open_temporary(const std::string &name);
  Result<void> place(const std::string &temporary, const std::string &file);

  os::Env &env_;
  const os::File &dir_;
  const SuperList &list_;
  const uint64_t transaction_;
  const os::LockWait wait_;
  Target index_;
  std::vector<Target> targets_;
};

// Null if it is not there. Locked, so that whoever opens it under its new name waits until that is durable.
Result<std::unique_ptr<Target::Temporary>> RollForward::open_temporary(const std::string &name) {
  auto file = os::File::open(env_, dir_.fd(), name, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0, dir_.path() + "/" + name);
  if (!file && file.error().os_errno == ENOENT) return nullptr;
  if (!file) return Failure(std::move(file.error()));
  auto temporary = std::make_unique<Target::Temporary>();
  temporary->file = std::move(*file);
  auto lock = os::RangeLock::acquire(temporary->file, {{0, 0, true}}, wait_);
  if (!lock) return Failure(std::move(lock.error()));
  temporary->lock = std::move(*lock);
  return temporary;
}

Result<std::string> RollForward::look_at_temporaries(Target &target, const os::File &now, bool is_index) {
  const SuperEntry &e = *target.entry;
  auto form_of = [&](const os::File &file) { return is_index ? form_of_index(file) : form_of_shard(file); };
  auto form = form_of(now);
  if (!form) return Failure(std::move(form.error()));
  const std::string shown = in_quotes(e.file);
  struct Step {
    const std::string *name;
    const Form *form;
    std::unique_ptr<Target::Temporary> *found;
  };
  const Form *reached = &e.old;  // what the file is, if steps are still to be done
  for (const Step &step : {Step{&e.first, &e.first_form, &target.first}, {&e.second, &e.second_form, &target.second}}) {
    if (step.name->empty()) continue;
    auto found = open_temporary(*step.name);
    if (!found) return Failure(std::move(found.error()));
    *step.found = std::move(*found);
    if (!*step.found) {  // it has taken its place
      reached = step.form;
      continue;
    }
    auto made = form_of((*step.found)->file);
    if (!made) return Failure(std::move(made.error()));
    if (*made != *step.form) return text("the new file for ", shown, " is damaged");
  }
  if (*form != *reached) return text(shown, " is neither the old file nor the new one: something else has changed it");
  return std::string();
}

Result<std::string> RollForward::look_at_journal(Target &target) {
  const std::string path = dir_.path() + "/" + target.entry->file;
  auto data = target.locked->file.stat();
  if (!data) return Failure(std::move(data.error()));
  auto folder = Folder::open(env_, path, *data, {});
  if (!folder) return Failure(std::move(folder.error()));
  target.folder = std::move(*folder);
  if (!target.folder) return std::string();
  auto looked = look_at(*target.folder, target.entry->journal, *data, true);
  if (!looked) return Failure(std::move(looked.error()));
  if (!*looked || !(*looked)->waits()) return std::string();
  if (!(*looked)->damage.empty())
    return text("the journal of ", in_quotes(target.entry->file), ": ", (*looked)->damage);
  if (!(*looked)->record.is_part() || (*looked)->record.transaction != transaction_) return std::string();
  target.journal = std::move(*looked);
  const bool patches = target.entry->first.empty() && target.entry->second.empty();
  if (!patches) return std::string();
  target.replay = std::make_unique<Replay>(target.locked->file, *target.journal);
  auto why = target.replay->why_not();
  if (why && !why->empty()) return text("the journal of ", in_quotes(target.entry->file), ": ", *why);
  return why;
}

Result<std::string> RollForward::why_not(const os::File &index) {
  index_.entry = &list_.index;
  if (auto why = look_at_temporaries(index_, index, true); !why || !why->empty()) return why;
  for (const SuperEntry &entry : list_.parts) {
    Target target;
    target.entry = &entry;
    // A shard that lies elsewhere never has a part: nobody's list makes us write there.
    auto locked = lock_whole_file(env_, dir_.path() + "/" + entry.file, wait_, os::Links::refuse);
    if (!locked && locked.error().status == Status::not_regular)
      return text(in_quotes(entry.file), " is no plain file");
    if (!locked && locked.error().status == Status::no_file) return text(in_quotes(entry.file), " is gone");
    if (!locked) return Failure(std::move(locked.error()));
    target.locked = std::move(*locked);
    if (auto why = look_at_temporaries(target, target.locked->file, false); !why || !why->empty()) return why;
    if (auto why = look_at_journal(target); !why || !why->empty()) return why;
    targets_.push_back(std::move(target));
  }
  return std::string();
}

Result<void> RollForward::place(const std::string &temporary, const std::string &file) {
  const int r =
      os::repeat_interrupted([&] { return env_.renameat(dir_.fd(), temporary.c_str(), dir_.fd(), file.c_str()); });
  if (r < 0) return Failure(os_error(-r, "rename", dir_.path() + "/" + temporary));
  return {};
}

// Steps that were done before are not done again, but made durable: whoever did
// them may have died between.
Result<void> RollForward::apply() {
  for (Target &t : targets_)
    if (t.replay)
      if (auto applied = t.replay->apply(); !applied) return applied;
  for (Target &t : targets_)
    if (t.first)
      if (auto placed = place(t.entry->first, t.entry->file); !placed) return placed;
  if (auto synced = dir_.sync(); !synced) return synced;
  if (index_.first)
    if (auto placed = place(index_.entry->first, index_.entry->file); !placed) return placed;
  if (auto synced = dir_.sync(); !synced) return synced;
  for (Target &t : targets_)
    if (t.second)
      if (auto placed = place(t.entry->second, t.entry->file); !placed) return placed;
  if (auto synced = dir_.sync(); !synced) return synced;
  for (Target &t : targets_) {
    if (!t.journal) continue;
    if (auto emptied = empty_and_drop(*t.folder, t.entry->journal, *t.journal); !emptied) return emptied;
    Folder::remove_if_empty(env_, dir_.path() + "/" + t.entry->file);
  }
  return {};
}

}  // namespace

Result<Form> form_of_index(const os::File &file) {
  constexpr uint64_t block = uint64_t{256} << 10;
  auto s = file.stat();
  if (!s) return Failure(std::move(s.error()));
  const auto size = static_cast<uint64_t>(s->st_size);
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(block);
  Hasher hasher;
  for (uint64_t at = 0; at < size; at += block) {
    const uint64_t n = std::min(block, size - at);
    if (auto got = file.read(buffer.get(), n, at); !got) return Failure(std::move(got.error()));
    hasher.add(buffer.get(), n);
  }
  return Form{size, hasher.digest()};
}

Result<Decision> decision_on(os::Env &env, const std::string &path, const CommitRecord &part, const struct stat &data) {
  const std::string index = os::split_path(path).first + "/" + part.super_of;
  auto folder = Folder::open(env, index, data, {});
  if (!folder && folder.error().status == Status::journal) return Decision::unknown;
  if (!folder) return Failure(std::move(folder.error()));
  if (!*folder) return Decision::no;
  auto looked = look_at(**folder, super_name(part.transaction), data, false);
  if (!looked) return Failure(std::move(looked.error()));
  if (!*looked || !(*looked)->waits()) return Decision::no;
  const bool is_ours =
      (*looked)->damage.empty() && (*looked)->record.is_super() && (*looked)->record.transaction == part.transaction;
  return is_ours ? Decision::yes : Decision::unknown;
}

Result<Recovered> recover_super(os::Env &env, const std::string &index, const os::LockWait &wait,
                                const Findings &findings) {
  Recovered result;
  auto tell = [&](LogLevel level, Status status, std::string message) {
    return !findings || findings({level, status, std::move(message)});
  };
  struct stat by_path;
  if (const int r = env.fstatat(AT_FDCWD, index.c_str(), &by_path, 0); r < 0)
    return Failure(os_error(-r, "look at", index));
  auto there =
      Folder::open(env, index, by_path, [&](LogLevel level, const std::string &m) { tell(level, Status::journal, m); });
  if (!there) return Failure(std::move(there.error()));
  auto read_only = [&](Error &&e) { return Failure(means_read_only(e) ? needs_recovery(index, e) : std::move(e)); };
  auto exclusive = lock_whole_file(env, index, wait);
  if (!exclusive) return *there ? read_only(std::move(exclusive.error())) : Failure(std::move(exclusive.error()));
  // As in the recovery of a file, what counts is what is there now.
  auto folder = Folder::open(env, index, by_path, {});
  if (!folder) return Failure(std::move(folder.error()));
  if (*folder) {
    const std::string in = os::split_path(index).first;
    auto dir = os::File::open(env, AT_FDCWD, in, O_RDONLY | O_DIRECTORY, 0, in);
    if (!dir) return Failure(std::move(dir.error()));
    auto names = (*folder)->journals();
    if (!names) return Failure(std::move(names.error()));
    for (const std::string &name : *names) {
      auto looked = look_at(**folder, name, by_path, true);
      if (!looked) return read_only(std::move(looked.error()));
      if (!*looked) continue;
      Found &super = **looked;
      if (!super.waits()) {
        auto dropped = drop_if_idle(**folder, name, super);
        if (!dropped) return Failure(std::move(dropped.error()));
        result.dropped += *dropped;
        continue;
      }
      std::string why = super.damage;
      std::optional<SuperList> list;
      if (why.empty() && (!super.record.is_super() || transaction_of(name) != super.record.transaction))
        why = "it is no super-journal";
      if (why.empty()) {
        auto read = read_list(super);
        if (!read) return Failure(std::move(read.error()));
        list = std::move(*read);
        if (!list || list->index.file != os::split_path(index).second) why = "its list of files is damaged";
      }
      std::optional<RollForward> forward;
      if (why.empty()) {
        auto checked = forward.emplace(env, *dir, *list, super.record.transaction, wait).why_not((*exclusive)->file);
        if (!checked) return read_only(std::move(checked.error()));
        why = std::move(*checked);
      }
      if (!why.empty()) {
        auto aside = move_aside(**folder, name);
        if (!aside) return Failure(std::move(aside.error()));
        ++result.aside;
        result.why_aside =
            text("the super-journal ", name, " was not applied: ", why, "; it was moved aside to ", in_quotes(*aside));
        if (!tell(LogLevel::warning, Status::journal, result.why_aside)) break;
        continue;
      }
      if (auto applied = forward->apply(); !applied) return Failure(std::move(applied.error()));
      if (auto emptied = empty_and_drop(**folder, name, super); !emptied) return Failure(std::move(emptied.error()));
      ++result.applied;
      if (!tell(LogLevel::info, Status::ok,
                text("super-journal ", name, ": its committed transaction on ", list->parts.size(),
                     " shards was finished")))
        break;
    }
  }
  Replacement::remove_stale(env, index, undecided_infix);
  (*exclusive)->lock.release();
  Folder::remove_if_empty(env, index);
  return result;
}

Result<Recovered> recover_super_or_fail(os::Env &env, const std::string &index, const os::LockWait &wait,
                                        const Findings &findings) {
  auto done = recover_super(env, index, wait, findings);
  if (done && done->aside > 0)
    return fail(Status::journal, done->why_aside,
                "; the checkpoint may hold a half-finished change: verify it, then open again");
  return done;
}

Result<Recovered> recover_super_if_needed(os::Env &env, const std::string &index, const os::LockWait &wait, bool tidy,
                                          const Findings &findings) {
  struct stat by_path;
  if (const int r = env.fstatat(AT_FDCWD, index.c_str(), &by_path, 0); r < 0)
    return Failure(os_error(-r, "look at", index));
  auto folder = Folder::open(env, index, by_path, [&](LogLevel level, const std::string &m) {
    if (findings) findings({level, Status::journal, m});
  });
  if (!folder) return Failure(std::move(folder.error()));
  if (!*folder) return Recovered{};
  auto orphans = find_orphans(**folder, by_path);
  if (!orphans) return Failure(std::move(orphans.error()));
  if (!orphans->committed) {
    if (tidy && orphans->idle) static_cast<void>(recover_super(env, index, {0, wait.control, wait.waits}, findings));
    if (tidy && !orphans->idle) Folder::remove_if_empty(env, index);
    return Recovered{};
  }
  return recover_super_or_fail(env, index, wait, findings);
}

}  // namespace st::write
