#include "engine/look_at_shards.h"

#include <algorithm>
#include <cerrno>
#include <map>

#include "os/waited.h"
#include "shards/shards.h"

namespace st::store {
namespace {

// A disagreement on a tensor that the index has in another shard.
struct Misplaced {
  uint32_t in;
  size_t number;  // of the disagreements there
};
using MisplacedByIndex = std::map<uint32_t, std::vector<Misplaced>>;  // by that other shard

// Both directions: what the shard holds, and what the index says of it.
std::vector<Error> disagreements(const std::string &path, const Index &held, const ShardIndex &index, uint32_t shard,
                                 const std::vector<std::string_view> &names, MisplacedByIndex *misplaced) {
  std::vector<Error> found;
  for (size_t i = 0; i < held.size(); ++i) {
    const std::string_view name = held.at(i).name;
    const auto by_index = index.shard_of(name);
    if (by_index == shard) continue;
    if (by_index) (*misplaced)[*by_index].push_back({shard, found.size()});
    auto e = error(Status::shard_tensor, in_quotes(path), " holds tensor ", in_quotes(name),
                   by_index ? text(", which by the index is in ", in_quotes(index.shards()[*by_index]))
                            : std::string(", which the index does not name"));
    found.push_back(std::move(e).about_tensor(name));
  }
  for (const std::string_view name : names) {
    if (held.find(name)) continue;
    auto e = error(Status::shard_tensor, "by the index tensor ", in_quotes(name), " is in ", in_quotes(path),
                   ", but it is not");
    found.push_back(std::move(e).about_tensor(name));
  }
  return found;
}

Result<std::unique_ptr<Snapshot>> take(os::File file, const struct stat &s) {
  return Snapshot::take(std::move(file), s, {.map = read::MapMode::none, .follows = true, .log = {}});
}

// Tensors that another shard holds, and the index has in this one: is one there, too? An open that meets it says so.
void name_duplicates(const std::shared_ptr<const os::Directory> &folder, const ShardIndex &index, uint32_t shard,
                     const std::vector<Misplaced> &tensors, LookedShards *looked) {
  const auto at = os::Location::find_in(folder, index.shards()[shard]);
  struct stat s;
  auto file = at ? open_regular(*at, O_RDONLY, &s) : Result<os::File>(Failure(at.error()));
  if (!file) return;
  const auto snapshot = take(std::move(*file), s);
  if (!snapshot) return;
  for (const Misplaced &t : tensors) {
    Error &e = looked->shards[t.in].disagreements[t.number];
    if (!(*snapshot)->header.index.find(e.tensor)) continue;
    const std::string name = e.tensor;
    e = error(Status::shard_duplicate, "tensor ", in_quotes(name), " is in ",
              in_quotes(folder->path_of(index.shards()[t.in])), " and in ",
              in_quotes(folder->path_of(index.shards()[shard])), "; one of them would be hidden")
            .about_tensor(name);
  }
}

Result<LookedShards> look_once(const os::Location &index_at, const std::shared_ptr<const os::Directory> &folder,
                               const Control &control) {
  LookedShards looked;
  ST_TRY(looked.read, Shards::read_index(index_at, {default_lock_timeout_ms, &control, nullptr}));
  const ShardIndex &index = looked.read.index();
  uint64_t bytes = 0;
  for (const std::string &shard : index.shards())
    bytes += looked.shards.emplace_back().bytes = size_at(os::Location::find_in(folder, shard));
  const auto names = index.names_by_shard();
  MisplacedByIndex misplaced;
  for (uint32_t i = 0; i < index.shards().size(); ++i) {
    ST_TRY(control.check(0, bytes));
    LookedShard &shard = looked.shards[i];
    const std::string path = folder->path_of(index.shards()[i]);
    const auto at = os::Location::find_in(folder, index.shards()[i]);
    struct stat s;
    auto file = at ? open_regular(*at, O_RDONLY, &s) : Result<os::File>(Failure(at.error()));
    if (!file && file.error().os_errno == ENOENT) {
      shard.missing = error(Status::shard_missing, "shard ", in_quotes(path),
                            ", which the index names, is not there; fetch it, or the checkpoint, again");
      shard.missing->shard = i;
    }
    if (!file) continue;
    shard.state = Shards::state_of(s);
    const auto snapshot = take(std::move(*file), s);
    if (!snapshot) continue;
    const Index &held = (*snapshot)->header.index;
    shard.disagreements = disagreements(path, held, index, i, names[i], &misplaced);
    looked.held.add(held);
  }
  for (const auto &[by_index, tensors] : misplaced) {
    ST_TRY(control.check(0, bytes));
    name_duplicates(folder, index, by_index, tensors, &looked);
  }
  return looked;
}

}  // namespace

Error replaced_all_the_time(const os::Location &index) {
  return error(Status::file_changed, "the index ", in_quotes(index.path()),
               " is replaced all the time; verify the shards when fewer changes are made");
}

void HeldTotals::add(const Index &index) {
  bytes += index.data_bytes();
  for (size_t i = 0; i < index.size(); ++i) parameters += elements(index.at(i).shape);
}

bool LookedShards::agree() const {
  const auto agrees = [](const LookedShard &s) { return !s.missing && s.disagreements.empty(); };
  const auto counts = [this](std::string_view key) {
    return read.index().total(key).value_or(held.of(key)) == held.of(key);
  };
  return std::all_of(shards.begin(), shards.end(), agrees) && counts(total_size_key) && counts(total_parameters_key);
}

Result<LookedShards> look_at_shards(const os::Location &index, const std::shared_ptr<const os::Directory> &folder,
                                    const Control &control) {
  constexpr int most_looks = 20;
  const os::WaitedByCall call(os::WaitedByCall::if_outside);
  uint64_t settled = 0;  // the state of the index since a moment at which nobody committed
  for (int looks = 0; looks < most_looks; ++looks) {
    ST_TRY(auto looked, look_once(index, folder, control));
    if (looked.agree()) return looked;
    ST_TRY(Shards::await_writers(index, {default_lock_timeout_ms, &control, nullptr}));
    const uint64_t state = Shards::state_of(looked.read.identity);
    struct stat now;
    const bool is_same = index.stat(&now) == 0 && Shards::state_of(now) == state;
    if (is_same && settled == state) return looked;
    settled = is_same ? state : 0;
  }
  return Failure(replaced_all_the_time(index));
}

}  // namespace st::store
