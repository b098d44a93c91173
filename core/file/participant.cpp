// The part that a transaction on one file plays in one on several: its commit, in
// the steps that all parts take together. Nothing means anything before the
// super-journal is committed, and nothing is given up after that.
#include <algorithm>
#include <functional>
#include <numeric>

#include "file/transaction.h"
#include "journal/identity.h"
#include "journal/space.h"
#include "os/turnstile.h"

namespace st::store {

namespace {

uint64_t elements(std::span<const uint64_t> shape) {
  return std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
}

}  // namespace

Transaction::Gain Transaction::gain() const {
  const Index &before = snapshot_->header.index;
  uint64_t bytes = 0, parameters = 0;
  for (const PendingTensor *t : draft_->tensors()) {
    bytes += t->form.nbytes;
    parameters += elements(t->form.shape);
  }
  for (size_t i = 0; i < before.size(); ++i) parameters -= elements(before.at(i).shape);
  return {static_cast<int64_t>(bytes - before.data_bytes()), static_cast<int64_t>(parameters)};
}

Result<write::Look> Transaction::lock_part(int32_t timeout_ms) {
  ST_TRY(may_go_on());
  control_ = Control(options_.progress, &data_file_.interrupts_);
  auto look = lock(timeout_ms, HotJournals::tell, &locked_);
  if (!look && look.error().status != Status::busy) failed_ = true;
  if (look && *look == write::Look::settled && publishes()) ST_TRY(draft());
  return look;
}

Result<void> Transaction::recover_part(int32_t timeout_ms) {
  return data_file_.recover({timeout_ms, &control_, &data_file_.counters_.lock_waits});
}

Result<std::unique_ptr<Transaction::NewFile>> Transaction::make_part(write::Form *form, std::string *name,
                                                                     bool keeping_removed) {
  auto made = std::make_unique<NewFile>();
  ST_TRY(make(locked_, made.get(), data_file_.at_, write::undecided_infix, keeping_removed));
  ST_TRY(made->replacement->sync(control_));
  *form = {made->snapshot->file_size(), made->snapshot->header_hash};
  *name = made->replacement->temporary();
  return made;
}

Result<void> Transaction::prepare_part(const write::Super &super, write::SuperParticipant *entry) {
  failed_ = true;  // there is no second commit
  entry->file = data_file_.at_.name();
  entry->old = {locked_.identity.size, locked_.identity.header_hash};
  ST_TRY(need_journal());
  if (!publishes()) {
    ST_TRY(restage_if_gone());
    entry->journal = journal_.journal->name();
    ST_TRY(stage_borrowed());
    ST_TRY(write::reserve_space(locked_.file(), snapshot_->filesystem, pieces(), control_));
    buffer_ = write::chunk_for(pieces());
    return write::prepare_patch(locked_.file(), journal_.folder->dir(), *journal_.journal, pieces(), locked_.identity,
                                control_, super);
  }
  ST_TRY(check_links(locked_));
  const Makes made = makes(true);
  if (made.first) {
    ST_TRY(first_, make_part(&entry->first_form, &entry->first, made.first_keeps));
  }
  if (made.second) {
    ST_TRY(second_, make_part(&entry->second_form, &entry->second, false));
  }
  // Its payloads are in the new files by now.
  ST_TRY(restage_if_gone());
  entry->journal = journal_.journal->name();
  write::Journal &journal = *journal_.journal;
  ST_TRY(journal.seal_part(locked_.identity, {}, super.transaction, super.index));
  ST_TRY(journal.sync_payload(journal_.folder->dir(), control_));
  return journal.commit();
}

Result<void> Transaction::apply_prepared() {
  if (publishes()) return {};
  return write::apply_prepared(locked_.file(), *journal_.journal, pieces(), buffer_);
}

Result<void> Transaction::publish_gains() {
  return first_ ? first_->replacement->rename() : Result<void>();
}

Result<void> Transaction::publish_losses() {
  return second_ ? second_->replacement->rename() : Result<void>();
}

Result<void> Transaction::mark_part_done() {
  return journal_.journal->finish();
}

void Transaction::finish_part() {
  journal_.journal->settle();
  Counters &counters = data_file_.counters_;
  ++counters.commits;
  counters.journal_bytes += journal_.journal->bytes_written() - journal_start_;
  for (const Staged &s : staged_) {
    counters.bytes_written += s.piece.payload.length;
    auto shown = snapshot_->refresh(s.index, s.piece.offset, s.piece.payload.length);
    if (!shown && data_file_.options_.log) data_file_.options_.log(LogLevel::warning, shown.error().message);
  }
  for (const auto *made : {&first_, &second_})
    if (*made) counters.bytes_written += (*made)->built.written + (*made)->built.copied;
  NewFile *last = second_ ? second_.get() : first_.get();
  if (last) data_file_.adopt(std::move(last->snapshot));
  if (last) os::hand_over(locked_.held->file, locked_.held->lock);
  // The new files are locked until here, and the next writer waits for that.
  first_.reset();
  second_.reset();
  locked_ = {};
}

Result<void> Transaction::prepare_new_name(const os::Location &at) {
  failed_ = true;  // there is no second commit
  if (!keeps_any()) return {};
  first_ = std::make_unique<NewFile>();
  ST_TRY(make(locked_, first_.get(), at, write::temporary_infix));
  return first_->replacement->file().sync();
}

void Transaction::leave_new_name(bool stays) noexcept {
  if (first_) first_->replacement->leave(stays);
}

void Transaction::finish_new_name() {
  Counters &counters = data_file_.counters_;
  ++counters.commits;
  if (first_) counters.bytes_written += first_->built.written + first_->built.copied;
  first_.reset();
  locked_ = {};
  // This file changes no more.
  if (journal_.journal) return_journal();
  data_file_.close_idle_journals();
}

void Transaction::drop_part(bool open) noexcept {
  for (auto *made : {&first_, &second_}) {
    if (*made && open) (*made)->replacement->leave();
    made->reset();
  }
  if (journal_.journal && journal_.journal->committed()) {
    // Its record, though it means nothing, is not to be met again.
    if (open || !journal_.journal->invalidate()) return_journal();
  }
  locked_ = {};
}

}  // namespace st::store
