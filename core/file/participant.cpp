#include "file/participant.h"

#include <algorithm>
#include <new>

#include "file/commit_plan.h"
#include "file/patch_commit.h"
#include "file/slices.h"
#include "file/staging.h"
#include "journal/space.h"
#include "os/turnstile.h"

namespace st::store {

Participant::~Participant() {
  // Before the file is unlocked: the next to lock it must see a hot journal.
  if (lock_ && of_.journal.journal && of_.journal.journal->committed()) of_.return_journal();
}

Participant::Gain Participant::gain() const {
  uint64_t bytes = 0, parameters = 0;
  for (const PendingTensor *t : after().tensors()) {
    bytes += t->form.nbytes;
    parameters += elements(t->form.shape);
  }
  for (size_t i = 0; i < before().size(); ++i) parameters -= elements(before().at(i).shape);
  return {static_cast<int64_t>(bytes - before().data_bytes()), static_cast<int64_t>(parameters)};
}

Result<CommitPlan> Participant::plan(write::SuperParticipant *entry) {
  ST_TRY(of_.may_go_on());
  if (entry) entry->file = file().location().name();
  if (lock_) return reckon(of_, lock_.file(), entry);
  ST_TRY(auto opened,
         open_regular(file().location(), O_RDWR, nullptr, {of_.options.lock_timeout_ms, &of_.control, nullptr}));
  if (entry && publishes()) ST_TRY(check_links(of_, opened));
  return reckon(of_, opened, entry);
}

Result<write::Look> Participant::lock(int32_t timeout_ms) {
  ST_TRY(of_.may_go_on());
  of_.begin_call();
  auto look = of_.with_room([&] { return lock_for_commit(of_, timeout_ms, HotJournals::tell, &lock_); });
  // Where descriptors are scarce the whole commit may have more of them, and tries again.
  if (!look && look.error().status != Status::busy && !os::is_scarcity(look.error())) of_.failed = true;
  if (look && *look == write::Look::settled && publishes()) ST_TRY(make_publish(of_));
  return look;
}

Result<void> Participant::recover(int32_t timeout_ms) {
  return of_.file.settle_or_recover({timeout_ms, &of_.control, &of_.file.counters().lock_waits});
}

Result<std::unique_ptr<NewFile>> Participant::make(write::Form *form, std::string *name, bool keeping_removed) {
  auto made = std::make_unique<NewFile>();
  ST_TRY(make_new_file(of_, lock_, made.get(), file().location(), write::undecided_infix, keeping_removed));
  ST_TRY(made->replacement->sync(of_.control));
  *form = {made->snapshot->file_size(), made->snapshot->header_hash};
  *name = made->replacement->temporary();
  return made;
}

Result<void> Participant::prepare(const write::Super &super, write::SuperParticipant *entry) {
  of_.failed = true;  // there is no second commit
  entry->file = file().location().name();
  entry->old = {lock_.identity.size, lock_.identity.header_hash};
  ST_TRY(of_.need_journal());
  if (!publishes()) {
    ST_TRY(restage_if_gone(of_));
    entry->journal = of_.journal.journal->name();
    ST_TRY(assemble_slices(of_, lock_.file()));
    ST_TRY(assemble());
    ST_TRY(stage_borrowed(of_));
    pieces_ = of_.pieces();
    ST_TRY(write::reserve_space(lock_.file(), of_.snapshot->filesystem, pieces_, of_.control));
    buffer_ = write::chunk_for(pieces_);
    return write::prepare_patch(lock_.file(), of_.journal.folder->dir(), *of_.journal.journal, pieces_, lock_.identity,
                                of_.control, super, changing_.emplace(lock_.file()));
  }
  ST_TRY(check_links(of_, lock_.file()));
  const Makes made = makes(of_, true);
  if (made.first) {
    ST_TRY(first_, make(&entry->first_form, &entry->first, made.first_keeps));
  }
  if (made.second) {
    ST_TRY(second_, make(&entry->second_form, &entry->second, false));
  }
  // Its payloads are in the new files by now.
  ST_TRY(restage_if_gone(of_));
  entry->journal = of_.journal.journal->name();
  write::Journal &journal = *of_.journal.journal;
  ST_TRY(journal.seal_part(lock_.identity, {}, super.transaction, super.index));
  ST_TRY(journal.sync_payload(of_.journal.folder->dir(), of_.control));
  return journal.commit();
}

Result<void> Participant::check_is_there() const {
  for (const auto *made : {&first_, &second_})
    if (*made) ST_TRY((*made)->replacement->check_is_there());
  return of_.check_journal_is_there();
}

Result<void> Participant::apply_patch(write::StillOurs &ours) {
  if (publishes()) return {};
  return write::apply_prepared(lock_.file(), *of_.journal.journal, pieces_, buffer_, ours);
}

Result<void> Participant::take_name(const NewFile *made) {
  if (!made) return {};
  of_.file.keep_open(*made->replaced);
  return made->replacement->rename();
}

Result<void> Participant::publish_gains() {
  return take_name(first_.get());
}

Result<void> Participant::publish_losses() {
  return take_name(second_.get());
}

Result<void> Participant::mark_done() {
  return of_.journal.journal->finish();
}

void Participant::show() noexcept {
  if (const NewFile *last = last_file()) of_.file.adopt(last->snapshot);
  end_withholding();
}

// Where two files were made, their warnings are the same.
void Participant::keep_warnings() noexcept {
  if (last_file()) warnings_ = std::move(last_file()->warnings);
}

void Participant::warn() noexcept {
  warnings_.tell(of_.file.options().log);
  of_.tell_log();
}

void Participant::finish() noexcept {
  of_.journal.journal->settle(true);
  count_and_show(of_);
  Counters &counters = of_.file.counters();
  counters.journal_bytes += of_.journal.journal->bytes_written() - of_.journal_start;
  for (const auto *made : {&first_, &second_})
    if (*made) counters.bytes_written += (*made)->built.written + (*made)->built.copied;
  if (last_file()) os::hand_over(lock_.file(), lock_.held->lock);
  keep_warnings();
  // The new files are locked until here, and the next writer waits for that.
  first_.reset();
  second_.reset();
  unlock();
}

void Participant::drop(bool open) noexcept {
  if (open) keep_warnings();
  for (auto *made : {&first_, &second_}) {
    if (*made && open) (*made)->replacement->leave();
    made->reset();
  }
  if (of_.journal.journal && of_.journal.journal->committed()) {
    // Its record, though it means nothing, is not to be met again.
    if (open || !of_.journal.journal->invalidate()) of_.return_journal();
  }
  unlock();
}

Result<void> Participant::prepare_new_name(const os::Location &at) {
  of_.failed = true;  // there is no second commit
  if (!keeps_any()) return {};
  first_ = std::make_unique<NewFile>();
  ST_TRY(make_new_file(of_, lock_, first_.get(), at, write::temporary_infix));
  return first_->replacement->file().sync();
}

void Participant::leave_new_name(bool stays) noexcept {
  if (first_) first_->replacement->leave(stays);
}

void Participant::finish_new_name() {
  if (first_) of_.file.counters().bytes_written += first_->built.written + first_->built.copied;
  keep_warnings();
  first_.reset();
  unlock();
  // This file changes no more.
  if (of_.journal.journal) of_.return_journal();
  of_.file.close_idle_journals();
}

}  // namespace st::store
