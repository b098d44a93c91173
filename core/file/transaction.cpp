#include "file/transaction.h"

#include <set>

#include "base/check.h"
#include "base/joined_progress.h"
#include "file/commit_plan.h"
#include "file/patch_commit.h"
#include "file/remakes.h"
#include "file/rewrite_commit.h"
#include "file/slices.h"
#include "file/staging.h"
#include "newfile/room.h"
#include "os/waited.h"
#include "format/header.h"

namespace st::store {

Result<std::unique_ptr<Transaction>> Transaction::begin(DataFile &data_file, TransactionOptions options) {
  if (!data_file.options().writable)
    return fail(Status::read_only, data_file.shown_name(), " was opened for reading only; ",
                data_file.path().empty() ? "save a copy to a file, and change that"
                                         : "open it for reading and writing to change it");
  std::unique_ptr<Transaction> t(new Transaction(data_file, std::move(options)));
  ST_TRY(t->staged_.may_go_on());
  return t;
}

Result<void> Transaction::update(std::string_view name, const NewBytes &value) {
  return stage_update(staged_, name, value);
}

Result<void> Transaction::update_slice(std::string_view name, const TensorPart &part, const NewBytes &value) {
  return stage_slice(staged_, name, part, value);
}

Result<void> Transaction::update_ranges(std::string_view name, std::span<const ByteRange> ranges,
                                        std::span<const std::byte> bytes) {
  return stage_ranges(staged_, name, ranges, bytes);
}

Result<void> Transaction::remake(std::string_view name, const Remake &make, uint64_t in_journal) {
  ST_ASSERT(!publishes() && !staged_.options.publish);
  return stage_remake(staged_, name, make, in_journal);
}

Result<void> Transaction::put(std::string_view name, const NewBytes &value) {
  return stage_put(staged_, name, value);
}

Result<void> Transaction::remove(std::string_view name) {
  return stage_change(staged_, {Change::remove, std::string(name), {}});
}

Result<void> Transaction::rename(std::string_view from, std::string_view to) {
  ST_TRY(check_new_name(to));
  return stage_change(staged_, {Change::rename, std::string(from), std::string(to)});
}

Result<void> Transaction::set_metadata(std::string_view key, std::optional<std::string_view> value) {
  if (value) ST_TRY(check_utf8(key, *value));
  return stage_change(staged_, {value ? Change::set_metadata : Change::remove_metadata, std::string(key),
                                std::string(value.value_or(std::string_view()))});
}

Result<void> Transaction::replace_metadata(MetadataPairs wanted) {
  const Index &now = staged_.snapshot->header.index;
  std::set<std::string_view> keys;
  for (const auto &[key, text] : wanted) keys.insert(key);
  for (size_t i = 0; i < now.metadata_size(); ++i) {
    const auto [key, text] = now.metadata_at(i);
    if (!keys.contains(key)) ST_TRY(set_metadata(key, std::nullopt));
  }
  for (const auto &[key, text] : wanted)
    if (now.metadata_find(key) != text) ST_TRY(set_metadata(key, text));
  return {};
}

Result<void> Transaction::arrange(std::vector<std::string> names) {
  return stage_change(staged_, {Change::order, {}, {}, {}, 0, std::move(names)});
}

Result<CommitPlan> Transaction::plan() {
  ST_TRY(staged_.may_go_on());
  ST_TRY(auto file, open_regular(staged_.file.location(), O_RDWR, nullptr,
                                 {staged_.options.lock_timeout_ms, &staged_.control, nullptr}));
  if (publishes()) ST_TRY(check_links(staged_, file));
  ST_TRY(auto plan, reckon(staged_, file, nullptr));
  plan.space_free = write::room_of(file).free;
  plan.space_needed = write::room_with_metadata(staged_.snapshot->filesystem.type, plan.cost.room);
  return plan;
}

Result<void> Transaction::approve() const {
  const Snapshot *const now[] = {staged_.snapshot.get()};
  return approve_ ? approve_(now) : Result<void>();
}

Result<void> Transaction::commit() {
  const TellAtEnd at_end([this] { staged_.tell_log(); });
  return commit_quietly();
}

Result<void> Transaction::commit_quietly() {
  ST_TRY(staged_.may_go_on());
  const os::WaitedByCall call(os::WaitedByCall::if_outside);
  staged_.begin_call();
  if (!staged_.has_work()) {
    ST_TRY(approve());
    return staged_.with_room(at_last_);
  }
  // If this host loses its locks, their next holder takes the journal away.
  if (staged_.has_other_hosts()) ST_TRY(staged_.need_journal());
  if (staged_.options.journal_only && !staged_.file.deferred().has_room())
    ST_TRY(staged_.file.settle_deferred({staged_.options.lock_timeout_ms, &staged_.control, nullptr}));
  CommitLock lock;
  lock.deferred_before = staged_.file.deferred().added();
  auto locked = staged_.with_room(
      [&] { return lock_for_commit(staged_, staged_.options.lock_timeout_ms, HotJournals::recover, &lock); });
  staged_.failed = locked || locked.error().status != Status::busy;  // then there is no second commit
  if (!locked) return Failure(std::move(locked.error()));
  ST_TRY(assemble_remakes(staged_, lock.file()));
  ST_TRY(const auto plan, reckon(staged_, lock.file(), nullptr));
  const auto has_room = [&] { return check_room(staged_, lock.file(), plan); };
  ST_TRY(has_room());
  if (approve_) {  // which may take room itself
    ST_TRY(approve());
    ST_TRY(has_room());
  }
  JoinedProgress joined(staged_.options.progress, plan.in_all);
  joined.begin_part(plan.in_all);
  staged_.tell(joined.of_part());
  return publishes() ? commit_rewrite(staged_, lock, at_last_) : commit_patch(staged_, lock, at_last_);
}

}  // namespace st::store
