// One file, alone or as a member of a model (model/model.h). Names to tensors,
// views and copies of their bytes, and the home of transactions. Readers may be many
// threads; each transaction belongs to one.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "base/control.h"
#include "base/interrupt.h"
#include "file/deferred.h"
#include "file/snapshot.h"
#include "file/versions.h"
#include "format/slice.h"
#include "journal/journal_folder.h"
#include "journal/redo_or_undo.h"
#include "os/source_env.h"
#include "read/bulk.h"
#include "read/copy.h"

namespace st::store {

struct OpenOptions {
  bool writable = false;
  read::MapMode map = read::MapMode::automatic;
  read::ReadOptions bulk = {};
  uint32_t worker_index = 0;  // of a group of worker_count that shares the warming of the file
  uint32_t worker_count = 1;
  uint64_t memory_limit = 0;  // bytes of page cache that bulk reads may leave behind; 0: any
  int32_t lock_timeout_ms = default_lock_timeout_ms;
  Progress progress = {};
  Log log = {};
  std::vector<std::string> deltas = {};  // paths, of a Model; a DataFile knows none
  // For a member of a model, which shares them with the other members.
  std::shared_ptr<os::Descriptors> descriptors = {};
  std::shared_ptr<struct Account> account = {};
};

// How a handle opens its file once more: with the same options, except that it only reads, or shows copy-on-write
// views.
enum class Again { the_same, for_reading, copy_on_write };
inline OpenOptions options_of(OpenOptions options, Again as) {
  options.writable &= as == Again::the_same;
  if (as == Again::copy_on_write) options.map = read::MapMode::copy_on_write;
  return options;
}

// This worker's contiguous share of `bytes`, as `options` says.
class WorkersPart {
 public:
  WorkersPart(const OpenOptions &options, uint64_t bytes) {
    const uint64_t count = std::max(options.worker_count, 1u), number = options.worker_index;
    from_ = bytes / count * number;
    until_ = number + 1 == count ? UINT64_MAX : bytes / count * (number + 1);
  }
  bool has(uint64_t begin) const { return begin >= from_ && begin < until_; }

 private:
  uint64_t from_, until_;
};

struct Counters {
  std::atomic<uint64_t> bytes_read = 0, bytes_prefetched = 0, read_requests = 0, bytes_written = 0, journal_bytes = 0,
                        commits = 0, recoveries = 0, lock_waits = 0;
};

// What the calls on a handle have in common, whichever of its files they are about.
struct Account {
  Counters counters;
  std::atomic<uint64_t> interrupts = 0;
};

// While an open waits for a server.
inline auto interrupts_of(const OpenOptions &options) {
  const Control control(options.progress, options.account ? &options.account->interrupts : nullptr);
  return InterruptScope([control] { return control.check(0, 0); });
}

using HeldSnapshot = Versions<Snapshot>::Held;

// A tensor of a bulk read, or a slice of it, and where its bytes go.
struct BulkRequest {
  size_t index;
  const SlicePlan *slice;  // null: all of it
  std::byte *to;
  bool fresh = false;  // nobody has touched that memory yet
};

// A bulk read over several files: how many files there are, and how many threads this one may have.
struct Share {
  uint32_t threads = UINT32_MAX;
  size_t members = 1;
  uint64_t room = UINT64_MAX;  // bytes that it may prefetch
};

// Memory ran out after a commit: the change stands, and the handle shows it once it is refreshed.
void warn_that_not_shown(const Log &log) noexcept;

class DataFile {
 public:
  // `folders`: those of files that are opened with it, which share them.
  static Result<std::unique_ptr<DataFile>> open(os::Env &env, const std::string &path, OpenOptions options,
                                                os::Folders *folders = nullptr);
  static Result<std::unique_ptr<DataFile>> open(os::Location at, OpenOptions options);
  // For reading only. Status: unsupported if it is to be changed; the format's; what the source answers.
  static Result<std::unique_ptr<DataFile>> open_source(const std::shared_ptr<os::SourceEnv> &source,
                                                       OpenOptions options);
  static Result<std::unique_ptr<DataFile>> open_memory(os::Env &env, const std::byte *bytes, size_t size,
                                                       read::MapMode map = read::MapMode::automatic);
  // By the same path, which must still lead to the file of `state`. How: `as`.
  Result<std::unique_ptr<DataFile>> reopen(const Snapshot &state, Again as) const;
  // The same of what it shows now. A file that its own commit puts there meanwhile is no other one.
  Result<std::unique_ptr<DataFile>> reopen_shown(Again as) const;
  ~DataFile() { end_writing(); }
  DataFile(const DataFile &) = delete;
  DataFile &operator=(const DataFile &) = delete;
  // It is used no more, but through what somebody holds.
  void close() noexcept {
    end_writing();
    versions_.close();
  }
  // The file as it is now, also if it was replaced: what others have committed.
  Result<void> refresh();
  // The same, but of a file that nobody is making anew. So a dying writer's change is finished first.
  Result<void> refresh_settled();

  // The current state: lent, for what is given out until release(); or held.
  const Snapshot &snapshot() const { return versions_.lend(); }
  HeldSnapshot hold() const { return versions_.hold(); }
  // No pointer that was given out is used any more.
  void release() noexcept { versions_.release(); }
  const OpenOptions &options() const { return options_; }
  Counters &counters() const { return counters_; }
  Account &account() const { return *account_; }
  // What was written through this handle may be lost, or may still be decided by recovery: a sync has failed, or a
  // commit ended between its record and its end, as where a write failed. For good, as only another open looks at the
  // disk: no transaction begins or goes on, status poisoned. Reads go on.
  void poison() noexcept { poisoned_ = true; }
  bool poisoned() const { return poisoned_; }
  // For its transactions.
  os::Env &env() const { return env_; }
  write::JournalFolder &journals() const { return *journals_; }  // of a writable file

  // Which state is shown is changed here alone, by one rule, so what is shown never goes back. A state takes the place
  // of the state that was shown when somebody began to look for it. If another was shown meanwhile, that may be the
  // newer one: what was found is dropped, and somebody looks again. A commit that makes a new file holds the locks of
  // the old file and of the new one until the new one is shown. Nobody can have found a newer file, so it takes any
  // place.
  struct Look {
    HeldSnapshot shown;
    uint64_t number = 0, patches = 0, follows = 0;
  };
  Look begin_look() { return {hold(), ++looks_, patches_, follows_}; }  // before the file is opened
  // What that look has found is shown, and held. None: look again.
  Result<HeldSnapshot> adopt_found(const Look &look, std::unique_ptr<Snapshot> found);
  // A refresh in two steps, for a model that shows what it finds in all of its files at once. The caller opens the
  // InterruptScope: not all that looks is a call that may be ended.
  struct Found {
    Look look;
    HeldSnapshot state;  // none: what is shown stays
    bool is_left_behind = false;
  };
  // `unseen`: a state that the model holds once, and nobody else can look at.
  Result<Found> find(int32_t lock_timeout_ms, const Snapshot *unseen = nullptr);
  // Is it to be shown, or has another state been shown since the look began?
  bool is_next(const Found &found) const { return versions_.is_current(found.look.shown); }
  // That may be as good: is it of a look, or a commit, that began later than this one?
  bool shows_since(uint64_t look) const { return hold()->look > look; }
  // Has a transaction found here what others have made, perhaps with other files, since all were refreshed together?
  bool has_followed() const { return follows_ != follows_refreshed_; }
  void note_refreshed(const Look &begun) noexcept { follows_refreshed_ = begun.follows; }
  // If it is still to be shown. Takes no memory, and ends no state.
  bool show(const Found &found) noexcept;
  // A commit on several files is about to put a new one here. What it puts in their places is shown together, by
  // adopt(): until this ends, no refresh shows it.
  void withhold() noexcept { withheld_by_ = env_.fork_generation() + 1; }
  void end_withholding() noexcept { withheld_by_ = 0; }
  // Before a commit, so that nothing can fail after it.
  HeldSnapshot place(std::unique_ptr<Snapshot> made) {
    if (const HeldSnapshot shown = hold()) made->others = shown->others;
    return place(std::move(made), ++looks_);
  }
  // By the commit, under its locks. Takes no memory.
  void adopt(const HeldSnapshot &made) noexcept;
  // Does the name lead to another file than that of `state`, which this handle has shown? What its own commits have put
  // there, or are putting there, counts as the same, unless others have replaced it in between. What is gone does, too:
  // nothing newer can be found.
  Result<bool> was_replaced_by_others(const Snapshot &state) const;
  // Is it that of `state` still, and was it neither replaced nor patched since that second? By the times of the file,
  // so false means perhaps.
  bool is_untouched_since(uint64_t second, const Snapshot &state) const;
  // The file that `state` is of is about to lose its name, by which it could be opened again: its states keep a
  // descriptor open, as long as there is room for it (os::Descriptors::keep).
  void keep_open(const Snapshot &state) noexcept;
  // A commit that was to take the name has failed. If the file still has it, nothing is kept.
  void end_keeping_open(const Snapshot &state) noexcept;
  // These bytes of a tensor of `of` were patched through this handle. Each state of that file, whichever transaction or
  // reader has it, is to show them. One that cannot be brought up to date keeps its old bytes until a refresh.
  void show_patch(const Snapshot &of, size_t index, uint64_t offset, uint64_t n, const Log &log);
  // A commit is about to put this file in the place of what is shown, until it is adopted. 0: none is.
  void places(uint64_t inode) noexcept { placing_ = inode; }
  Result<std::unique_ptr<Snapshot>> take(os::File file, const struct stat *identity, bool follows,
                                         const Log &log) const;
  Result<void> recover(const os::LockWait &wait);
  // A hot journal is in the way. It may be of a commit that this handle has deferred.
  Result<void> settle_or_recover(const os::LockWait &wait);
  DeferredCommits &deferred() const { return *deferred_; }  // of a writable file
  // What was committed to journals alone becomes durable in the file. Whether there was any. Statuses: busy; poisoned;
  // needs_recovery, if the next opener is to finish it.
  Result<bool> settle_deferred(const os::LockWait &wait);
  Result<void> sync();
  // From how many bytes on a payload may be borrowed: see journal/redo_or_undo.h.
  uint64_t undo_from() const { return undo_from_; }
  void never_undo() { undo_from_ = write::never; }
  // It was tried here that locks keep others out.
  bool locks_tested() const { return locks_tested_; }
  void set_locks_tested() { locks_tested_ = true; }
  // Journals that wait for the next transaction are removed, and their descriptors closed.
  void close_idle_journals() {
    if (journals_) journals_->close_idle();
  }
  void interrupt() { interrupts_.fetch_add(1, std::memory_order_relaxed); }
  Control control() const { return Control(options_.progress, &interrupts_); }

  // Tensor i of a snapshot's index. The bytes of a view live as long as the
  // checkpoint; null for no bytes.
  Result<const std::byte *> view(const Snapshot &s, size_t i) const;
  // The same where it takes nothing but a look; else null.
  const std::byte *try_view(const Snapshot &s, size_t i, const TensorView &t) const noexcept {
    if (t.nbytes == 0 || !s.env || s.env->fork_generation() != s.generation) return nullptr;
    return s.content.try_view(i, s.file_offset(t));
  }
  // Do some of these bytes lie in memory that views of this handle show?
  bool lends(const void *bytes, uint64_t n) const;
  Result<void> read(const Snapshot &s, size_t i, void *to) const;
  Result<void> read_slice(const Snapshot &s, size_t i, const SlicePlan &plan, void *to) const;

  // In bulk: tensors of a snapshot's index, in file order. `progress` may be
  // empty: then the handle's own.
  Result<void> read_many(const Snapshot &s, const std::vector<BulkRequest> &requests, const Progress &progress,
                         const Share &share = {}) const;
  // Into memory, so that views do not wait: the page cache, or memory of our
  // own where there is no mapping.
  Result<void> prefetch(const Snapshot &s, std::vector<size_t> tensors, const Progress &progress,
                        const Share &share = {}) const;
  // The tensors of this worker's part of the file, in file order.
  std::vector<size_t> own_part(const Snapshot &s) const;
  // Into one arena; their views lie in it from then on.
  Result<void> load(const Snapshot &s, std::vector<size_t> tensors, bool reserved_pages, bool direct,
                    const Progress &progress, const Share &share = {}) const;
  const read::Strategy &strategy() const { return strategy_; }
  const std::string &path() const { return path_; }  // absolute, without symbolic links; empty for memory, a source
  // The path; of a source its URL, if it has one.
  const std::string &place() const {
    const std::string *url = source_ ? source_->source().url() : nullptr;
    return url ? *url : path_;
  }
  const os::Location &location() const { return at_; }
  std::string shown_name() const;  // for messages, also where there is no path

 private:
  DataFile(os::Env &env, OpenOptions options)
      : env_(env),
        options_(std::move(options)),
        account_(options_.account ? options_.account : std::make_shared<Account>()),
        counters_(account_->counters),
        interrupts_(account_->interrupts) {}

  // What a read takes its bytes from, which are there as long as this.
  struct Reach {
    read::Source bytes;
    os::Descriptors::Held held;
  };
  static Result<Reach> reach(const Snapshot &s);
  // Nothing: the file cannot be opened any more, and is mapped.
  static Result<std::optional<Access>> here_unless_mapped(const Snapshot &s);
  Result<void> read_slice_with(const Snapshot &s, size_t i, const SlicePlan &plan, void *to,
                               const Control &control) const;
  // `total`: the bytes of the whole call.
  Result<void> gather_slices(const Snapshot &s, const os::File &file, const std::vector<const BulkRequest *> &slices,
                             uint64_t total, const Control &control, const Share &share) const;
  Result<void> load_claimed(const Snapshot &s, const Access &here, const std::vector<size_t> &tensors,
                            bool reserved_pages, bool direct, const Control &control, const Share &share) const;
  Control control_of(const Progress &progress) const {
    return Control(progress ? progress : options_.progress, &interrupts_);
  }
  Result<std::vector<size_t>> own_in_place(const Snapshot &s, const Access &here, std::vector<size_t> tensors,
                                           const Control &control, const Share &share) const;
  read::Strategy strategy_of(const Share &share) const {
    read::Strategy strategy = strategy_;
    strategy.threads = std::min(strategy.threads, share.threads);
    return strategy;
  }
  // This file's part of the bytes that a read may leave behind in the page cache.
  uint64_t limit_of(const Share &share) const {
    return options_.memory_limit == 0 ? 0 : std::max<uint64_t>(options_.memory_limit / share.members, 1);
  }
  void count(const read::BulkDone &done) const {
    counters_.bytes_read += done.bytes;
    counters_.read_requests += done.requests;
  }
  Result<std::unique_ptr<Snapshot>> look(bool follows, int32_t lock_timeout_ms);
  void keep_open_as_others(const Snapshot &placed) const;
  Result<void> refresh_before(const Snapshot &now) const;
  Result<bool> place_found(Found &found, std::unique_ptr<Snapshot> state);
  bool is_withheld() const { return withheld_by_ == env_.fork_generation() + 1; }
  HeldSnapshot place(std::unique_ptr<Snapshot> state, uint64_t look);
  void end_writing() noexcept;
  bool is_of(const Snapshot &state, const struct stat &named) const;
  bool is_left_behind(const Snapshot &now, const Snapshot &fresh) const;
  // What lay beside the file. Without any journal nothing has touched it.
  enum class Met { nothing, journals, hot };
  Result<Met> recover_if_needed(const struct stat &identity, const os::LockWait &wait);
  void drop_idle(write::Folder folder, const struct stat &identity);

  std::shared_ptr<os::SourceEnv> source_;  // what env_ is, if it is no file; outlives the snapshots
  os::Env &env_;
  OpenOptions options_;
  read::Strategy strategy_;
  os::Location at_;
  std::string path_;  // of at_
  Versions<Snapshot> versions_;
  std::atomic<uint64_t> looks_ = 0, patches_ = 0;  // begun; shown, or about to be
  std::atomic<uint64_t> follows_ = 0, follows_refreshed_ = 0;
  std::unique_ptr<write::JournalFolder> journals_;  // of a writable file, as is deferred_
  std::unique_ptr<DeferredCommits> deferred_;
  std::atomic<bool> poisoned_ = false;
  std::atomic<uint64_t> placing_ = 0;
  std::atomic<uint64_t> withheld_by_ = 0;  // 1 + os::Env::fork_generation, for its commit goes on in no child; 0: no
  std::atomic<bool> has_changed_ = false;  // as a refresh has seen: an overlay has the file in its upper layer since
  std::atomic<bool> locks_tested_ = false;
  std::atomic<uint64_t> undo_from_ = write::never;
  const std::shared_ptr<Account> account_;
  Counters &counters_;
  std::atomic<uint64_t> &interrupts_;
};

// Status unsupported: what has no path, as memory and sources, is only where its handle is.
Failure cannot_reopen(std::string_view what);

}  // namespace st::store
