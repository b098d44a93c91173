#include "file/transaction.h"

#include <algorithm>
#include <new>

#include "journal/identity.h"
#include "journal/recover.h"
#include "journal/space.h"
#include "journal/undo.h"
#include "os/lock_holder.h"

namespace st::store {
namespace {

void sort_by_offset(std::vector<write::Piece> *pieces) {
  std::sort(pieces->begin(), pieces->end(),
            [](const write::Piece &a, const write::Piece &b) { return a.offset < b.offset; });
}

}  // namespace

Transaction::Transaction(DataFile &data_file, TransactionOptions options)
    : data_file_(data_file),
      options_(std::move(options)),
      process_(data_file.env_.getpid()),
      snapshot_(data_file.hold()) {}

Result<std::unique_ptr<Transaction>> Transaction::begin(DataFile &data_file, TransactionOptions options) {
  if (!data_file.options_.writable)
    return fail(Status::read_only,
                data_file.path_.empty() ? "a file that was given as memory" : in_quotes(data_file.path_),
                " was opened for reading only; open it for reading and writing to change it");
  std::unique_ptr<Transaction> t(new Transaction(data_file, std::move(options)));
  ST_TRY(t->may_go_on());
  return t;
}

Transaction::~Transaction() {
  if (journal_.journal && data_file_.env_.getpid() == process_) return_journal();
}

// Committed, but not finished: stays on disk, unlocked, for recovery.
void Transaction::return_journal() {
  if (journal_.journal->committed()) {
    data_file_.poisoned_ = true;
    journal_.journal.reset();
  } else {
    data_file_.journals_->give_back(std::move(journal_));
  }
}

Result<void> Transaction::may_go_on() const {
  if (data_file_.env_.getpid() != process_)
    return fail(Status::forked,
                "this transaction was begun by the parent process; begin one on a handle opened after the fork");
  if (data_file_.poisoned_)
    return fail(Status::poisoned, "an earlier sync of ", in_quotes(data_file_.path_),
                " failed, so what was written since may be lost; close the handle and open the file anew");
  if (failed_)
    return fail(Status::txn_failed, "an earlier call of this transaction failed; abort it and begin another");
  return {};
}

Result<void> Transaction::update(std::string_view name, const NewBytes &value) {
  ST_TRY(may_go_on());
  if (options_.publish || draft_) return put_bytes({Change::update, std::string(name), {}}, value);
  const auto index = snapshot_->header.index.find(name);
  if (!index)
    return Failure(error(Status::not_found, "no tensor is named ", in_quotes(name), " in ", in_quotes(data_file_.path_))
                       .about_tensor(name));
  const TensorView t = snapshot_->header.index.at(*index);
  ST_TRY(check_same_form(name, t.dtype, t.shape, t.nbytes, value.dtype, value.shape, value.nbytes));
  if (t.nbytes == 0) return {};
  control_ = Control(options_.progress, &data_file_.interrupts_);
  auto staged = stage(*index, t, value);
  if (!staged) {
    failed_ = true;
    if (!staged.error().has_tensor) staged.error() = std::move(staged.error()).about_tensor(name);
  }
  return staged;
}

Result<CommitPlan> Transaction::plan() {
  ST_TRY(may_go_on());
  ST_TRY(auto file, open_regular(data_file_.at_, O_RDWR));
  ST_TRY(auto plan, reckon(file, nullptr));
  plan.space_free = write::room_of(file).free;
  plan.space_needed = write::room_with_metadata(snapshot_->filesystem.type, plan.cost.room);
  return plan;
}

Result<CommitPlan> Transaction::plan_part(write::SuperParticipant *entry) {
  ST_TRY(may_go_on());
  if (entry) entry->file = data_file_.at_.name();
  if (locked_) return reckon(locked_->file, entry);
  ST_TRY(auto file, open_regular(data_file_.at_, O_RDWR));
  return reckon(file, entry);
}

Result<CommitPlan> Transaction::reckon(const os::File &data, write::SuperParticipant *as_part) {
  if (publishes()) return reckon_publish(data, as_part);
  if (as_part) as_part->journal.assign(write::temporary_digits, '0');
  return reckon_patch(data, !as_part && undoes(data), as_part);
}

CommitPlan Transaction::reckon_patch(const os::File &data, bool undo, bool as_part) const {
  CommitPlan plan;
  plan.file_size = snapshot_->file_size();
  plan.data_offset = snapshot_->header.data_offset();
  plan.how = "nothing is staged";
  if (staged_.empty()) return plan;
  plan.kind = CommitPlan::patch;
  plan.how = "the tensors are written in place, after their journal is durable";
  write::JournalPlan journal = journal_.journal->plan();
  std::vector<write::Piece> pieces;
  for (const Staged &s : staged_) {
    plan.cost.written += s.piece.payload.length;
    pieces.push_back(s.piece);
    if (s.piece.staged() || (undo && s.fits())) continue;
    journal.append(s.piece.payload.length);
    pieces.back().payload.offset = write::header_bytes;  // staged by then, wherever
  }
  sort_by_offset(&pieces);
  if (!undo)
    write::plan_redo(&journal, pieces);
  else if (!write::plan_undo(data, &journal, pieces, data_file_.undo_from_))
    return reckon_patch(data, false, as_part);
  journal.write_record();
  if (as_part)
    journal.write_record();  // that it is done
  else
    journal.empty();
  plan.cost += journal.cost();
  plan.cost.room += write::room_to_overwrite(data, snapshot_->filesystem, pieces, journal.cost().shared);
  return plan;
}

Result<void> Transaction::check_room(const os::File &data, const Result<CommitPlan> &plan) const {
  if (!plan) return Failure(plan.error());
  return write::check_room(data, write::room_with_metadata(snapshot_->filesystem.type, plan->cost.room));
}

Result<void> Transaction::need_journal() {
  if (journal_.journal) return {};
  ST_TRY(journal_, data_file_.journals_->take());
  journal_start_ = journal_.journal->bytes_written();
  return {};
}

Result<void> Transaction::check_journal_is_there() const {
  return data_file_.journals_->check_beside(journal_);
}

// Staging may take hours, and something may clean up meanwhile. What was staged can still be read.
Result<void> Transaction::restage_if_gone() {
  if (check_journal_is_there()) return {};
  ST_TRY(auto taken, data_file_.journals_->take());
  const write::JournalFolder::Taken gone = std::exchange(journal_, std::move(taken));
  journal_start_ = journal_.journal->bytes_written();
  for (Staged &s : staged_) {
    write::SectorTable &table = s.piece.table;
    const bool staged = s.piece.staged();
    const uint64_t sectors = write::sectors_of(table.noted_for, s.piece.payload.length);
    const write::Payload was =
        staged ? s.piece.payload : write::Payload{table.offset, sectors * sizeof(uint32_t), table.hash};
    ST_TRY(auto again, journal_.journal->take_over(*gone.journal, was, control_));
    if (staged)
      s.piece.payload = again;
    else
      table.offset = again.offset;
  }
  return {};
}

Result<void> Transaction::stage(size_t index, const TensorView &tensor, const NewBytes &value) {
  ST_TRY(need_journal());
  const auto [found, fresh] = by_index_.try_emplace(index, staged_.size());
  if (fresh) staged_.push_back({tensor.name, index, {snapshot_->file_offset(tensor), {0, value.nbytes, 0}}});
  write::Piece &piece = staged_[found->second].piece;
  const bool may_borrow = !options_.copy && value.nbytes >= data_file_.undo_from_ && !is_view(value);
  if (may_borrow && !piece.staged()) return borrow(&piece, value.bytes);
  ST_TRY(auto payload, piece.staged() ? journal_.journal->overwrite(piece.payload, value.bytes, control_)
                                      : journal_.journal->append(value.bytes, value.nbytes, control_));
  piece = {piece.offset, payload};
  return {};
}

// A view changes with its file, which another tensor of this very transaction may
// do: its bytes are taken at once.
bool Transaction::is_view(const NewBytes &value) const {
  return data_file_.lends(value.bytes, value.nbytes) ||
         (options_.is_view && options_.is_view(value.bytes, value.nbytes));
}

// Where the old bytes can be saved instead, the new ones are but noted: the
// caller keeps them until commit.
Result<void> Transaction::borrow(write::Piece *piece, const void *bytes) {
  ST_TRY(piece->table, journal_.journal->note_new(piece->offset, bytes, piece->payload.length, control_));
  piece->bytes = bytes;
  return {};
}

Result<void> Transaction::commit() {
  ST_TRY(may_go_on());
  control_ = Control(options_.progress, &data_file_.interrupts_);
  if (staged_.empty() && !publishes()) return approve_ ? approve_(*snapshot_) : Result<void>();
  auto locked = lock(options_.lock_timeout_ms);
  if (!locked) {
    if (locked.error().status != Status::busy) failed_ = true;
    return Failure(std::move(locked.error()));
  }
  failed_ = true;  // whatever comes now, there is no second commit
  if (approve_) ST_TRY(approve_(*snapshot_));
  ST_TRY(check_room((*locked)->file, reckon((*locked)->file, nullptr)));
  if (publishes()) return publish(**locked);
  try {
    auto done = finish(**locked);
    // Before the tensors are unlocked: the next to lock them must see a hot journal.
    if (!done && journal_.journal->committed()) return_journal();
    return done;
  } catch (const std::bad_alloc &) {
    if (!journal_.journal->committed()) throw;
    return_journal();
    return Failure(Error{Status::needs_recovery, {}});  // its sentence would take memory
  }
}

std::vector<write::Piece> Transaction::pieces() const {
  std::vector<write::Piece> pieces;
  for (const Staged &s : staged_) pieces.push_back(s.piece);
  sort_by_offset(&pieces);
  return pieces;
}

Error Transaction::changed_payload(std::string_view name) {
  return error(Status::invalid_argument, "the new bytes of tensor ", in_quotes(name),
               " changed between staging and commit, so nothing was written; leave them alone until then, or begin the "
               "transaction with ST_TXN_COPY")
      .about_tensor(name);
}

Result<void> Transaction::stage_borrowed(Staged *s) {
  write::Journal &journal = *journal_.journal;
  ST_TRY(auto payload, journal.append(s->piece.bytes, s->piece.payload.length, control_));
  ST_TRY(journal.flush());
  const auto go_on = [&](uint64_t done) { return control_.check(done, payload.length); };
  ST_TRY(auto same, journal.was_noted(s->piece.table, journal.file(), payload.offset, payload.length, go_on));
  if (!same) return Failure(changed_payload(s->name));
  s->piece = {s->piece.offset, payload};
  return {};
}

Result<void> Transaction::stage_borrowed() {
  for (Staged &s : staged_)
    if (!s.piece.staged()) ST_TRY(stage_borrowed(&s));
  return {};
}

// By an undo record, if most bytes are borrowed, there is room for what then is written to new places, and the
// filesystem plays along; else by a redo record.
bool Transaction::undoes(const os::File &data) const {
  uint64_t staged = 0, borrowed = 0;
  for (const Staged &s : staged_) (s.fits() ? borrowed : staged) += s.piece.payload.length;
  if (borrowed <= staged) return false;
  const uint64_t room = reckon_patch(data, true, false).cost.room;
  return write::room_with_metadata(snapshot_->filesystem.type, room) <= write::room_of(data).free;
}

Result<Transaction::Applied> Transaction::apply(const Locked &locked) {
  ST_TRY(restage_if_gone());
  ST_TRY(journal_.journal->write_out(control_));
  ST_TRY(data_file_.journals_->make_name_durable(locked.identity.inode));
  const os::File &dir = journal_.folder->dir();
  const bool undo = undoes(locked.file);
  for (Staged &s : staged_)
    if (!s.piece.staged() && !s.fits()) ST_TRY(stage_borrowed(&s));
  const write::StillThere there = [this] { return check_journal_is_there(); };
  if (undo) {
    auto ranges = write::save_old(locked.file, *journal_.journal, pieces(), data_file_.undo_from_, control_);
    if (ranges) {
      auto applied = write::apply_undoably(locked.file, dir, *journal_.journal, pieces(), std::move(*ranges),
                                           locked.identity, control_, there);
      // A view of this file by some other mapping has changed with it, and is now what it was: so once more, and all
      // of it is read before the file is touched.
      if (applied || !applied.error().payload_changed) return applied;
    } else {
      const Error &e = ranges.error();
      if (was_stopped(e)) return Failure(std::move(ranges.error()));
      if (write::refuses_to_share(e)) data_file_.undo_from_ = write::never;
    }
    ST_TRY(check_room(locked.file, reckon_patch(locked.file, false, false)));
  }
  ST_TRY(stage_borrowed());
  ST_TRY(write::reserve_space(locked.file, snapshot_->filesystem, pieces(), control_));
  return write::apply_patch(locked.file, dir, *journal_.journal, pieces(), locked.identity, control_, there);
}

Result<void> Transaction::finish(const Locked &locked) {
  auto applied = apply(locked);
  data_file_.counters_.journal_bytes += journal_.journal->bytes_written() - journal_start_;
  if (!applied) return Failure(std::move(applied.error()));
  Applied &done = *applied;
  if (!done) {
    write::PatchFailure &failure = done.error();
    if (failure.sync_failed || failure.open_outcome) data_file_.poisoned_ = true;
    if (!failure.open_outcome) return Failure(std::move(failure.error));
    Error e = std::move(failure.error);
    e.message = text("the change was not finished (", e.message,
                     "); close the handle and open the file anew, which finishes or drops it");
    e.status = Status::needs_recovery;
    return Failure(std::move(e));
  }
  ++data_file_.counters_.commits;
  for (const Staged &s : staged_) {
    data_file_.counters_.bytes_written += s.piece.payload.length;
    // The change stands; a view that cannot be brought up to date keeps its old bytes.
    auto shown = snapshot_->refresh(s.index, s.piece.offset, s.piece.payload.length);
    if (!shown && data_file_.options_.log) data_file_.options_.log(LogLevel::warning, shown.error().message);
  }
  return {};
}

Result<std::unique_ptr<Transaction::Locked>> Transaction::lock(int32_t timeout, bool *hot) {
  constexpr int attempts = 1000;
  os::Env &env = data_file_.env_;
  const uint64_t deadline = env.monotonic_ms() + static_cast<uint64_t>(std::max(timeout, 0));
  os::Turnstile turnstile([&](const os::File &file) { return data_file_.at_.was_replaced(file).value_or(false); });
  for (int i = 0; i < attempts; ++i) {
    const uint64_t now = env.monotonic_ms();
    auto locked = try_lock({timeout < 0 ? timeout : static_cast<int32_t>(deadline - std::min(now, deadline)), &control_,
                            &data_file_.counters_.lock_waits},
                           turnstile, hot);
    if (!locked && locked.error().os_errno == ESTALE) continue;  // replaced on the server while we looked
    if (!locked || *locked || (hot && *hot)) return locked;
  }
  return fail(Status::busy, in_quotes(data_file_.path_), " is being replaced or recovered all the time; try again");
}

// The header's bytes shared, so that nobody publishes or recovers meanwhile,
// and the tensors' bytes exclusive. Then look whether what is locked is still
// what the path names, what the header said, and free of hot journals.
Result<std::unique_ptr<Transaction::Locked>> Transaction::try_lock(const os::LockWait &wait, os::Turnstile &turnstile,
                                                                   bool *hot) {
  ST_TRY(auto file, open_regular(data_file_.at_, O_RDWR));
  auto locked = std::make_unique<Locked>();
  locked->file = std::move(file);

  const os::LockRange header{0, snapshot_->header.data_offset(), false};
  std::vector<os::LockRange> ranges;
  for (const write::Piece &p : pieces()) ranges.push_back({p.offset, p.payload.length, true});
  ST_TRY(ranges, os::to_pages(locked->file, std::move(ranges), header.length));
  ranges.insert(ranges.begin(), header);
  if (publishes()) ranges = {os::whole_file(true)};
  auto had = turnstile.lock(locked->file, std::move(ranges), wait, &locked->lock);
  if (!had) return Failure(name_blocked(std::move(had.error()), locked->file));
  if (!*had) {
    turnstile.keep(std::move(locked->file));
    return nullptr;
  }

  ST_TRY(auto replaced, data_file_.at_.was_replaced(locked->file));
  if (replaced) return nullptr;
  ST_TRY(auto identity, write::identify(locked->file));
  const write::Identity known{snapshot_->identity.st_ino, snapshot_->file_size(), snapshot_->header.data_offset(),
                              snapshot_->header_hash};
  if (identity != known) {
    locked->lock.release();
    ST_TRY(auto snapshot, data_file_.take(std::move(locked->file), nullptr, true));
    ST_TRY(follow_to(std::move(snapshot)));
    return nullptr;
  }
  locked->identity = identity;

  ST_TRY(auto settled, settle_hot_journals());
  if (!settled) {
    locked->lock.release();
    if (hot) return *hot = true, nullptr;
    ST_TRY(data_file_.recover(wait));
    return nullptr;
  }
  const os::LockRange tried =
      publishes() ? os::LockRange{0, 1, true}
                  : os::LockRange{staged_.front().piece.offset, staged_.front().piece.payload.length, true};
  ST_TRY(test_locks(*locked, tried));
  return locked;
}

Result<bool> Transaction::settle_hot_journals() const {
  std::optional<write::Folder> looked;
  const write::Folder *folder = journal_.folder.get();
  if (!folder) {
    ST_TRY(looked, write::Folder::open(data_file_.at_, snapshot_->identity, data_file_.options_.log));
    if (!looked) return true;
    folder = &*looked;
  }
  const std::string own = journal_.journal ? journal_.journal->name() : std::string();
  std::vector<write::Piece> locked = pieces();
  if (publishes()) locked = {{0, {0, snapshot_->file_size(), 0}, nullptr}};
  return write::settle_hot_journals(*folder, snapshot_->identity, {own, locked});
}

// The path names another file by now, or the file has another header: stage the
// same values there, if they still fit.
Result<void> Transaction::follow_to(std::unique_ptr<Snapshot> snapshot) {
  const Index &index = snapshot->header.index;
  if (draft_) {
    auto draft = std::make_unique<PendingCatalogue>(index);
    for (const Change &change : changes_)
      if (auto applied = draft->apply(change); !applied) {
        Error e = std::move(applied.error());
        e.status = Status::file_changed;
        e.message = text(in_quotes(data_file_.path_), " was replaced, and the staged changes do not fit it (",
                         e.message, "); open it anew");
        return Failure(std::move(e));
      }
    draft_ = std::move(draft);
  }
  std::vector<size_t> now;  // of each staged tensor its index there
  for (const Staged &s : staged_) {
    const TensorView old = snapshot_->header.index.at(s.index);
    const auto found = index.find(s.name);
    if (!found || index.at(*found).dtype != old.dtype || !std::ranges::equal(index.at(*found).shape, old.shape))
      return Failure(error(Status::file_changed, in_quotes(data_file_.path_), " was replaced, and tensor ",
                           in_quotes(s.name), " is gone from it or has another form; open it anew")
                         .about_tensor(s.name));
    now.push_back(*found);
  }
  by_index_.clear();
  for (size_t k = 0; k < staged_.size(); ++k) {
    const TensorView t = index.at(now[k]);
    staged_[k].name = t.name;
    staged_[k].index = now[k];
    staged_[k].piece.offset = snapshot->file_offset(t);
    by_index_[now[k]] = k;
  }
  snapshot_ = data_file_.adopt(std::move(snapshot));
  return {};
}

// Once a handle: is a second descriptor really kept out?
Result<void> Transaction::test_locks(const Locked &locked, const os::LockRange &range) {
  if (data_file_.locks_tested_) return {};
  ST_TRY(auto second, open_regular(data_file_.at_, O_RDWR));
  ST_TRY(auto exclude, os::locks_exclude(locked.file, second, range));
  if (!exclude)
    return fail(
        Status::lock_unsupported, "the filesystem of ", in_quotes(data_file_.path_), " (", snapshot_->filesystem.type,
        ") grants every lock to everybody, so changes could not be kept apart; copy the file to one that locks");
  data_file_.locks_tested_ = true;
  return {};
}

// Which tensor could not be locked, and which process holds it?
Error Transaction::name_blocked(Error busy, const os::File &file) const {
  if (busy.status != Status::busy) return busy;
  if (busy.offset >= os::turnstile_begin) return os::tell_holder(std::move(busy), file, os::whole_file(true));
  const Staged *blocked = nullptr;  // the first that does not end before: a lock may begin with its page
  for (const Staged &s : staged_)
    if (s.piece.offset + s.piece.payload.length > busy.offset && (!blocked || s.piece.offset < blocked->piece.offset))
      blocked = &s;
  const bool is_tensor = busy.offset > 0 && blocked;
  const os::LockRange range = is_tensor     ? os::LockRange{busy.offset, blocked->piece.payload.length, true}
                              : publishes() ? os::whole_file(true)
                                            : os::LockRange{0, snapshot_->header.data_offset(), false};
  busy.holder_pid = os::find_lock_holder(file, range);
  busy.message = text(busy.holder_pid ? text("process ", busy.holder_pid) : std::string("another worker"),
                      is_tensor     ? " is changing tensor "
                      : publishes() ? " is changing a part"
                                    : " is working on all",
                      is_tensor ? in_quotes(blocked->name) : std::string(), " of ", in_quotes(data_file_.path_),
                      "; try again, or allow more time");
  return is_tensor ? std::move(busy).about_tensor(blocked->name) : busy;
}

}  // namespace st::store
