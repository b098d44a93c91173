#include "store/diff.h"

#include <algorithm>
#include <cstring>

#include "store/delta_file.h"
#include "store/delta_hash.h"
#include "write/writer.h"

namespace st::store {
namespace {

class Comparison {
 public:
  Comparison(const Whole &from, const Whole &to, const DiffOptions &options)
      : from_(from), to_(to), options_(options), control_(options.progress, nullptr), total_(to.data_bytes()) {}

  Result<void> compare();
  Result<void> write(os::Env &env, const std::string &path);

 private:
  using Found = std::optional<DeltaTensor>;  // none: the same bytes
  Result<Found> compare(const Place &before, const Place &after);
  Result<OldBytes> hash_old(const Place &p);
  Result<OldBytes> hash_new(const Place &p);
  Result<void> tell(uint64_t n) { return control_.check(done_ += n, total_); }

  const Whole &from_, &to_;
  const DiffOptions &options_;
  const Control control_;
  TensorWindow old_{true}, new_{true};
  std::vector<NotedTensor> changed_;
  std::vector<std::pair<std::string, OldBytes>> deleted_;
  uint64_t done_ = 0, total_;  // bytes of `to` that were looked at
};

Result<OldBytes> Comparison::hash_old(const Place &p) {
  return hash_tensor(old_, *p.snapshot, p.tensor(), [this](auto) { return tell(0); });
}

Result<OldBytes> Comparison::hash_new(const Place &p) {
  return hash_tensor(new_, *p.snapshot, p.tensor(), [this](auto piece) { return tell(piece.size()); });
}

// Of two tensors of one form. While they are equal one hash does for both.
Result<Comparison::Found> Comparison::compare(const Place &before, const Place &after) {
  const TensorView was = before.tensor(), is = after.tensor();
  TensorHasher old;
  std::optional<TensorHasher> fresh;
  for (uint64_t done = 0; done < is.nbytes;) {
    auto b = new_.at(*after.snapshot, is, done, is.nbytes - done);
    if (!b) return Failure(std::move(b.error()));
    auto a = old_.at(*before.snapshot, was, done, b->size());
    if (!a) return Failure(std::move(a.error()));
    const auto same_size = b->first(a->size());
    if (!fresh && std::memcmp(a->data(), same_size.data(), a->size()) != 0) fresh = old;
    old.add(*a);
    if (fresh) fresh->add(same_size);
    done += a->size();
    if (auto go = tell(a->size()); !go) return Failure(std::move(go.error()));
  }
  if (!fresh) return Found();
  return DeltaTensor{fresh->digest().all, old.digest()};
}

Result<void> Comparison::compare() {
  for (const Place &after : to_.places()) {
    const TensorView is = after.tensor();
    const auto place = from_.find(is.name);
    if (place) {
      const TensorView was = from_.at(*place).tensor();
      if (was.dtype == is.dtype && std::ranges::equal(was.shape, is.shape)) {
        auto found = compare(from_.at(*place), after);
        if (!found) return Failure(std::move(found.error()).about_tensor(is.name));
        if (*found) changed_.push_back({after.global, **found});
        continue;
      }
    }
    auto fresh = hash_new(after);
    if (!fresh) return Failure(std::move(fresh.error()));
    DeltaTensor t{fresh->all, {}};
    if (place) {
      auto old = hash_old(from_.at(*place));
      if (!old) return Failure(std::move(old.error()));
      t.old = *old;
    }
    changed_.push_back({after.global, t});
  }
  for (const Place &before : from_.places()) {
    const std::string_view name = before.tensor().name;
    if (to_.find(name)) continue;
    auto old = hash_old(before);
    if (!old) return Failure(std::move(old.error()));
    deleted_.emplace_back(name, *old);
  }
  return {};
}

Result<void> Comparison::write(os::Env &env, const std::string &path) {
  const std::vector<NotedTensor> in_file_order = changed_;
  std::sort(changed_.begin(), changed_.end(), [this](const NotedTensor &a, const NotedTensor &b) {
    const TensorView x = to_.at(a.tensor).tensor(), y = to_.at(b.tensor).tensor();
    return write::canonical_before(x.dtype, x.name, y.dtype, y.name);
  });
  const DeltaNotes notes = describe(from_.listing(), to_.listing(), changed_, std::move(deleted_));
  std::vector<write::NewTensor> tensors;
  tensors.reserve(changed_.size());
  for (const NotedTensor &t : changed_) tensors.push_back(write::declaration(to_.at(t.tensor).tensor()));
  auto writer = write_delta(env, path, std::move(tensors), notes, options_.alignment, options_.lock_timeout_ms,
                            [this](uint64_t, uint64_t) { return tell(0).has_value(); });
  if (!writer) return Failure(std::move(writer.error()));

  TensorWindow again(false);
  for (const NotedTensor &t : in_file_order) {
    const Place &place = to_.at(t.tensor);
    const TensorView view = place.tensor();
    auto hashed = hash_tensor(again, *place.snapshot, view, [&](auto piece) -> Result<void> {
      if (auto go = tell(0); !go) return go;
      return (*writer)->add(view.name, piece.data(), piece.size());
    });
    if (!hashed) return Failure(std::move(hashed.error()));
    if (hashed->all != t.hashes.bytes)
      return Failure(error(Status::file_changed, "tensor ", in_quotes(view.name), " of ",
                           in_quotes(place.member->path()), " was changed while it was compared; compare again")
                         .about_tensor(view.name));
  }
  return (*writer)->finish();
}

}  // namespace

Result<void> diff(os::Env &env, const std::string &from, const std::string &to, const std::string &delta,
                  const DiffOptions &options) {
  OpenOptions reading;
  reading.map = read::MapMode::none;
  reading.lock_timeout_ms = options.lock_timeout_ms;
  reading.progress = options.progress;
  auto before = Collection::open(env, from, reading);
  if (!before) return Failure(std::move(before.error()));
  auto after = Collection::open(env, to, reading);
  if (!after) return Failure(std::move(after.error()));
  auto a = Whole::of(**before), b = Whole::of(**after);
  for (const auto *whole : {&a, &b}) {
    if (!*whole) return Failure(Error(whole->error()));
    if (auto apart = (*whole)->must_not_be(env, delta); !apart) return apart;
  }
  Comparison comparison(*a, *b, options);
  if (auto compared = comparison.compare(); !compared) return compared;
  return comparison.write(env, delta);
}

}  // namespace st::store
