#include "shards/shard_commit.h"

#include <algorithm>
#include <new>
#include <numeric>

#include "base/hash.h"
#include "base/open_outcome.h"
#include "journal/lock_settled.h"
#include "journal/recover.h"
#include "journal/roll_forward.h"
#include "newfile/copy_attributes.h"
#include "newfile/room.h"
#include "os/turnstile.h"

namespace st::store {
namespace {

// Locked as everybody does, so that no two wait for each other.
template <class Transactions>
std::vector<std::unique_ptr<Participant>> in_order(const Transactions &transactions) {
  std::vector<std::unique_ptr<Participant>> parts;
  parts.reserve(transactions.size());
  for (const auto &[shard, t] : transactions) parts.push_back(std::make_unique<Participant>(t->staged()));
  std::sort(parts.begin(), parts.end(),
            [](const auto &a, const auto &b) { return a->file().path() < b->file().path(); });
  return parts;
}

}  // namespace

ShardCommit::ShardCommit(Shards &shards, const ShardCatalogue &shown, Work work)
    : shards_(shards),
      made_in_(shards.env()),
      kept_(shards.kept_.mine()),
      shown_(shown),
      work_(std::move(work)),
      parts_(in_order(work_.transactions)) {
  for (const auto &[shard, t] : work_.transactions) names_[&t->staged().file] = shard;
}

ShardCommit::~ShardCommit() {
  kept_.exclusive -= is_exclusive_;
}

// No journal can speak for files in different folders: it holds names and no paths.
Result<void> ShardCommit::check_folder() const {
  for (const auto &part : parts_) {
    const DataFile &shard = part->file();
    const os::Directory &folder = *shards_.location().folder();
    if (!shard.location().folder()->is(folder))
      return fail(Status::unsupported, in_quotes(shard.path()), " and the index of shards lie in different folders, ",
                  in_quotes(folder.path()), " the index, so that no journal can speak for both; copy them into one");
  }
  return {};
}

Result<void> ShardCommit::prepare_to_lock() {
  if (!work_.grace_s) return check_folder();
  const os::Directory &named = *shards_.folder_;
  if (!shards_.location().folder()->is(named))
    return fail(Status::unsupported, in_quotes(shards_.path()), " is a link to an index in another folder, ",
                in_quotes(shards_.location().folder()->path()),
                ", where shards of new names would not be found; copy the index into ", in_quotes(named.path()));
  for (const auto &part : parts_) ST_TRY(part->publish_anyway());
  return {};
}

Result<void> ShardCommit::run(const Asked &approve, const Asked &at_last) {
  const TellAtEnd at_end([this] { unlock_and_tell(); });
  return run_quietly(approve, at_last);
}

Result<void> ShardCommit::run_quietly(const Asked &approve, const Asked &at_last) {
  ST_TRY(prepare_to_lock());
  if (work_.grace_s)
    for (const auto &part : parts_) ST_TRY(part->raise_fence());
  ST_TRY(lock_all());
  work_.spent = true;
  ST_TRY(may_change(approve));
  if (work_.grace_s) return commit_new_names(at_last);
  ST_TRY(const bool changes, changes_anything());
  if (!changes) return with_room(at_last);
  ST_TRY(or_drop_all([&] { return prepare(at_last); }));
  try {
    ST_TRY(decide());
    if (auto done = apply(); !done) return open_outcome(std::move(done.error()));
  } catch (const std::bad_alloc &) {
    return open_outcome(Error{Status::nomem, {}});
  }
  show();
  if (index_.fresh) os::hand_over(index_.file(), index_.held->lock);
  for (const auto &part : parts_) part->finish();
  ++shards_.account().counters.commits;
  decision_.remove();
  return {};
}

// Not in a child of a progress function: what is there is the parent's.
void ShardCommit::unlock_and_tell() noexcept {
  if (!made_in_.this_process()) return;
  kept_.exclusive -= std::exchange(is_exclusive_, false);  // first: it means that others are kept out
  index_.fresh.reset();
  index_.held.reset();
  for (const auto &part : parts_) part->unlock();
  found_.tell(shards_.options().log);
  for (const auto &part : parts_) part->warn();
  warnings_.tell(shards_.options().log);
}

// The point of no return, for all of them, if what recovery needs is there.
Result<void> ShardCommit::decide() {
  write::Journal &super = *decision_.taken.journal;
  if (auto decided = super.commit(); !decided) return open_outcome(std::move(decided.error()));
  auto there = check_all_is_there();
  if (there) return {};
  // As in commit_there().
  if (super.file().reads_past_cache() || super.give_up()) return open_outcome(std::move(there.error()));
  drop_all();
  return there;
}

// What is made of the old bytes is known when the question is asked, and when the room is reckoned. The answer to it
// may take long, and room itself. So what can be foreseen is asked before it, and again after.
Result<void> ShardCommit::may_change(const Asked &approve) {
  for (const auto &part : parts_) ST_TRY(part->assemble());
  const auto can_be_done = [this] {
    return with_room([this]() -> Result<void> {
      ST_TRY(check_room());
      return check_replaceable();
    });
  };
  ST_TRY(can_be_done());
  ST_TRY(approve());
  return can_be_done();
}

// What takes no other's name needs no place.
Result<void> ShardCommit::check_replaceable() {
  if (!work_.grace_s)
    for (const auto &part : parts_) ST_TRY(part->check_replaceable());
  if (!work_.changes_index && !work_.grace_s) return {};
  auto index_is = write::check_replaceable(shards_.location(), index_.file());
  if (index_is) return {};
  ST_TRY(auto index, new_index());  // which may say what it says now
  return index ? index_is : Result<void>();
}

// Until the last rename the old files and all that is new are there together, and nothing more is taken after that.
Result<CommitPlan> ShardCommit::reckon(const os::File &beside) {
  if (work_.grace_s) return reckon_new_names(beside);
  CommitPlan sum;
  write::SuperManifest list;
  list.index.file = shards_.location().name();
  moves_.clear();
  for (const auto &part : parts_) {
    auto plan = part->plan(&list.parts.emplace_back());
    if (!plan) {
      const auto &shards = shown_.shards();
      const auto is_it = [&](const auto &shard) { return shard->opened() == &part->file(); };
      plan.error().shard = static_cast<uint32_t>(std::find_if(shards.begin(), shards.end(), is_it) - shards.begin());
      return plan;
    }
    sum.kind = std::max(sum.kind, plan->kind);
    sum.file_size += plan->file_size;
    sum.data_offset = std::max(sum.data_offset, plan->data_offset);
    moves_.push_back(plan->cost.moved());
    sum.cost += plan->cost;
    sum.how = std::move(plan->how);
  }
  if (work_.changes_index) sum.kind = CommitPlan::publish;
  ST_TRY(auto index, new_index());
  if (parts_.empty() && !index) return nothing();
  const uint64_t block = write::room_of(beside).block;
  if (index) {
    list.index.first =
        write::temporary_prefix(list.index.file, write::undecided_infix) + std::string(write::temporary_digits, '0');
    sum.cost += {index->size(), 0, 0, write::room_of_new_file(index->size(), 0, block)};
  }
  write::JournalPlan super;
  super.seal(write::encode(list).size());
  super.write_record();
  super.empty();
  sum.cost += super.cost();
  const std::string type = os::probe_filesystem(beside).type;
  sum.cost.room += write::room_of_folder(type, block);
  sum.space_needed = write::room_with_metadata(type, sum.cost.room);
  if (parts_.empty()) sum.how = "a new index takes the old one's place; no shard is changed";
  if (parts_.size() > 1)
    sum.how = text(parts_.size(), " shards are changed together", work_.changes_index ? ", and the index" : "");
  return sum;
}

CommitPlan ShardCommit::nothing() {
  CommitPlan plan;
  plan.how = "the index says that already; no file is changed";
  return plan;
}

// Metadata may be set to what they are.
Result<bool> ShardCommit::changes_anything() {
  if (!parts_.empty()) return true;
  ST_TRY(auto index, new_index());
  return index != nullptr;
}

Result<CommitPlan> ShardCommit::plan() {
  ST_TRY(prepare_to_lock());
  ST_TRY(auto index, open_regular(shards_.location(), O_RDWR, nullptr, {work_.timeout_ms}));
  auto plan = reckon(index);
  if (plan) plan->space_free = write::room_of(index).free;
  return plan;
}

Result<void> ShardCommit::check_room() {
  ST_TRY(auto plan, reckon(index_.file()));
  return write::check_room(index_.file(), plan.space_needed);
}

Result<void> ShardCommit::or_drop_all(const std::function<Result<void>()> &step) {
  try {
    auto done = step();
    if (!done) drop_all();
    return done;
  } catch (const std::bad_alloc &) {
    drop_all();
    throw;
  }
}

void ShardCommit::drop_all() {
  if (!made_in_.this_process()) return;
  for (const auto &part : parts_) part->drop(false);
  index_.fresh.reset();  // before the journal: by that an open for writing finds what is left, if this process dies now
  decision_.remove();
  warnings_.forget();
}

void ShardCommit::Decision::remove() {
  if (there()) taken.folder->dir().env().unlinkat(taken.folder->dir().fd(), taken.journal->name().c_str(), 0);
  taken = {};
  beside.reset();
}

// The index, then the parts. What a dead writer left beside one of them is recovered when nothing is locked: to be
// finished, a part may need the index and all shards.
Result<void> ShardCommit::lock_all() {
  const bool exclusive = work_.changes_index ||
                         std::any_of(parts_.begin(), parts_.end(), [](const auto &part) { return part->publishes(); });
  const os::LockRange whole = os::whole_file(exclusive);
  const Control control = shards_.control_of(work_.progress);
  const os::LockWait wait{work_.timeout_ms, &control, nullptr};
  Participant *hot = nullptr;
  const write::LockSteps steps{[&] { return std::vector{whole}; }, os::holder_of(whole),
                               [&](os::LockedFile &index) { return look(index, exclusive, &hot); },
                               [&] { return hot ? hot->recover(work_.timeout_ms) : shards_.recover(wait); }};
  ST_TRY(with_room([&] { return write::lock_settled(shards_.location(), wait, steps, &index_.held); }));
  is_exclusive_ = exclusive;
  kept_.exclusive += exclusive;
  return {};
}

// Is no super-journal of a dead writer beside the index, and can the parts be had?
Result<write::Look> ShardCommit::look(const os::LockedFile &index, bool exclusive, Participant **hot) {
  *hot = nullptr;
  ST_TRY(auto s, index.file.stat());
  const auto if_held = exclusive ? write::Held::waits : write::Held::lives;
  ST_TRY(auto folder, write::open_to_copy(shards_.location(), s, if_held, found_.log()));
  if (folder) {
    std::vector<write::Piece> all;
    if (exclusive) all = {{0, {0, static_cast<uint64_t>(s.st_size), 0}, nullptr}};
    ST_TRY(auto settled, write::settle_hot_journals(*folder, s, {{}, all}));
    if (!settled) return write::Look::hot;
  }
  return lock_parts(hot);
}

// All of them, or none: then one is `hot`, or it failed.
Result<write::Look> ShardCommit::lock_parts(Participant **hot) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    auto look = parts_[i]->lock(work_.timeout_ms);
    if (look && *look == write::Look::settled) continue;
    for (size_t k = 0; k < i; ++k) parts_[k]->unlock();
    if (look)
      *hot = parts_[i].get();
    else
      work_.spent = look.error().status != Status::busy;
    return look;
  }
  return write::Look::settled;
}

// The bytes of the index are read each time, for it is not ours alone. What was parsed before, of the same bytes, is
// not parsed again.
Result<std::shared_ptr<const std::string>> ShardCommit::new_index(ReadIndex *as_read) {
  if (!work_.changes_index && !work_.grace_s) return nullptr;
  ST_TRY(auto read,
         with_room([this] { return Shards::read_index(shards_.location(), {work_.timeout_ms}, &shown_.read()); }));
  if (!new_index_ || new_index_->hash != read.hash || new_index_->new_names != new_names_) {
    new_index_.reset();
    ST_TRY(auto made, make_new_index(read.index()));
    new_index_ = {read.hash, new_names_, std::move(made)};
  }
  if (as_read) *as_read = std::move(read);
  return new_index_->text;
}

// It may have been replaced since it was read here: our changes must fit what is there now.
Result<std::shared_ptr<const std::string>> ShardCommit::make_new_index(const ShardIndex &now) const {
  ShardIndex index = now;
  auto changed = [&](std::string_view name, std::string_view what) {
    return Failure(error(Status::file_changed, "the index ", in_quotes(shards_.path()), " was replaced, and tensor ",
                         in_quotes(name), " ", what, "; refresh the handle and begin again")
                       .about_tensor(name));
  };
  std::vector<std::string> come;
  for (const auto &[shard, after] : new_names_) come.push_back(after);
  index.add_shards(std::move(come));
  int64_t bytes = 0, parameters = 0;  // gained
  bool moves_any = false;             // then it says something else than before, as no name goes and comes back
  // First what goes, so that a name may go from one shard to another.
  for (const bool going : {true, false})
    for (const auto &part : parts_) {
      if (!part->publishes()) continue;
      const std::string shard = name_of(*part), after = name_after(shard);
      const Index &before = part->before();
      if (going) {
        const auto gain = part->gain();
        bytes += gain.bytes;
        parameters += gain.parameters;
        for (size_t i = 0; i < before.size(); ++i) {
          const std::string_view name = before.at(i).name;
          const auto in = index.shard_of(name);
          if (!in || index.shards()[*in] != shard) return changed(name, "is no longer where it was");
          if (after == shard && part->after().find(std::string(name))) continue;
          index.remove(name);
          moves_any = true;
        }
      } else {
        for (const PendingTensor *t : part->after().tensors()) {
          if (after == shard && before.find(t->name)) continue;
          if (index.shard_of(t->name)) return changed(t->name, "is in another shard now");
          index.assign(t->name, after);
          moves_any = true;
        }
      }
    }
  index.add_to_total(total_size_key, bytes);
  index.add_to_total(total_parameters_key, parameters);
  for (const auto &[key, value] : work_.metadata) {
    if (!value && !index.metadata_find(key))
      return fail(Status::file_changed, "the index ", in_quotes(shards_.path()),
                  " was replaced, and its metadata has no key ", in_quotes(key),
                  " any more; refresh the handle and begin again");
    index.set_metadata(key, value);
  }
  if (!moves_any && index.has_same_metadata(now)) return nullptr;
  ST_TRY(auto spelled, index.spell_readable());
  return std::make_shared<const std::string>(std::move(spelled));
}

// Durable but for its name.
Result<void> ShardCommit::make_index(const std::string &text) {
  write::TemporaryFile::remove_stale(shards_.location(), {write::undecided_infix});
  const auto made = [this] { return write::TemporaryFile::create(shards_.location(), 0600, write::undecided_infix); };
  ST_TRY(index_.fresh, with_room(made));
  const os::File &file = index_.fresh->file();
  ST_TRY(file.write_new(text));
  ST_TRY(write::copy_attributes(index_.file(), file, warnings_.log()));
  return file.sync();
}

Result<void> ShardCommit::prepare_index(write::SuperParticipant *entry) {
  entry->file = shards_.location().name();
  ST_TRY(entry->old, write::form_of_index(index_.file()));
  ST_TRY(auto spelled, new_index(&index_.withheld.locked));
  if (!spelled) return {};
  ST_TRY(make_index(*spelled));
  ST_TRY(index_.withheld.identity, index_.fresh->file().stat());
  entry->first = index_.fresh->temporary();
  entry->first_form = {spelled->size(), hash64(spelled->data(), spelled->size())};
  return {};
}

Result<void> ShardCommit::prepare_each(const std::function<Result<void>(Participant &)> &prepare) {
  const uint64_t total = std::accumulate(moves_.begin(), moves_.end(), uint64_t{0});
  joined_ = JoinedProgress(work_.progress, total);
  for (size_t i = 0; i < parts_.size(); ++i) {
    joined_.begin_part(moves_[i]);
    parts_[i]->tell(joined_.of_part());
    ST_TRY(prepare(*parts_[i]));
  }
  return Control(work_.progress, nullptr).check(total, total);
}

// All that can fail: afterwards everything that is to be is on the disk, and no more descriptors are needed. What is
// asked last may need some.
Result<void> ShardCommit::prepare(const Asked &at_last) {
  ST_TRY(open_folder());
  ST_TRY(auto identity, index_.file().stat());
  decision_.beside = std::make_unique<write::JournalFolder>(shards_.location(), identity);
  ST_TRY(decision_.taken, with_room([this] { return decision_.beside->take(); }));
  write::Journal &journal = *decision_.taken.journal;
  const auto transaction = write::transaction_of(journal.name());
  ST_ASSERT(transaction.has_value());

  write::SuperManifest list;
  ST_TRY(prepare_index(&list.index));
  const write::Super super{*transaction, list.index.file};
  bool makes_files = index_.fresh != nullptr;
  ST_TRY(prepare_each([&](Participant &part) -> Result<void> {
    write::SuperParticipant &entry = list.parts.emplace_back();
    ST_TRY(part.prepare(super, &entry));
    makes_files |= !entry.first.empty() || !entry.second.empty();
    return {};
  }));
  if (makes_files) ST_TRY(sync_folder());
  const write::Identity known{identity.st_ino, list.index.old.size, 0, list.index.old.hash};
  journal.begin();
  ST_TRY(journal.seal_super(known, write::encode(list), *transaction));
  ST_TRY(journal.sync_payload(decision_.taken.folder->dir()));
  ST_TRY(with_room(at_last));
  ST_TRY(check_in_place());
  return check_all_is_there();
}

Result<void> ShardCommit::check_all_is_there() const {
  for (const auto &part : parts_) ST_TRY(part->check_is_there());
  if (index_.fresh) ST_TRY(index_.fresh->check_is_there());
  return decision_.beside->check_beside(decision_.taken);
}

// Once more, as preparing may have taken long: does every path still lead to what is locked?
Result<void> ShardCommit::check_in_place() const {
  ST_TRY(auto replaced, shards_.location().was_replaced(index_.file()));
  if (replaced)
    return fail(Status::file_changed, "the index ", in_quotes(shards_.path()),
                " was replaced by something that takes no locks while the change was prepared; nothing was changed; "
                "open it anew");
  for (const auto &part : parts_) ST_TRY(part->check_in_place());
  return {};
}

Result<void> ShardCommit::open_folder() {
  ST_TRY(folder_, with_room([this] { return shards_.location().folder()->to_sync(); }));
  return {};
}

Result<void> ShardCommit::sync_folder() const {
  return folder_.sync();
}

void ShardCommit::withhold() noexcept {
  const std::lock_guard lock(kept_.mutex);
  if (index_.fresh) kept_.withheld_index = &index_.withheld;
  for (const auto &part : parts_) part->withhold();
}

void ShardCommit::show() noexcept {
  const std::lock_guard lock(kept_.mutex);
  if (index_.fresh) kept_.withheld_index = nullptr;
  for (const auto &part : parts_) part->show();
  if (index_.fresh) ++shards_.shards_newer_;  // a refresh may have shown the old index since it was renamed
}

// All at once, as in show(). It may not have begun.
void ShardCommit::end_withholding() noexcept {
  const std::lock_guard lock(kept_.mutex);
  if (index_.fresh) kept_.withheld_index = nullptr;
  for (const auto &part : parts_) part->end_withholding();
  ++shards_.unseen_;
}

Result<void> ShardCommit::apply() {
  withhold();
  bool makes_files = index_.fresh != nullptr;
  write::StillOurs ours(decision_.taken.journal->file(),
                        [this] { return decision_.beside->check_beside(decision_.taken); });
  ST_TRY(ours.ask());
  for (const auto &part : parts_) {
    makes_files |= part->publishes();
    ST_TRY(part->apply_patch(ours));
  }
  for (const auto &part : parts_) {
    ST_TRY(ours.check());
    ST_TRY(part->publish_gains());
  }
  if (makes_files) ST_TRY(sync_folder());
  if (index_.fresh) {
    ST_TRY(ours.check());
    ST_TRY(shards_.rename_index(index_.file(), *index_.fresh));
    ST_TRY(sync_folder());
  }
  for (const auto &part : parts_) {
    ST_TRY(ours.check());
    ST_TRY(part->publish_losses());
  }
  if (makes_files) ST_TRY(sync_folder());
  for (const auto &part : parts_) ST_TRY(part->mark_done());
  ST_TRY(decision_.taken.journal->invalidate());
  return ours.ask();  // a recoverer that had claimed it before needs the parts
}

// Whether it was decided, or how far it came, recovery will see.
Failure ShardCommit::open_outcome(Error cause) {
  if (index_.fresh) index_.fresh->leave();
  // Before anything is unlocked: the next to lock it must see a hot journal.
  decision_.taken.journal.reset();
  for (const auto &part : parts_) part->drop(true);
  end_withholding();  // whoever looks now recovers first
  shards_.poison();
  // Recovery may give the new files their places, and warns of nothing.
  return st::open_outcome(std::move(cause), [](const std::string &why) {
    return text("the change of several shards was not finished (", why,
                "); close the handle and open the checkpoint anew, which finishes or drops it");
  });
}

}  // namespace st::store
