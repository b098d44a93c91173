#include "store/shard_transaction.h"

#include <algorithm>
#include <cerrno>

#include "hash.h"
#include "write/carry_over.h"
#include "write/super_recover.h"

namespace st::store {

Result<std::unique_ptr<ShardTransaction>> ShardTransaction::begin(Shards &shards, TransactionOptions options) {
  if (!shards.options().writable)
    return fail(Status::read_only, in_quotes(shards.path()),
                " was opened for reading only; open it for reading and writing to change it");
  if (options.fillers)
    return fail(Status::unsupported,
                "fillers would be tensors that the index of shards does not name; delete without "
                "ST_TXN_FILLERS, or open the shard by its own path");
  if (shards.poisoned_)
    return fail(Status::poisoned, "an earlier commit of ", in_quotes(shards.path()),
                " did not end well; close the handle and open the checkpoint anew");
  return std::unique_ptr<ShardTransaction>(new ShardTransaction(shards, std::move(options)));
}

Result<void> ShardTransaction::may_go_on() const {
  if (failed_)
    return fail(Status::txn_failed, "an earlier call of this transaction failed; abort it and begin another");
  return {};
}

std::optional<uint32_t> ShardTransaction::shard_of(std::string_view name) const {
  if (const auto found = moved_.find(std::string(name)); found != moved_.end()) return found->second;
  return shown_.index().shard_of(name);
}

Result<uint32_t> ShardTransaction::existing(std::string_view name) const {
  if (auto ok = may_go_on(); !ok) return Failure(std::move(ok.error()));
  if (const auto shard = shard_of(name)) return *shard;
  return Failure(error(Status::not_found, "no tensor is named ", in_quotes(name), " in ", in_quotes(shards_.path()))
                     .about_tensor(name));
}

// The last shard that is rewritten anyway, else the last.
uint32_t ShardTransaction::place_for_new() const {
  for (auto part = parts_.rbegin(); part != parts_.rend(); ++part)
    if (part->second->publishes()) return part->first;
  return static_cast<uint32_t>(shown_.members().size() - 1);
}

Result<Transaction *> ShardTransaction::part(uint32_t shard) {
  if (const auto found = parts_.find(shard); found != parts_.end()) return found->second.get();
  auto pinned = shown_.pin(shard);
  if (!pinned) return Failure(std::move(pinned.error()));
  auto begun = Transaction::begin(*pinned->member, options_);
  if (!begun) return Failure(std::move(begun.error()));
  // An earlier transaction that came to nothing may have followed the shard further than the handle shows.
  if (const Snapshot &now = (*begun)->before(); &now != pinned->snapshot && !shown_.agrees(shard, now)) {
    Error e = error(Status::file_changed, in_quotes(pinned->member->path()),
                    " was replaced since it was read; refresh the handle and begin again");
    e.shard = shard;
    return Failure(std::move(e));
  }
  return parts_.emplace(shard, std::move(*begun)).first->second.get();
}

namespace {

// What a shard's own transaction answers, with its number.
Result<void> of_shard(uint32_t shard, Result<void> answer) {
  if (!answer) answer.error().shard = shard;
  return answer;
}

}  // namespace

Result<void> ShardTransaction::update(std::string_view name, const NewBytes &value) {
  auto shard = existing(name);
  if (!shard) return Failure(std::move(shard.error()));
  auto in = part(*shard);
  if (!in) return Failure(std::move(in.error()));
  return of_shard(*shard, (*in)->update(name, value));
}

Result<void> ShardTransaction::put(std::string_view name, const NewBytes &value) {
  if (auto ok = may_go_on(); !ok) return ok;
  if (shown_.members().empty())
    return fail(Status::unsupported, "the index ", in_quotes(shards_.path()),
                " names no shard that a tensor could be put into; save the checkpoint anew");
  const uint32_t shard = shard_of(name).value_or(place_for_new());
  auto in = part(shard);
  if (!in) return Failure(std::move(in.error()));
  if (auto done = of_shard(shard, (*in)->put(name, value)); !done) return done;
  moved_[std::string(name)] = shard;
  return {};
}

Result<void> ShardTransaction::remove(std::string_view name) {
  auto shard = existing(name);
  if (!shard) return Failure(std::move(shard.error()));
  auto in = part(*shard);
  if (!in) return Failure(std::move(in.error()));
  if (auto done = of_shard(*shard, (*in)->remove(name)); !done) return done;
  moved_[std::string(name)] = std::nullopt;
  return {};
}

Result<void> ShardTransaction::rename(std::string_view from, std::string_view to) {
  auto shard = existing(from);
  if (!shard) return Failure(std::move(shard.error()));
  if (from != to && shard_of(to))
    return Failure(error(Status::duplicate_name, "there is a tensor named ", in_quotes(to),
                         " already; delete it first, or choose another name")
                       .about_tensor(to));
  auto in = part(*shard);
  if (!in) return Failure(std::move(in.error()));
  if (auto done = of_shard(*shard, (*in)->rename(from, to)); !done) return done;
  moved_[std::string(from)] = std::nullopt;
  moved_[std::string(to)] = *shard;
  return {};
}

Result<void> ShardTransaction::set_metadata(std::string_view key, std::optional<std::string_view> value) {
  if (key == total_size_key)
    return fail(Status::invalid_argument, "total_size is kept right by every change; it cannot be set");
  if (!value) {
    bool there = shown_.metadata_find(key).has_value();
    for (const auto &[changed, to] : metadata_)
      if (changed == key) there = to.has_value();
    if (!there) return fail(Status::not_found, "the metadata of the index has no key ", in_quotes(key));
  }
  metadata_.emplace_back(key, value ? std::optional<std::string>(*value) : std::nullopt);
  return {};
}

std::optional<uint32_t> ShardTransaction::first_shard() const {
  std::vector<uint64_t> held = shown_.index().counts();
  for (const auto &[name, now] : moved_) {
    if (const auto before = shown_.index().shard_of(name)) --held[*before];
    if (now) ++held[*now];
  }
  const auto first = std::find_if(held.begin(), held.end(), [](uint64_t n) { return n > 0; });
  return first == held.end() ? std::nullopt : std::optional(static_cast<uint32_t>(first - held.begin()));
}

Result<void> ShardTransaction::remove_header_metadata(uint32_t shard, std::string_view key) {
  auto in = part(shard);
  if (!in) return Failure(std::move(in.error()));
  return of_shard(shard, (*in)->set_metadata(key, std::nullopt));
}

Result<void> ShardTransaction::approve() const {
  if (!approve_) return {};
  if (auto same = shown_.check_unchanged(); !same) return same;
  for (const auto &[shard, transaction] : parts_)
    if (&transaction->before() != shown_.pinned(shard)) {
      Error e = error(Status::file_changed, in_quotes(transaction->checkpoint().path()),
                      " was replaced meanwhile; try again");
      e.shard = shard;
      return Failure(std::move(e));
    }
  return approve_();
}

std::vector<std::pair<uint32_t, Transaction *>> ShardTransaction::parts_with_work() const {
  std::vector<std::pair<uint32_t, Transaction *>> parts;
  for (const auto &[shard, transaction] : parts_)
    if (transaction->has_work()) parts.emplace_back(shard, transaction.get());
  return parts;
}

bool ShardTransaction::changes_index() const {
  return !moved_.empty() || !metadata_.empty();
}

Result<CommitPlan> ShardTransaction::plan() {
  CommitPlan sum;
  sum.how = "nothing is staged";
  const auto parts = parts_with_work();
  for (const auto &[shard, transaction] : parts) {
    auto plan = transaction->plan();
    if (!plan) {
      plan.error().shard = shard;
      return plan;
    }
    sum.kind = std::max(sum.kind, plan->kind);
    sum.file_size += plan->file_size;
    sum.data_offset = std::max(sum.data_offset, plan->data_offset);
    sum.written += plan->written;
    sum.shared += plan->shared;
    sum.copied += plan->copied;
    sum.space_needed += plan->space_needed;
    sum.space_free = std::min(sum.space_free, plan->space_free);
    sum.how = std::move(plan->how);
  }
  if (changes_index()) sum.kind = CommitPlan::publish;
  if (parts.size() != 1 && sum.kind != CommitPlan::nothing)
    sum.how = text(parts.size(), " shards are changed together", changes_index() ? ", and the index" : "");
  return sum;
}

int32_t ShardTransaction::left(uint64_t deadline) const {
  if (options_.lock_timeout_ms < 0) return options_.lock_timeout_ms;
  const uint64_t now = shards_.env().monotonic_ms();
  return static_cast<int32_t>(deadline - std::min(now, deadline));
}

Result<void> ShardTransaction::commit() {
  if (auto ok = may_go_on(); !ok) return ok;
  if (options_.compact) return commit_each();
  const auto parts = parts_with_work();
  if (parts.empty() && !changes_index()) return approve();
  if (parts.size() > 1 || changes_index()) return commit_together();
  parts.front().second->before_change([this](const Snapshot &) { return approve(); });
  auto done = of_shard(parts.front().first, parts.front().second->commit());
  if (!done && done.error().status == Status::busy) return done;
  failed_ = true;
  shards_.used_journals(parts.front().second->checkpoint());
  show_result();
  return done;
}

// Every shard anew, which changes nothing that a reader of the checkpoint sees: one after the other.
Result<void> ShardTransaction::commit_each() {
  ST_ASSERT(parts_.empty() && !changes_index());  // those would not be all or none
  for (uint32_t shard = 0; shard < shown_.members().size(); ++shard) {
    auto in = part(shard);
    if (!in) return Failure(std::move(in.error()));
    if (auto done = of_shard(shard, (*in)->commit()); !done) return done;
    shards_.used_journals((*in)->checkpoint());
    parts_.erase(shard);
  }
  failed_ = true;
  show_result();
  return {};
}

Result<void> ShardTransaction::commit_together() {
  const uint64_t deadline = shards_.env().monotonic_ms() + static_cast<uint64_t>(std::max(options_.lock_timeout_ms, 0));
  std::vector<Transaction *> parts;
  bool exclusive = changes_index();
  const std::string folder = os::split_path(shards_.real_path()).first;
  for (const auto &[shard, transaction] : parts_with_work()) {
    const std::string &path = transaction->checkpoint().path();
    if (os::split_path(path).first != folder)
      return fail(Status::unsupported, in_quotes(path), " and the index of shards lie in different folders, ",
                  in_quotes(folder), " the index, so that no journal can speak for both; copy them into one");
    exclusive |= transaction->publishes();
    parts.push_back(transaction);
  }
  // As everybody does, so that no two wait for each other.
  std::sort(parts.begin(), parts.end(),
            [](Transaction *a, Transaction *b) { return a->checkpoint().path() < b->checkpoint().path(); });
  LockedIndex index;
  if (auto locked = lock_all(parts, exclusive, deadline, &index); !locked) return locked;
  failed_ = true;  // whatever comes now, there is no second commit
  if (auto approved = approve(); !approved) {
    for (Transaction *part : parts) part->unlock_part();
    return approved;
  }

  Decision decision;
  auto prepared = prepare(parts, &index, &decision);
  if (!prepared) {
    for (Transaction *part : parts) part->drop_part(false);
    decision.remove();
    return prepared;
  }
  // The point of no return, for all of them.
  if (auto decided = decision.taken.journal->commit(); !decided)
    return open_outcome(parts, &index, &decision, std::move(decided.error()));
  if (auto done = carry_out(parts, index, decision); !done)
    return open_outcome(parts, &index, &decision, std::move(done.error()));
  for (Transaction *part : parts) {
    part->finish_part();
    shards_.used_journals(part->checkpoint());
  }
  decision.remove();
  // What shows it may have to recover what others left, which takes the index for itself.
  index.fresh.reset();
  index.lock.release();
  show_result();
  return {};
}

void ShardTransaction::Decision::remove() {
  if (there()) taken.folder->dir().env().unlinkat(taken.folder->dir().fd(), taken.journal->name().c_str(), 0);
  taken = {};
  beside.reset();
}

// The index, then the parts. A part with an orphan beside it is recovered when
// nothing is locked: to be finished, a part may need the index and all shards.
Result<void> ShardTransaction::lock_all(const std::vector<Transaction *> &parts, bool exclusive, uint64_t deadline,
                                        LockedIndex *index) {
  constexpr int attempts = 1000;
  for (int i = 0; i < attempts; ++i) {
    if (auto locked = lock_index(exclusive, deadline, index); !locked) return locked;
    Transaction *orphaned = nullptr;
    if (auto locked = lock_parts(parts, deadline, &orphaned); !locked) return locked;
    if (!orphaned) return {};
    index->lock.release();
    if (auto recovered = orphaned->recover_part(left(deadline)); !recovered) return recovered;
  }
  return fail(Status::busy, in_quotes(shards_.real_path()), " is being recovered all the time; try again");
}

// Locked, still what the path names, and with no super-journal of a dead writer beside it.
Result<void> ShardTransaction::lock_index(bool exclusive, uint64_t deadline, LockedIndex *locked) {
  constexpr int attempts = 1000;
  os::Env &env = shards_.env();
  const Control control = shards_.control_of(options_.progress);
  const std::string &path = shards_.real_path();
  for (int i = 0; i < attempts; ++i) {
    const os::LockWait wait{left(deadline), &control, nullptr};
    auto file = open_regular(env, path, O_RDWR);
    if (!file) return Failure(std::move(file.error()));
    locked->file = std::move(*file);
    auto lock = os::RangeLock::acquire(locked->file, {{0, 0, exclusive}}, wait);
    if (!lock) return Failure(std::move(lock.error()));
    locked->lock = std::move(*lock);
    auto replaced = os::was_replaced(locked->file, path);
    if (!replaced) return Failure(std::move(replaced.error()));
    if (*replaced) {
      locked->lock.release();
      continue;
    }
    auto s = locked->file.stat();
    if (!s) return Failure(std::move(s.error()));
    auto folder = write::Folder::open(env, path, *s, options_log());
    if (!folder) return Failure(std::move(folder.error()));
    if (!*folder) return {};
    std::vector<write::Piece> all;
    if (exclusive) all = {{0, {0, static_cast<uint64_t>(s->st_size), 0}, nullptr}};
    auto orphans = write::find_orphans(**folder, *s, {{}, all});
    if (!orphans) return Failure(std::move(orphans.error()));
    if (!orphans->committed) return {};
    locked->lock.release();
    if (auto recovered = shards_.recover(wait); !recovered) return recovered;
  }
  return fail(Status::busy, in_quotes(path), " is being replaced or recovered all the time; try again");
}

const Log &ShardTransaction::options_log() const {
  return shards_.options().log;
}

// All of them, or none: then one is `orphaned`, or it failed.
Result<void> ShardTransaction::lock_parts(const std::vector<Transaction *> &parts, uint64_t deadline,
                                          Transaction **orphaned) {
  for (size_t i = 0; i < parts.size(); ++i) {
    auto locked = parts[i]->lock_part(left(deadline));
    if (locked && *locked) continue;
    for (size_t k = 0; k < i; ++k) parts[k]->unlock_part();
    if (locked) return *orphaned = parts[i], Result<void>();
    failed_ = locked.error().status != Status::busy;
    return Failure(std::move(locked.error()));
  }
  return {};
}

// What the index will say; nothing if that is what it says. It may have been
// replaced since it was read here: our changes must fit what is there now.
Result<std::optional<std::string>> ShardTransaction::new_index(const std::vector<Transaction *> &parts) const {
  if (!changes_index()) return std::nullopt;
  auto read = Shards::read_index(shards_.env(), shards_.real_path());
  if (!read) return Failure(std::move(read.error()));
  ShardIndex &index = read->index;
  const std::string old = index.spell();
  auto changed = [&](std::string_view name, std::string_view what) {
    return Failure(error(Status::file_changed, "the index ", in_quotes(shards_.path()), " was replaced, and tensor ",
                         in_quotes(name), " ", what, "; refresh the handle and begin again")
                       .about_tensor(name));
  };
  uint64_t gained = 0;
  // First what goes, so that a name may go from one shard to another.
  for (const bool going : {true, false})
    for (const Transaction *part : parts) {
      if (!part->publishes()) continue;
      const std::string shard = shards_.name_of(part->checkpoint().path(), shown_);
      const Index &before = part->before().header.index;
      if (going) {
        gained += part->gained_bytes();
        for (size_t i = 0; i < before.size(); ++i) {
          const std::string_view name = before.at(i).name;
          const auto in = index.shard_of(name);
          if (!in || index.shards()[*in] != shard) return changed(name, "is no longer where it was");
          if (!part->draft_after().find(std::string(name))) index.remove(name);
        }
      } else {
        for (const DraftTensor *t : part->draft_after().tensors()) {
          if (before.find(t->name)) continue;
          if (index.shard_of(t->name)) return changed(t->name, "is in another shard now");
          index.assign(t->name, shard);
        }
      }
    }
  if (const auto total = index.total_size()) index.set_total_size(*total + gained);
  for (const auto &[key, value] : metadata_) {
    if (!value && !index.metadata_find(key))
      return fail(Status::file_changed, "the index ", in_quotes(shards_.path()),
                  " was replaced, and its metadata has no key ", in_quotes(key),
                  " any more; refresh the handle and begin again");
    index.set_metadata(key, value);
  }
  std::string fresh = index.spell();
  if (fresh == old) return std::nullopt;
  return fresh;
}

Result<void> ShardTransaction::prepare_index(const std::vector<Transaction *> &parts, LockedIndex *index,
                                             write::SuperEntry *entry) {
  os::Env &env = shards_.env();
  entry->file = os::split_path(shards_.real_path()).second;
  auto form = write::form_of_index(index->file);
  if (!form) return Failure(std::move(form.error()));
  entry->old = *form;
  auto spelled = new_index(parts);
  if (!spelled) return Failure(std::move(spelled.error()));
  if (!*spelled) return {};
  write::Replacement::remove_stale(env, shards_.real_path(), write::undecided_infix);
  auto made = write::Replacement::create(env, shards_.real_path(), 0600, write::undecided_infix);
  if (!made) return Failure(std::move(made.error()));
  index->fresh = std::move(*made);
  const os::File &file = index->fresh->file();
  if (auto put = file.write((*spelled)->data(), (*spelled)->size(), 0); !put) return put;
  if (auto kept = write::carry_over(index->file, file, options_log()); !kept) return kept;
  if (auto synced = file.sync(); !synced) return synced;
  entry->first = index->fresh->temporary();
  entry->first_form = {(*spelled)->size(), hash64((*spelled)->data(), (*spelled)->size())};
  return {};
}

// All that can fail: afterwards everything that is to be is on the disk.
Result<void> ShardTransaction::prepare(const std::vector<Transaction *> &parts, LockedIndex *index,
                                       Decision *decision) {
  os::Env &env = shards_.env();
  auto identity = index->file.stat();
  if (!identity) return Failure(std::move(identity.error()));
  decision->beside = std::make_unique<write::JournalFolder>(env, shards_.real_path(), *identity);
  auto taken = decision->beside->take();
  if (!taken) return Failure(std::move(taken.error()));
  decision->taken = std::move(*taken);
  write::Journal &journal = *decision->taken.journal;
  const auto transaction = write::transaction_of(journal.name());
  ST_ASSERT(transaction.has_value());

  write::SuperList list;
  if (auto ok = prepare_index(parts, index, &list.index); !ok) return ok;
  const write::Super super{*transaction, list.index.file};
  bool makes_files = index->fresh != nullptr;
  for (Transaction *part : parts) {
    write::SuperEntry entry;
    if (auto ok = part->prepare_part(super, &entry); !ok) return ok;
    makes_files |= !entry.first.empty() || !entry.second.empty();
    list.parts.push_back(std::move(entry));
  }
  if (makes_files)
    if (auto synced = sync_folder(); !synced) return synced;
  const write::Identity known{identity->st_ino, list.index.old.size, 0, list.index.old.hash};
  journal.begin();
  if (auto ok = journal.seal_super(known, write::encode(list), *transaction); !ok) return ok;
  return journal.sync_payload(decision->taken.folder->dir());
}

Result<void> ShardTransaction::sync_folder() const {
  const std::string folder = os::split_path(shards_.real_path()).first;
  auto dir = os::File::open(shards_.env(), AT_FDCWD, folder, O_RDONLY | O_DIRECTORY, 0, folder);
  if (!dir) return Failure(std::move(dir.error()));
  return dir->sync();
}

Result<void> ShardTransaction::carry_out(const std::vector<Transaction *> &parts, const LockedIndex &index,
                                         const Decision &decision) {
  bool makes_files = index.fresh != nullptr;
  for (Transaction *part : parts) {
    makes_files |= part->publishes();
    if (auto done = part->carry_out_patch(); !done) return done;
  }
  for (Transaction *part : parts)
    if (auto done = part->place_first(); !done) return done;
  if (makes_files)
    if (auto synced = sync_folder(); !synced) return synced;
  if (index.fresh) {
    auto fresh = index.fresh->file().stat();
    if (!fresh) return Failure(std::move(fresh.error()));
    shards_.own_index_ = Shards::state_of(*fresh);
    if (auto done = index.fresh->rename(); !done) return done;
    if (auto synced = sync_folder(); !synced) return synced;
  }
  for (Transaction *part : parts)
    if (auto done = part->place_second(); !done) return done;
  if (makes_files)
    if (auto synced = sync_folder(); !synced) return synced;
  for (Transaction *part : parts)
    if (auto done = part->retire_part(); !done) return done;
  return decision.taken.journal->retire();
}

// Whether it was decided, or how far it came, recovery will see.
Failure ShardTransaction::open_outcome(const std::vector<Transaction *> &parts, LockedIndex *index, Decision *decision,
                                       Error cause) {
  if (index->fresh) index->fresh->leave();
  // Before anything is unlocked: whoever locks it next must see an orphan.
  decision->taken.journal.reset();
  for (Transaction *part : parts) part->drop_part(true);
  shards_.poisoned_ = true;
  Error e = std::move(cause);
  e.status = Status::needs_recovery;
  e.message = text("the change of several shards was not finished (", e.message,
                   "); close the handle and open the checkpoint anew, which finishes or drops it");
  return Failure(std::move(e));
}

// The handle shows what was committed. Where the files did not change there is
// nothing to do; where they cannot be read now, the change stands all the same.
void ShardTransaction::show_result() {
  bool changed = changes_index() || options_.compact;
  for (const auto &[shard, transaction] : parts_)
    changed |= &transaction->checkpoint().snapshot() != shown_.pinned(shard);
  if (!changed) return;
  auto shown = shards_.show_anew();
  if (!shown && options_log())
    options_log()(
        LogLevel::warning,
        text("the change is committed, but the handle cannot show it until it is refreshed: ", shown.error().message));
}

}  // namespace st::store
