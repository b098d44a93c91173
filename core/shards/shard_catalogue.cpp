#include "shards/shard_catalogue.h"

#include <algorithm>
#include <iterator>

#include "model/side_by_side.h"
#include "shards/shards.h"

namespace st::store {
namespace {

// Or of the next.
auto place_of(const ShardCatalogue::Members &members, std::string_view name) {
  return std::ranges::lower_bound(members, name, {},
                                  [](const auto &member) -> std::string_view { return member->name(); });
}

}  // namespace

ShardCatalogue::ShardCatalogue(const Shards &owner, ReadIndex read, std::shared_ptr<const Members> members)
    : owner_(owner), read_(std::move(read)), members_(std::move(members)), pins_(members_->size()) {
  size_t first = 0;
  for (const uint64_t n : read_.index().counts()) {
    first_.push_back(first);
    first += n;
  }
}

Result<void> ShardCatalogue::check_unchanged() const {
  return owner_.check_unchanged(read_, same_as_, Shards::Own::may_follow);
}

Result<void> ShardCatalogue::check_same_index() const {
  return owner_.check_unchanged(read_, same_as_, Shards::Own::may_not);
}

bool ShardCatalogue::is_of(const struct stat &index) const {
  return Shards::state_of(index) == Shards::state_of(read_.identity);
}

Result<ShardCatalogue::Pinned> ShardCatalogue::pin(uint32_t i) const {
  if (const Snapshot *snapshot = pinned(i)) return Pinned{shards()[i]->opened(), snapshot};
  const auto waits = interrupts_of(owner_.member_options());
  return open_and_pin(i);
}

Result<ShardCatalogue::Pinned> ShardCatalogue::open_and_pin(uint32_t i) const {
  const auto look_and_pin = [&]() -> Result<void> {
    Found found;
    ST_TRY(found[i], first_look(i));
    return pin_together(std::move(found));
  };
  auto done = look_and_pin();
  // A commit of this handle may have changed the shard meanwhile. Before that it handed the old snapshot to this state.
  if (const Snapshot *now = pinned(i)) return Pinned{shards()[i]->opened(), now};
  return Failure(std::move(done.error()));
}

std::string ShardCatalogue::shown_name() const {
  return in_quotes(owner_.path());
}

bool ShardCatalogue::opens_together() const {
  return std::ranges::any_of(pins_, [](const auto &pin) { return !pin.get(); });
}

Result<void> ShardCatalogue::open(const std::set<uint32_t> &awaited, const Progress &progress) const {
  std::set<uint32_t> missing;
  std::ranges::copy_if(awaited, std::inserter(missing, missing.end()), [this](uint32_t i) { return !pinned(i); });
  if (missing.empty()) return {};
  if (owner_.is_of_sources())
    return open_side_by_side(owner_.env(), missing, owner_.most_opens(), owner_.control_of(progress),
                             [this](uint32_t i) -> Result<void> {
                               ST_TRY(open_and_pin(i));
                               return {};
                             });
  const auto waits = interrupts_of(owner_.member_options());
  Found found;
  for (const uint32_t i : missing) {
    auto looked = first_look(i);
    if (looked)
      found[i] = std::move(*looked);
    else if (!pinned(i))  // see open_and_pin()
      return Failure(std::move(looked.error()));
  }
  return pin_together(std::move(found));
}

ShardCatalogue::Pins ShardCatalogue::pins() const {
  Pins all(pins_.size());
  std::ranges::transform(pins_, all.begin(), [](const auto &pin) { return pin.get(); });
  return all;
}

// Have all of these had their names at one moment, at which no commit of others was half done? Those of `pinned` have,
// at `settled_at` or later. So a shard goes with them if it has not changed since then, up to now. Else none of them
// may have been replaced up to now. What was found, and nobody has seen yet, is found again.
Result<void> ShardCatalogue::check_go_together(const Pins &pinned, Found &found, uint64_t &settled_at) const {
  if (owner_.is_of_sources()) return {};
  const auto is_untouched = [&](const auto &one) {
    return pinned[one.first] || shards()[one.first]->is_untouched_since(settled_at, *one.second);
  };
  if (settled_at > 0 && owner_.times_tell() && std::ranges::all_of(found, is_untouched)) return {};
  constexpr int most_looks = 3;  // others may replace a shard each time
  settled_at = owner_.second_to_settle();
  for (int looks = 1;; ++looks) {
    ST_TRY(owner_.await_half_done(owner_.options().lock_timeout_ms));
    ST_TRY(check_unchanged());  // what was awaited may have replaced the index
    bool again = false;
    for (uint32_t i = 0; i < pinned.size(); ++i) {
      if (!pinned[i] && !found.contains(i)) continue;
      ST_TRY(const auto replaced, shards()[i]->was_replaced_by_others(pinned[i] ? *pinned[i] : *found[i]));
      if (!replaced) continue;
      if (pinned[i] || shards()[i]->is_shown() || looks == most_looks) return Failure(replaced_since(i));
      ST_TRY(owner_.refresh_unshown(*shards()[i]));
      ST_TRY(found[i], first_look(i));
      again = true;
    }
    if (!again) return {};
  }
}

// No mutex is held while files are looked at: another call may pin shards beside this one. The later of two calls
// looks again, at what the other has pinned, too.
Result<void> ShardCatalogue::pin_together(Found found) const {
  for (;;) {
    const Pins before = pins();
    uint64_t settled_at = settled_at_;
    ST_TRY(check_go_together(before, found, settled_at));
    Shards::Kept &kept = owner_.kept_.mine();
    const std::lock_guard lock(kept.mutex);
    if (pins() != before) continue;
    settled_at_ = settled_at;
    const bool is_current = owner_.hold().get() == this;
    if (is_current) kept.settled_at = settled_at;
    for (auto &[i, now] : found) {
      pins_[i].keep(std::move(now));
      if (is_current) shards()[i]->note_shown();
    }
    return {};
  }
}

Error ShardCatalogue::replaced_since(uint32_t shard) const {
  Error e = error(Status::file_changed, in_quotes(shards()[shard]->path()),
                  " was replaced by another since it was opened; refresh the handle, or open it anew");
  e.shard = shard;
  return e;
}

Result<HeldSnapshot> ShardCatalogue::first_look(uint32_t i) const {
  auto opened = shards()[i]->open(owner_.member_options());
  if (!opened) {
    Error e = std::move(opened.error());
    if (e.status == Status::no_file) {
      owner_.ask_anew(read_.identity);
      ST_TRY(check_same_index());  // an old shard goes after its time
      return Failure(Shards::missing(owner_.path(), i, shards()[i]->path()));
    }
    e.shard = i;
    return Failure(std::move(e));
  }
  // A shard that disagrees may be on its way, by a change that is under way or whose writer died: to what this index
  // says, and it agrees once that is finished; or to what another will say, and then this one has been replaced.
  // The second look may meet such a change that began after the first, but then this index goes with it.
  for (int looks = 0; looks < 2; ++looks) {
    ST_TRY(check_unchanged());
    if (auto now = (*opened)->hold(); agrees(i, *now)) return now;
    if (pinned(i)) return (*opened)->hold();  // which nobody asks for: see open_and_pin()
    if (owner_.is_of_sources()) break;
    const Control control = owner_.control_of({});
    const os::LockWait wait{owner_.options().lock_timeout_ms, &control, nullptr};
    ST_TRY(owner_.with_room([&] { return Shards::await_writers(owner_.location(), wait); }));
    ST_TRY((*opened)->refresh_settled());
  }
  owner_.ask_anew(read_.identity);
  ST_TRY(check_same_index());  // nor need it go with an index that an own commit has put there since
  Error e = explain(i, *(*opened)->hold());
  e.shard = i;
  return Failure(std::move(e));
}

bool ShardCatalogue::agrees(uint32_t shard, const Snapshot &snapshot) const {
  const Index &index = snapshot.header.index;
  bool agrees = index.size() == read_.index().counts()[shard];
  for (size_t i = 0; agrees && i < index.size(); ++i) agrees = read_.index().shard_of(index.at(i).name) == shard;
  return agrees;
}

Error ShardCatalogue::explain(uint32_t shard, const Snapshot &snapshot) const {
  const Index &index = snapshot.header.index;
  const std::string where = in_quotes(shards()[shard]->path());
  for (size_t i = 0; i < index.size(); ++i) {
    const std::string_view name = index.at(i).name;
    const auto other = read_.index().shard_of(name);
    if (other == shard) continue;
    if (!other)
      return error(Status::shard_tensor, where, " holds tensor ", in_quotes(name), ", which the index ",
                   in_quotes(owner_.path()), " does not name; the two do not belong together")
          .about_tensor(name);
    auto there = shards()[*other]->open(owner_.member_options());
    if (there && (*there)->hold()->header.index.find(name))
      return error(Status::shard_duplicate, "tensor ", in_quotes(name), " is in ", where, " and in ",
                   in_quotes(shards()[*other]->path()), "; one of them would be hidden")
          .about_tensor(name);
    return error(Status::shard_tensor, "tensor ", in_quotes(name), " is in ", where, ", but by the index in ",
                 in_quotes(shards()[*other]->path()))
        .about_tensor(name);
  }
  const auto names = read_.index().names_by_shard();
  for (const std::string_view name : names[shard])
    if (!index.find(name))
      return error(Status::shard_tensor, "by the index ", in_quotes(owner_.path()), " tensor ", in_quotes(name),
                   " is in ", where, ", but it is not; fetch the shard again")
          .about_tensor(name);
  return error(Status::shard_tensor, where, " and the index ", in_quotes(owner_.path()), " disagree");
}

Result<Opened> ShardCatalogue::member(size_t i) const {
  ST_TRY(auto shard, pin(static_cast<uint32_t>(i)));
  return Opened{shard.member, shard.snapshot};
}

std::vector<Opened> ShardCatalogue::opened() const {
  std::vector<Opened> all;
  for (uint32_t i = 0; i < shards().size(); ++i)
    if (const Snapshot *snapshot = pinned(i)) all.push_back({shards()[i]->opened(), snapshot});
  return all;
}

std::shared_ptr<Member> ShardCatalogue::find(const Members &members, std::string_view name) {
  const auto at = place_of(members, name);
  return at == members.end() || (*at)->name() != name ? nullptr : *at;
}

const Snapshot *ShardCatalogue::pinned_of(const Member &shard) const {
  const auto at = place_of(shards(), shard.name());
  return at == shards().end() || at->get() != &shard ? nullptr : pinned(static_cast<uint32_t>(at - shards().begin()));
}

void ShardCatalogue::pin_shown(uint64_t settled_at, const ShardCatalogue *before) const {
  settled_at_ = settled_at;
  const bool is_same_index = before && before->read_.parsed == read_.parsed;
  for (uint32_t i = 0; i < shards().size(); ++i) {
    if (!shards()[i]->is_shown()) continue;
    auto now = shards()[i]->opened()->hold();
    if ((is_same_index && before->pinned(i) == now.get()) || agrees(i, *now)) pins_[i].keep(std::move(now));
  }
}

Result<void> ShardCatalogue::pin_opened(const Member &shard) const {
  const auto at = place_of(shards(), shard.name());
  const auto i = static_cast<uint32_t>(at - shards().begin());
  if (at == shards().end() || at->get() != &shard || pinned(i)) return {};
  auto now = shard.opened()->hold();
  if (!agrees(i, *now)) return {};
  auto done = pin_together({{i, std::move(now)}});
  if (!done && done.error().status != Status::file_changed) return done;  // else who asks for the shard is told that
  return {};
}

uint32_t ShardCatalogue::shard_with(size_t i) const {
  return static_cast<uint32_t>(std::upper_bound(first_.begin(), first_.end(), i) - first_.begin() - 1);
}

Result<Place> ShardCatalogue::at(size_t i) const {
  const uint32_t shard = shard_with(i);
  ST_TRY(auto pinned, pin(shard));
  return Place{i, shard, pinned.member, pinned.snapshot, i - first_[shard]};
}

Result<std::optional<Place>> ShardCatalogue::find(std::string_view name) const {
  const auto shard = read_.index().shard_of(name);
  if (!shard) return std::nullopt;
  ST_TRY(auto pinned, pin(*shard));
  const auto i = pinned.snapshot->header.index.find(name);
  ST_ASSERT(i.has_value());
  return Place{first_[*shard] + *i, *shard, pinned.member, pinned.snapshot, *i};
}

}  // namespace st::store
