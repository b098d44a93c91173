#include "journal/roll_forward.h"

#include <cerrno>

#include "base/hash.h"
#include "journal/claim.h"
#include "journal/identity.h"
#include "os/rename_over.h"

namespace st::write {
namespace {

Result<Form> form_of_shard(const os::File &file) {
  ST_TRY(auto identity, identify(file));
  return Form{identity.size, identity.header_hash};
}

}  // namespace

Result<Form> form_of_index(const os::File &file) {
  constexpr uint64_t block = uint64_t{256} << 10;
  ST_TRY(auto s, file.stat());
  const auto size = static_cast<uint64_t>(s.st_size);
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(block);
  Hasher hasher;
  for (uint64_t at = 0; at < size; at += block) {
    const uint64_t n = std::min(block, size - at);
    ST_TRY(file.read(buffer.get(), n, at));
    hasher.add(buffer.get(), n);
  }
  return Form{size, hasher.digest()};
}

// May it be the new file of the transaction? Once the new file has taken its place, another user of the folder may have
// given its name to another file. A file with a second link would change under the second name whenever it is changed
// in place.
Verdict RollForward::may_be_new(const struct stat &made, const struct stat &old) const {
  if (!S_ISREG(made.st_mode)) return Verdict::bad("it is no plain file");
  if (made.st_nlink != 1) return Verdict::bad("it has a second link; remove that link");
  return trust(made, old, dir_->env().geteuid());
}

// Locked, so that an opener of its new name waits until that is durable.
Result<RollForward::Target::Temporary> RollForward::open_temporary(const std::string &name, const struct stat &old) {
  Target::Temporary temporary;
  struct stat seen;
  const int looked = at(name).stat(&seen);
  if (looked == -ENOENT) return temporary;
  if (looked < 0) return Failure(os_error(-looked, "look at", at(name).path()));
  temporary.is_there = true;
  temporary.verdict = may_be_new(seen, old);
  if (!temporary.verdict.is_good()) return temporary;
  auto file = at(name).open(O_RDWR | O_NONBLOCK | O_NOCTTY);
  if (!file && file.error().os_errno == ENOENT) return Target::Temporary();
  if (!file) return Failure(std::move(file.error()));
  auto opened = std::make_unique<Target::Opened>();
  opened->file = std::move(*file);
  ST_TRY(const auto now, opened->file.stat());
  if (!os::same_inode(now, seen)) {
    temporary.verdict = Verdict::bad("it was exchanged for another just now");
    return temporary;
  }
  ST_TRY(opened->lock, os::RangeLock::acquire(opened->file, {os::whole_file(true)}, wait_));
  temporary.opened = std::move(opened);
  return temporary;
}

// A file that is still the old one awaits the new one, which may be the one that cannot be trusted. Nobody but a user
// can tell, and moved aside, the transaction would be lost.
Error RollForward::is_awaited(const std::string &name, const std::string &file, const Verdict &verdict) const {
  return error(Status::needs_recovery, "the new file for ", in_quotes(file), " of a decided transaction, ",
               in_quotes(at(name).path()), ", is not to be trusted: ", verdict.why(),
               "; if it is the one that was written, give it the owner and the rights of ", in_quotes(file),
               " and no other name, and open anew");
}

Result<Verdict> RollForward::look_at_temporaries(Target &target, const os::File &now, bool is_index) {
  const SuperParticipant &e = *target.entry;
  auto form_of = [&](const os::File &file) { return is_index ? form_of_index(file) : form_of_shard(file); };
  ST_TRY(const auto form, form_of(now));
  ST_TRY(const auto old, now.stat());
  const std::string shown = in_quotes(e.file);
  struct Step {
    const std::string *name;
    const Form *form;
    std::unique_ptr<Target::Opened> *found;
  };
  const Form *reached = &e.old;  // what the file is, if steps are still to be done
  for (const Step &step : {Step{&e.first, &e.first_form, &target.first}, {&e.second, &e.second_form, &target.second}}) {
    if (step.name->empty()) continue;
    ST_TRY(auto temporary, open_temporary(*step.name, old));
    if (temporary.is_there && !temporary.opened && form == *reached)
      return Failure(is_awaited(*step.name, e.file, temporary.verdict));
    *step.found = std::move(temporary.opened);
    if (!*step.found) {  // it has taken its place
      reached = step.form;
      continue;
    }
    ST_TRY(auto made, form_of((*step.found)->file));
    if (made != *step.form) return Verdict::bad(text("the new file for ", shown, " is damaged"));
  }
  if (form != *reached)
    return Verdict::bad(text(shown, " is neither the old file nor the new one: something else has changed it"));
  has_begun_ |= form != e.old;
  return Verdict::good();
}

Result<Verdict> RollForward::look_at_journal(Target &target) {
  ST_TRY(auto data, target.locked->file.stat());
  ST_TRY(target.folder, Folder::open(at(target.entry->file), data, {}));
  if (!target.folder) return Verdict::good();
  target.journal_name = target.entry->journal;
  ST_TRY(auto looked, look_for(*target.folder, &target.journal_name, data, true));
  if (!looked) return Verdict::good();
  if (looked->is_linked) looked->verdict = Verdict::bad("it has a second link");
  if (!looked->verdict.is_good())
    return Verdict::bad(text("the journal of ", in_quotes(target.entry->file), ": ", looked->verdict.why()));
  const CommitRecord &record = looked->record;
  if (looked->state == JournalState::committed && record.is_part() && record.transaction == transaction_)
    target.journal = std::move(looked);
  return Verdict::good();
}

// Whether new bytes are in a file only its journal can tell. One that was carried out says so until all is finished.
Result<Verdict> RollForward::look_at_patch(Target &target) {
  if (!target.journal)
    return Verdict::bad(
        text(in_quotes(target.entry->file), " was to be changed, but its journal is gone: something has removed it"));
  target.replay = std::make_unique<Replay>(target.locked->file, *target.journal);
  ST_TRY(auto identity, identify(target.locked->file));
  ST_TRY(auto verdict, target.replay->judge_part(identity));
  if (!verdict.is_good())
    return Verdict::bad(text("the journal of ", in_quotes(target.entry->file), ": ", verdict.why()));
  ST_TRY(target.replay->may_apply());
  has_begun_ |= target.replay->touched();
  return verdict;
}

// A copy of all files has other inodes, and a crash may come between the first part and the last. So a file that has
// nothing new yet is believed to be the part's if another shows that the transaction had begun.
Verdict RollForward::judge_strange() const {
  if (has_begun_) return Verdict::good();
  for (const Target &t : targets_)
    if (t.replay && t.replay->is_strange())
      return Verdict::bad(text("the journal of ", in_quotes(t.entry->file), ": ", Replay::why_strange));
  return Verdict::good();
}

// A user that may decide for the index may be nobody for a shard. Else the owner of the index could have any file
// replaced that lies beside it. But a part beside the shard that is to be trusted says itself what decides. Other files
// there may be that owner's, too, and say nothing about the decision.
Result<Verdict> RollForward::look_at_part(Target &shard, const Found &decision) {
  ST_TRY(const auto data, shard.locked->file.stat());
  ST_TRY(const auto by, decision.file.stat());
  const Verdict may = trust(by, data, dir_->env().geteuid());
  auto looked = look_at_journal(shard);
  if (may.is_good() || (shard.journal && shard.journal->record.super_of == list_.index.file)) return looked;
  if (!looked && looked.error().status != Status::journal && looked.error().os_errno != EACCES) return looked;
  return fail(Status::needs_recovery, "the super-journal ", in_quotes(decision.file.path()),
              " is not to be trusted with ", in_quotes(shard.entry->file), ": ", may.why(), "; ",
              who_finishes(by.st_uid));
}

Result<Verdict> RollForward::judge(const os::File &index, const Found &decision) {
  index_.entry = &list_.index;
  if (auto verdict = look_at_temporaries(index_, index, true); !verdict || !verdict->is_good()) return verdict;
  for (const SuperParticipant &entry : list_.parts) {
    Target target;
    target.entry = &entry;
    // A shard that lies elsewhere never has a part: nobody's list makes us write there.
    auto locked = lock_whole_file(at(entry.file), wait_);
    if (!locked && locked.error().status == Status::not_regular)
      return Verdict::bad(text(in_quotes(entry.file), " is no plain file"));
    if (!locked && locked.error().status == Status::no_file)
      return Verdict::bad(text(in_quotes(entry.file), " is gone"));
    if (!locked) return Failure(std::move(locked.error()));
    target.locked = std::move(*locked);
    if (auto verdict = look_at_part(target, decision); !verdict || !verdict->is_good()) return verdict;
    // A part that was carried out may have been changed since, by a writer of this file alone.
    has_begun_ |= target.done();
    if (!target.done()) {
      if (auto verdict = look_at_temporaries(target, target.locked->file, false); !verdict || !verdict->is_good())
        return verdict;
      const bool patches = entry.first.empty() && entry.second.empty();
      if (patches)
        if (auto verdict = look_at_patch(target); !verdict || !verdict->is_good()) return verdict;
    }
    targets_.push_back(std::move(target));
  }
  return judge_strange();
}

Result<void> RollForward::rename_to(const std::string &temporary, const std::string &file) {
  const int r = os::rename_over(at(file), dir_->fd(), temporary);
  if (r < 0) return Failure(os_error(-r, "rename", at(temporary).path()));
  return {};
}

// The steps that were done before may not be durable: their writer may have died in between.
Result<void> RollForward::apply(StillOurs &ours) {
  const auto place = [&](const std::string &temporary, const std::string &file) -> Result<void> {
    ST_TRY(ours.check());
    return rename_to(temporary, file);
  };
  for (Target &t : targets_)
    if (t.replay) ST_TRY(t.replay->apply(ours));
  for (Target &t : targets_)
    if (t.first) ST_TRY(place(t.entry->first, t.entry->file));
  ST_TRY(dir_->sync());
  if (index_.first) ST_TRY(place(index_.entry->first, index_.entry->file));
  ST_TRY(dir_->sync());
  for (Target &t : targets_)
    if (t.second) ST_TRY(place(t.entry->second, t.entry->file));
  ST_TRY(dir_->sync());
  for (Target &t : targets_)
    if (t.journal) ST_TRY(mark_done(*t.journal));
  return {};
}

void RollForward::drop_parts() {
  for (Target &t : targets_) {
    if (!t.journal) continue;
    drop(*t.folder, t.journal_name);
    t.replay.reset();
    t.journal.reset();  // an open file may be in the folder's way, as on NFS
    Folder::remove_if_empty(at(t.entry->file));
  }
}

}  // namespace st::write
