// The commit of a publish: a new file is built beside the old one, which shares with it what it can, and takes its
// name. Must never touch the old file.
#include <algorithm>
#include <cerrno>
#include <new>

#include "file/transaction.h"
#include "newfile/build.h"
#include "newfile/copy_attributes.h"
#include "newfile/room.h"
#include "newfile/temporary_file.h"
#include "os/turnstile.h"

namespace st::store {

// A file whose tensors are aligned stays so. One of another writer, which never was, keeps its order: to move all of it
// costs more than it brings.
bool Transaction::may_align() const {
  const Index &old = snapshot_->header.index;
  bool aligned = options_.align;
  for (size_t i = 0; i < old.size() && aligned; ++i) {
    const TensorView t = old.at(i);
    aligned = t.nbytes == 0 || t.begin % write::element_bytes(t.dtype) == 0;
  }
  return aligned;
}

Result<write::PublishPlan> Transaction::plan_publish(uint64_t block, bool keeping_removed) const {
  const uint64_t data_offset = snapshot_->header.data_offset();
  std::vector<write::PlannedTensor> tensors;
  for (const PendingTensor *t : draft_->tensors())
    tensors.push_back({t->name, t->form.dtype, t->form.shape, t->form.nbytes, !t->payload,
                       t->payload ? *t->payload : data_offset + t->begin});
  const Index &index = snapshot_->header.index;
  for (size_t i = 0; keeping_removed && i < index.size(); ++i) {
    const TensorView t = index.at(i);
    if (!draft_->find(std::string(t.name)))
      tensors.push_back({t.name, t.dtype, t.shape, t.nbytes, true, data_offset + t.begin});
  }
  const auto &pairs = draft_->metadata();
  const std::vector<std::pair<std::string_view, std::string_view>> metadata(pairs.begin(), pairs.end());
  return write::plan_publish(data_offset, std::move(tensors), metadata,
                             {options_.layout, options_.alignment, options_.reserve, block, may_align()});
}

Result<Transaction::Blueprint> Transaction::draw(const os::File &old, uint64_t block, bool keeping_removed) const {
  ST_TRY(auto plan, plan_publish(block, keeping_removed));
  Blueprint drawn{std::move(plan), {}, {}};
  drawn.segments.reserve(drawn.plan.segments.size());
  for (const write::PlannedSegment &s : drawn.plan.segments) {
    if (s.kept) {
      drawn.segments.push_back({s.to, s.length, &old, s.from, nullptr});
      continue;
    }
    const Payload &payload = payloads_[s.from];
    if (payload.bytes)
      drawn.segments.push_back({s.to, s.length, nullptr, 0, payload.bytes});
    else
      drawn.segments.push_back({s.to, s.length, &journal_.journal->file(), payload.journal.offset, nullptr});
  }
  const uint64_t disk_block = write::room_of(old).block;
  drawn.cost = write::expect_build(drawn.plan.header, drawn.segments, block, disk_block);
  reckon_slices(&drawn.cost, disk_block);
  return drawn;
}

// A reader that follows the index, old or new, must find each tensor. So a shard that gains names first has them all.
Transaction::Makes Transaction::makes(bool as_part) const {
  if (!as_part) return {true, false, false};
  const Index &old = snapshot_->header.index;
  const auto tensors = draft_->tensors();
  const bool gains =
      std::any_of(tensors.begin(), tensors.end(), [&](const PendingTensor *t) { return !old.find(t->name); });
  bool loses = false;
  for (size_t i = 0; i < old.size() && !loses; ++i) loses = !draft_->find(std::string(old.at(i).name));
  return {gains || !loses, loses, loses};
}

Result<CommitPlan> Transaction::reckon_publish(const os::File &old, write::SuperParticipant *as_part) {
  ST_TRY(draft());
  CommitPlan plan;
  plan.kind = CommitPlan::publish;
  const uint64_t block = write::shareable_block(old);
  const Makes made = makes(as_part != nullptr);
  std::vector<bool> keeping;  // of each file, whether it keeps what is lost
  if (made.first) keeping.push_back(made.first_keeps);
  if (made.second) keeping.push_back(false);
  for (const bool keeps : keeping) {
    ST_TRY(auto drawn, draw(old, block, keeps));
    plan.cost += drawn.cost;
    plan.file_size = drawn.plan.size;
    plan.data_offset = drawn.plan.header.size();
    plan.how = std::move(drawn.plan.how);
  }
  if (!as_part && !journal_.journal) return plan;
  write::JournalPlan journal = journal_.journal ? journal_.journal->plan() : data_file_.journals_->plan_next();
  if (as_part) {
    if (!journal_.journal)
      plan.cost.room += write::room_of_folder(snapshot_->filesystem.type, write::room_of(old).block);
    const std::string digits(write::temporary_digits, '0');
    const std::string temporary = write::temporary_prefix(as_part->file, write::undecided_infix) + digits;
    as_part->journal = digits;
    if (made.first) as_part->first = temporary;
    if (made.second) as_part->second = temporary;
    journal.seal(0);
    journal.write_record();  // committed, then done
    journal.write_record();
  }
  plan.cost += journal.cost();
  return plan;
}

// The new file, whole but for its name, and this handle's view of it.
Result<void> Transaction::make(const Locked &locked, NewFile *made, const os::Location &at, std::string_view infix,
                               bool keeping_removed) {
  // We hold the exclusive lock and no journal waits, so undecided temporaries are stale.
  write::TemporaryFile::remove_stale(data_file_.at_, write::undecided_infix);
  ST_TRY(made->replacement, write::TemporaryFile::create(at, 0600, infix));
  const os::File &file = made->replacement->file();
  const uint64_t block = write::shareable_block(file);
  ST_TRY(auto drawn, draw(locked.file(), block, keeping_removed));
  const write::PublishPlan &plan = drawn.plan;
  ST_TRY(write::set_room_aside(file, plan.size, drawn.cost.shared > 0));
  if (journal_.journal) ST_TRY(journal_.journal->flush());
  ST_TRY(auto built, write::build(file, plan.header, drawn.segments, block, control_));
  ST_TRY(check_payloads(file, plan));
  made->built = built;
  ST_TRY(write::copy_attributes(locked.file(), file, data_file_.options_.log));

  ST_TRY(auto again, made->replacement->open_again());
  ST_TRY(made->snapshot, data_file_.take(std::move(again), nullptr, true));
  ST_TRY(write_slices(made));
  return control_.check(plan.size, plan.size);
}

// Are the payloads what they were when they were staged? What lies in the journal is ours, and is looked at there; what
// was borrowed may change at any time, so what is looked at is what has come to be in the new file.
Result<void> Transaction::check_payloads(const os::File &made, const write::PublishPlan &plan) const {
  const auto go_on = [&](uint64_t) { return control_.check(plan.size, plan.size); };
  for (const write::PlannedSegment &s : plan.segments) {
    if (s.kept) continue;
    const Payload &p = payloads_[s.from];
    if (p.bytes && !p.table.noted()) continue;  // of a put: read here for the first time
    ST_TRY(auto same, p.bytes ? journal_.journal->was_noted(p.table, made, s.to, s.length, go_on)
                              : journal_.journal->holds(p.journal, go_on));
    if (same) continue;
    const auto by = std::find_if(changes_.begin(), changes_.end(), [&](const Change &c) {
      return (c.kind == Change::put || c.kind == Change::update) && c.payload == s.from;
    });
    if (p.bytes) return Failure(changed_payload(by->name));
    return Failure(error(Status::journal, "the new bytes of tensor ", in_quotes(by->name), " were damaged in ",
                         in_quotes(journal_.journal->file().path()), "; nothing was changed")
                       .about_tensor(by->name));
  }
  return {};
}

Result<void> Transaction::check_links(const Locked &locked) const {
  ST_TRY(auto old, locked.file().stat());
  if (old.st_nlink > 1 && !options_.break_links)
    return fail(
        Status::hard_links, in_quotes(data_file_.path_), " has ", old.st_nlink,
        " names, of which only this one would lead to the new file; copy it first, or allow links to be broken");
  return {};
}

Result<void> Transaction::check_in_place(const Locked &locked) const {
  ST_TRY(auto replaced, data_file_.at_.was_replaced(locked.file()));
  if (replaced)
    return fail(Status::file_changed, in_quotes(data_file_.path_),
                " was replaced by something that takes no locks while the change was prepared; nothing was changed; "
                "open it anew");
  return {};
}

Result<void> Transaction::publish(Locked &locked) {
  ST_TRY(draft());
  ST_TRY(check_links(locked));
  NewFile made;
  ST_TRY(make(locked, &made, data_file_.at_, write::temporary_infix));
  ST_TRY(check_in_place(locked));  // it may have taken long
  auto placed = made.replacement->rename_into_place(control_);
  if (!placed && !placed.error().replaced) return Failure(std::move(placed.error().error));
  try {
    data_file_.adopt(std::move(made.snapshot));
  } catch (const std::bad_alloc &) {
    // The change stands; this handle shows the old file until it is refreshed.
  }
  if (placed) os::hand_over(locked.file(), locked.held->lock);
  return finish_publish(made.built, std::move(placed));
}

// The new file stands. Is that durable?
Result<void> Transaction::finish_publish(const write::Built &built, tl::expected<void, write::SwapFailure> placed) {
  ++data_file_.counters_.commits;
  data_file_.counters_.bytes_written += built.written + built.copied;
  if (placed) return {};
  data_file_.poisoned_ = true;
  Error e = std::move(placed.error().error);
  e.status = Status::needs_recovery;
  if (e.message.empty()) return Failure(std::move(e));
  try {
    e.message =
        text("the new ", in_quotes(data_file_.path_), " is in place, but a power cut may bring the old one back (",
             e.message, "); close the handle, open the file anew and look which it is");
  } catch (const std::bad_alloc &) {
    e.message.clear();  // see boundary.h
  }
  return Failure(std::move(e));
}

}  // namespace st::store
