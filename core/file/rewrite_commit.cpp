#include "file/rewrite_commit.h"

#include <algorithm>
#include <cerrno>

#include "base/open_outcome.h"
#include "file/slices.h"
#include "file/staging.h"
#include "newfile/copy_attributes.h"
#include "newfile/publish_plan.h"
#include "newfile/room.h"
#include "newfile/units.h"
#include "os/rename_over.h"
#include "os/turnstile.h"

namespace st::store {
namespace {

// A new file as it will be, made of `segments`.
struct Blueprint {
  write::PublishPlan plan;
  std::vector<write::Segment> segments;
  write::Cost cost;
};

// A file whose tensors are aligned stays so. One of another writer, which never was, keeps its order: to move all of it
// costs more than it brings.
bool may_align(const Staged &staged) {
  const Index &old = staged.snapshot->header.index;
  bool aligned = staged.options.align;
  for (size_t i = 0; i < old.size() && aligned; ++i) {
    const TensorView t = old.at(i);
    aligned = t.nbytes == 0 || t.begin % write::element_bytes(t.dtype) == 0;
  }
  return aligned;
}

Result<write::PublishPlan> plan_publish(const Staged &staged, uint64_t block, bool keeping_removed) {
  const uint64_t data_offset = staged.snapshot->header.data_offset();
  std::vector<write::PlannedTensor> tensors;
  for (const PendingTensor *t : staged.draft->tensors())
    tensors.push_back({t->name, t->form.dtype, t->form.shape, t->form.nbytes, !t->payload,
                       t->payload ? *t->payload : data_offset + t->begin});
  const Index &index = staged.snapshot->header.index;
  for (size_t i = 0; keeping_removed && i < index.size(); ++i) {
    const TensorView t = index.at(i);
    if (!staged.draft->find(std::string(t.name)))
      tensors.push_back({t.name, t.dtype, t.shape, t.nbytes, true, data_offset + t.begin});
  }
  const auto metadata = staged.draft->metadata();
  const TransactionOptions &asked = staged.options;
  return write::plan_publish(data_offset, std::move(tensors), metadata,
                             {asked.layout, asked.alignment, asked.reserve, block, may_align(staged), asked.compact});
}

Result<Blueprint> draw(const Staged &staged, const os::File &old, uint64_t block, bool keeping_removed) {
  ST_TRY(auto plan, plan_publish(staged, block, keeping_removed));
  Blueprint drawn{std::move(plan), {}, {}};
  drawn.segments.reserve(drawn.plan.segments.size());
  for (const write::PlannedSegment &s : drawn.plan.segments) {
    if (s.kept) {
      drawn.segments.push_back({s.to, s.length, &old, s.from, nullptr});
      continue;
    }
    const StagedPayload &payload = staged.payloads[s.from];
    if (payload.bytes)
      drawn.segments.push_back({s.to, s.length, nullptr, 0, payload.bytes});
    else
      drawn.segments.push_back({s.to, s.length, &staged.journal.journal->file(), payload.journal.offset, nullptr});
  }
  const uint64_t disk_block = write::room_of(old).block;
  drawn.cost = write::expect_build(drawn.plan.header, drawn.segments, block, disk_block);
  drawn.cost.staged_shared = drawn.cost.shared - drawn.plan.shared;
  drawn.cost.staged_copied = drawn.cost.copied - drawn.plan.copied;
  reckon_slices(staged, &drawn.cost, disk_block);
  return drawn;
}

Result<bool> has_hash(const os::File &file, uint64_t offset, uint64_t length, uint64_t hash,
                      const write::Journal::GoOn &go_on) {
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(std::min(write::write_chunk_bytes, length));
  Hasher hasher;
  for (uint64_t done = 0; done < length;) {
    const uint64_t n = std::min(write::write_chunk_bytes, length - done);
    ST_TRY(go_on(done));
    ST_TRY(file.read(buffer.get(), n, offset + done));
    hasher.add(buffer.get(), n);
    done += n;
  }
  return hasher.digest() == hash;
}

Result<bool> is_as_staged(const Staged &staged, const StagedPayload &p, const os::File &made,
                          const write::PlannedSegment &s, const write::Journal::GoOn &go_on) {
  const write::Journal *journal = staged.journal.journal.get();
  if (!p.bytes) return journal->holds(p.journal, go_on);
  if (p.table.noted()) return journal->was_noted(p.table, made, s.to, s.length, go_on);
  return has_hash(made, s.to, s.length, *p.hash, go_on);
}

// Are the payloads what they were when they were staged? What lies in the journal is ours, and is looked at there; what
// was borrowed may change at any time, so what is looked at is what has come to be in the new file.
Result<void> check_payloads(const Staged &staged, const os::File &made, const write::PublishPlan &plan) {
  const auto go_on = [&](uint64_t) { return staged.control.check(plan.size, plan.size); };
  for (const write::PlannedSegment &s : plan.segments) {
    if (s.kept) continue;
    const StagedPayload &p = staged.payloads[s.from];
    if (p.bytes && !p.table.noted() && !p.hash) continue;  // of a put: read here for the first time
    ST_TRY(const auto same, is_as_staged(staged, p, made, s, go_on));
    if (same) continue;
    const auto by = std::find_if(staged.changes.begin(), staged.changes.end(), [&](const Change &c) {
      return (c.kind == Change::put || c.kind == Change::update) && c.payload == s.from;
    });
    if (p.bytes) return Failure(changed_payload(by->name));
    return Failure(error(Status::journal, "the new bytes of tensor ", in_quotes(by->name), " were damaged in ",
                         in_quotes(staged.journal.journal->file().path()), "; nothing was changed")
                       .about_tensor(by->name));
  }
  return {};
}

// The new file stands. Is that durable?
Result<void> finish(Staged &staged, const write::Built &built, tl::expected<void, write::SwapFailure> placed) {
  ++staged.file.counters().commits;
  staged.file.counters().bytes_written += built.written + built.copied;
  if (placed) return {};
  staged.file.poison();
  return open_outcome(std::move(placed.error().error), [&](const std::string &why) {
    return text("the new ", in_quotes(staged.file.path()), " is in place, but a power cut may bring the old one back (",
                why, "); close the handle, open the file anew and look which it is");
  });
}

}  // namespace

// A reader that follows the index, old or new, must find each tensor. So a shard that gains names first has them all.
Makes makes(const Staged &staged, bool as_part) {
  if (!as_part) return {true, false, false};
  const Index &old = staged.snapshot->header.index;
  const auto tensors = staged.draft->tensors();
  const bool gains =
      std::any_of(tensors.begin(), tensors.end(), [&](const PendingTensor *t) { return !old.find(t->name); });
  bool loses = false;
  for (size_t i = 0; i < old.size() && !loses; ++i) loses = !staged.draft->find(std::string(old.at(i).name));
  return {gains || !loses, loses, loses};
}

Result<CommitPlan> reckon_rewrite(Staged &staged, const os::File &old, write::SuperParticipant *as_part) {
  ST_TRY(make_publish(staged));
  CommitPlan plan;
  plan.kind = CommitPlan::publish;
  const uint64_t block = write::shareable_block(old);
  const Makes made = makes(staged, as_part != nullptr);
  std::vector<bool> keeping;  // of each file, whether it keeps what is lost
  if (made.first) keeping.push_back(made.first_keeps);
  if (made.second) keeping.push_back(false);
  for (const bool keeps : keeping) {
    ST_TRY(auto drawn, draw(staged, old, block, keeps));
    plan.cost += drawn.cost;
    plan.in_all += drawn.plan.size;
    plan.file_size = drawn.plan.size;
    plan.data_offset = drawn.plan.header.size();
    plan.how = std::move(drawn.plan.how);
  }
  if (!as_part && !staged.journal.journal) return plan;
  write::JournalPlan journal =
      staged.journal.journal ? staged.journal.journal->plan() : staged.file.journals().plan_next();
  if (as_part) {
    if (!staged.journal.journal)
      plan.cost.room += write::room_of_folder(staged.snapshot->filesystem.type, write::room_of(old).block);
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

// The storage has not kept what was just written: no word about the file that stands there.
Error read_otherwise(const Staged &staged, Error e) {
  if (e.status < Status::header_too_small) return e;
  return error(Status::io, "the new file for ", in_quotes(staged.file.path()), " does not read as it was written (",
               e.message, "), so nothing was changed; see what the storage has lost, and try again");
}

// The new file, whole but for its name, and this handle's view of it.
Result<void> make_new_file(Staged &staged, const CommitLock &lock, NewFile *made, const os::Location &at,
                           std::string_view infix, bool keeping_removed) {
  // We hold the exclusive lock and no journal waits, so undecided temporaries are stale.
  using write::TemporaryFile;
  // Where another host may have lost its locks it is to find its temporary gone, also if that came just now.
  TemporaryFile::remove_stale(staged.file.location(), {write::temporary_infix, write::undecided_infix},
                              staged.has_other_hosts() ? nullptr : staged.options.listed);
  const auto create = [&] { return TemporaryFile::create(at, 0600, infix, TemporaryFile::Stale::removed); };
  ST_TRY(made->replacement, staged.with_room(create));
  const os::File &file = made->replacement->file();
  const uint64_t block = write::shareable_block(file);
  ST_TRY(auto drawn, draw(staged, lock.file(), block, keeping_removed));
  const write::PublishPlan &plan = drawn.plan;
  ST_TRY(write::set_room_aside(file, plan.size, drawn.cost.shared > 0));
  if (staged.journal.journal) ST_TRY(staged.journal.journal->flush());
  ST_TRY(auto built, write::build(file, plan.header, drawn.segments, block, staged.control));
  ST_TRY(check_payloads(staged, file, plan));
  made->built = built;
  // Before the rights of the old file are on it: as the owner of the new one we may have fewer.
  ST_TRY(auto again, staged.with_room([&] { return made->replacement->open_again(); }));
  ST_TRY(write::copy_attributes(lock.file(), file, made->warnings.log()));

  auto taken = staged.file.take(std::move(again), nullptr, true, staged.later.log());
  if (!taken) return Failure(read_otherwise(staged, std::move(taken.error())));
  ST_TRY(write_slices(staged, file, **taken, &made->built));
  made->snapshot = staged.file.place(std::move(*taken));
  made->replaced = staged.file.hold();
  return staged.control.check(plan.size, plan.size);
}

Result<void> check_links(const Staged &staged, const os::File &old) {
  ST_TRY(auto s, old.stat());
  if (s.st_nlink > 1) {
    os::remove_second_names(staged.file.location());
    ST_TRY(s, old.stat());
  }
  if (s.st_nlink > 1 && !staged.options.break_links)
    return fail(
        Status::hard_links, in_quotes(staged.file.path()), " has ", s.st_nlink,
        " names, of which only this one would lead to the new file; copy it first, or allow links to be broken");
  return {};
}

Result<void> commit_rewrite(Staged &staged, CommitLock &lock, const AnyTransaction::AtLast &at_last) {
  ST_TRY(make_publish(staged));
  ST_TRY(check_links(staged, lock.file()));
  // Where no rename is allowed, a new file may not go either (chattr +a).
  ST_TRY(write::check_replaceable(staged.file.location(), lock.file()));
  NewFile made;
  ST_TRY(make_new_file(staged, lock, &made, staged.file.location(), write::temporary_infix));
  const uint64_t fresh = made.snapshot->identity.st_ino;
  // It may have taken long, and been frozen.
  auto placed = made.replacement->rename_into_place(staged.control, [&]() -> Result<void> {
    ST_TRY(staged.with_room(at_last));
    staged.file.places(fresh);
    staged.file.keep_open(*made.replaced);
    ST_TRY(check_in_place(staged, lock));
    return staged.has_other_hosts() ? staged.check_journal_is_there() : Result<void>();
  });
  if (!placed && !placed.error().replaced) {
    staged.file.places(0);
    staged.file.end_keeping_open(*made.replaced);
    return Failure(std::move(placed.error().error));
  }
  staged.file.adopt(made.snapshot);
  staged.file.places(0);
  if (placed) os::hand_over(lock.file(), lock.held->lock);
  auto done = finish(staged, made.built, std::move(placed));
  // Last: the log may use the file by another handle, and would wait for what is locked here.
  made.replacement.reset();
  lock.held.reset();
  made.warnings.tell(staged.file.options().log);
  return done;
}

}  // namespace st::store
