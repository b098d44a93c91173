// Every shard anew, which changes nothing that a reader of the checkpoint sees. So each is a transaction of its own, on
// what the handle shows by then. No older state keeps the file that was replaced: there need be room for one shard
// alone. What is done before a failure stays.
#include <algorithm>
#include <cerrno>
#include <new>

#include "base/joined_progress.h"
#include "os/waited.h"
#include "shards/shard_transaction.h"
#include "shards/shards.h"

namespace st::store {
namespace {

// What is said of one shard, that nothing was changed, is no word about those before it.
Error after_others(Error e, size_t before, size_t all) {
  if (before == 0 || e.message.empty()) return e;
  try {
    const std::string rest = text("shard ", before + 1, " of ", all);
    constexpr const char *others = "; the shards before it are done, and stay so";
    if (was_stopped(e))
      e.message =
          text("the call was ", e.status == Status::cancelled ? "cancelled" : "interrupted", " at ", rest, others);
    else
      e.message += text(" (this is about ", rest, " alone", others, ")");
  } catch (const std::bad_alloc &) {  // then without that
  }
  return e;
}

}  // namespace

Result<void> Shards::compact(TransactionOptions options) {
  options.compact = true;
  const std::vector<std::string> names = hold()->index().shards();
  std::vector<uint64_t> bytes;
  uint64_t total = 0;
  for (const std::string &name : names) total += bytes.emplace_back(size_at(os::Location::find_in(folder_, name)));
  ST_TRY(open_all(options.progress));
  JoinedProgress joined(std::move(options.progress), total);
  options.progress = joined.of_part();
  os::Neighbours listed;
  options.listed = &listed;
  for (size_t i = 0; i < names.size(); ++i) {
    joined.begin_part(bytes[i]);
    if (auto done = compact_one(names[i], options); !done)
      return Failure(after_others(std::move(done.error()), i, names.size()));
  }
  joined.end();
  return {};
}

// Else each would look at those before it, when its turn comes. What fails is told then.
Result<void> Shards::open_all(const Progress &progress) const {
  const Catalogue now = catalogue();
  std::set<uint32_t> all;
  for (uint32_t i = 0; i < now.several()->members(); ++i) all.insert(all.end(), i);
  auto opened = now.several()->open(all, progress);
  return !opened && was_stopped(opened.error()) ? opened : Result<void>();
}

Result<void> Shards::compact_one(const std::string &shard, const TransactionOptions &options) {
  // Each may wait as long as a call may: after one that stayed busy, all would be done again.
  const os::WaitedByCall call(os::WaitedByCall::anew);
  ST_TRY(auto transaction, ShardTransaction::begin(*this, catalogue(), options));
  ST_TRY(transaction->renew(shard));
  auto done = transaction->commit();
  if (done || done.error().status != Status::no_file) return done;
  return Failure(missing_since(shard).value_or(std::move(done.error())));
}

// It was opened before its turn came. Nothing if the file is there, or the index names it no more.
std::optional<Error> Shards::missing_since(const std::string &shard) const {
  const Held shown = hold();
  const auto member = ShardCatalogue::find(shown->shards(), shard);
  const auto now = with_room([&] { return read_index(at_, {0}, &shown->read()); });
  if (!member || !now) return std::nullopt;
  const auto &named = now->index().shards();
  const auto found = std::lower_bound(named.begin(), named.end(), shard);
  if (found == named.end() || *found != shard) return std::nullopt;
  const auto at = os::Location::find_in(folder_, shard);
  struct stat s;
  if (!at || at->stat(&s) != -ENOENT) return std::nullopt;
  return missing(path_, static_cast<uint32_t>(found - named.begin()), member->path());
}

}  // namespace st::store
