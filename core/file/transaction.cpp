#include "file/transaction.h"

#include <algorithm>
#include <new>

#include "journal/identity.h"
#include "journal/recover.h"
#include "journal/space.h"
#include "os/lock_holder.h"
#include "os/turnstile.h"

namespace st::store {

Transaction::Transaction(DataFile &data_file, TransactionOptions options)
    : data_file_(data_file),
      options_(std::move(options)),
      process_(data_file.env_.fork_generation()),
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
  if (journal_.journal && data_file_.env_.fork_generation() == process_) return_journal();
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
  if (data_file_.env_.fork_generation() != process_)
    return fail(Status::forked,
                "this transaction was begun by the parent process; begin one on a handle opened after the fork");
  if (data_file_.poisoned_)
    return fail(Status::poisoned, "an earlier sync of ", in_quotes(data_file_.path_),
                " failed, so what was written since may be lost; close the handle and open the file anew");
  if (failed_)
    return fail(Status::txn_failed, "an earlier call of this transaction failed; abort it and begin another");
  return {};
}

Result<CommitPlan> Transaction::plan() {
  ST_TRY(may_go_on());
  ST_TRY(auto file, open_regular(data_file_.at_, O_RDWR));
  ST_TRY(auto plan, reckon(file, nullptr));
  plan.space_free = write::room_of(file).free;
  plan.space_needed = write::room_with_metadata(snapshot_->filesystem.type, plan.cost.room);
  return plan;
}

Result<CommitPlan> Transaction::reckon(const os::File &data, write::SuperParticipant *as_part) {
  if (publishes()) return reckon_publish(data, as_part);
  if (as_part) as_part->journal.assign(write::temporary_digits, '0');
  return reckon_patch(data, !as_part && undoes(data), as_part);
}

Result<void> Transaction::check_room(const os::File &data, const Result<CommitPlan> &plan) const {
  if (!plan) return Failure(plan.error());
  return write::check_room(data, write::room_with_metadata(snapshot_->filesystem.type, plan->cost.room));
}

Result<void> Transaction::commit() {
  ST_TRY(may_go_on());
  control_ = Control(options_.progress, &data_file_.interrupts_);
  if (!has_work()) return approve_ ? approve_(*snapshot_) : Result<void>();
  Locked locked;
  if (auto look = lock(options_.lock_timeout_ms, HotJournals::recover, &locked); !look) {
    if (look.error().status != Status::busy) failed_ = true;
    return Failure(std::move(look.error()));
  }
  failed_ = true;  // whatever comes now, there is no second commit
  if (approve_) ST_TRY(approve_(*snapshot_));
  ST_TRY(check_room(locked.file(), reckon(locked.file(), nullptr)));
  if (publishes()) return publish(locked);
  try {
    auto done = finish(locked);
    // Before the tensors are unlocked: the next to lock them must see a hot journal.
    if (!done && journal_.journal->committed()) return_journal();
    return done;
  } catch (const std::bad_alloc &) {
    if (!journal_.journal->committed()) throw;
    return_journal();
    return Failure(Error{Status::needs_recovery, {}});  // its sentence would take memory
  }
}

// The header's bytes shared, so that nobody publishes or recovers meanwhile,
// and the tensors' bytes exclusive.
std::vector<os::LockRange> Transaction::ranges_to_lock() const {
  std::vector<os::LockRange> ranges{{0, snapshot_->header.data_offset(), false}};
  if (publishes()) ranges = {os::whole_file(true)};
  for (const Covered &c : bytes_to_lock()) ranges.push_back({c.begin, c.end - c.begin, true});
  return ranges;
}

Result<write::Look> Transaction::lock(int32_t timeout_ms, HotJournals hot, Locked *locked) {
  write::LockSteps steps{[this] { return ranges_to_lock(); },
                         [this](Error blocked, const os::File &file) { return name_blocked(std::move(blocked), file); },
                         [this, locked](os::LockedFile &file) { return look(file, &locked->identity); },
                         {}};
  if (hot == HotJournals::recover)
    steps.recover = [this](const os::LockWait &left) { return data_file_.recover(left); };
  return write::lock_settled(data_file_.at_, {timeout_ms, &control_, &data_file_.counters_.lock_waits}, steps,
                             &locked->held);
}

// Is what is locked what the header said, and free of hot journals?
Result<write::Look> Transaction::look(os::LockedFile &locked, write::Identity *identity) {
  ST_TRY(*identity, write::identify(locked.file));
  const write::Identity known{snapshot_->identity.st_ino, snapshot_->file_size(), snapshot_->header.data_offset(),
                              snapshot_->header_hash};
  if (*identity != known) {
    locked.lock.release();
    ST_TRY(auto snapshot, data_file_.take(std::move(locked.file), nullptr, true));
    ST_TRY(follow_to(std::move(snapshot)));
    return write::Look::again;
  }
  ST_TRY(auto settled, settle_hot_journals());
  if (!settled) return write::Look::hot;
  ST_TRY(test_locks(locked.file));
  return write::Look::settled;
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
  std::vector<write::Piece> locked;
  if (publishes())
    locked = {{0, {0, snapshot_->file_size(), 0}, nullptr}};
  else
    for (const Covered &c : bytes_to_lock()) locked.push_back({c.begin, {0, c.end - c.begin, 0}, nullptr});
  return write::settle_hot_journals(*folder, snapshot_->identity, {own, locked});
}

// Once a handle: is a second descriptor really kept out?
Result<void> Transaction::test_locks(const os::File &locked) {
  if (data_file_.locks_tested_) return {};
  os::LockRange range{0, 1, true};
  if (!publishes()) {
    const Covered first = bytes_to_lock().front();
    range = {first.begin, first.end - first.begin, true};
  }
  ST_TRY(auto second, open_regular(data_file_.at_, O_RDWR));
  ST_TRY(auto exclude, os::locks_exclude(locked, second, range));
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
  const std::vector<Covered> locks = bytes_to_lock();
  // The first that does not end before: a lock may begin with its page.
  const auto blocked = std::find_if(locks.begin(), locks.end(), [&](const Covered &c) { return c.end > busy.offset; });
  const bool is_tensor = blocked != locks.end() && busy.offset > 0;
  const std::string name(is_tensor ? name_at(blocked->begin) : std::string_view());
  const os::LockRange range = is_tensor     ? os::LockRange{busy.offset, blocked->end - busy.offset, true}
                              : publishes() ? os::whole_file(true)
                                            : os::LockRange{0, snapshot_->header.data_offset(), false};
  busy.holder_pid = os::find_lock_holder(file, range);
  busy.message = text(busy.holder_pid ? text("process ", busy.holder_pid) : std::string("another worker"),
                      is_tensor     ? " is changing tensor "
                      : publishes() ? " is changing a part"
                                    : " is working on all",
                      is_tensor ? in_quotes(name) : std::string(), " of ", in_quotes(data_file_.path_),
                      "; try again, or allow more time");
  return is_tensor ? std::move(busy).about_tensor(name) : busy;
}

}  // namespace st::store
