#include "store/diff.h"

#include <algorithm>
#include <cstring>

#include "format/listing.h"
#include "store/checkpoint.h"
#include "store/delta_file.h"
#include "store/delta_hash.h"
#include "write/writer.h"

namespace st::store {
namespace {

class Comparison {
 public:
  Comparison(const Snapshot &from, const Snapshot &to, const DiffOptions &options)
      : from_(from),
        to_(to),
        options_(options),
        control_(options.progress, nullptr),
        old_(from.file, from.file_size(), true),
        new_(to.file, to.file_size(), true),
        total_(to.header.index.data_bytes()) {}

  Result<void> compare();
  Result<void> write(os::Env &env, const std::string &path);

 private:
  using Found = std::optional<DeltaTensor>;  // none: the same bytes
  Result<Found> compare(const TensorView &before, const TensorView &after);
  Result<OldBytes> hash_old(const TensorView &t);
  Result<OldBytes> hash_new(const TensorView &t);
  Result<void> tell(uint64_t n) { return control_.check(done_ += n, total_); }

  const Snapshot &from_, &to_;
  const DiffOptions &options_;
  const Control control_;
  read::Window old_, new_;
  std::vector<NotedTensor> changed_;
  std::vector<std::pair<std::string, OldBytes>> deleted_;
  uint64_t done_ = 0, total_;  // bytes of `to` that were looked at
};

Result<OldBytes> Comparison::hash_old(const TensorView &t) {
  return hash_piece(old_, from_.file_offset(t), t.nbytes, [this](auto) { return tell(0); });
}

Result<OldBytes> Comparison::hash_new(const TensorView &t) {
  return hash_piece(new_, to_.file_offset(t), t.nbytes, [this](auto piece) { return tell(piece.size()); });
}

// Of two tensors of one form. While they are equal one hash does for both.
Result<Comparison::Found> Comparison::compare(const TensorView &before, const TensorView &after) {
  TensorHasher old;
  std::optional<TensorHasher> fresh;
  for (uint64_t done = 0; done < after.nbytes;) {
    auto b = new_.at(to_.file_offset(after) + done, after.nbytes - done);
    if (!b) return Failure(std::move(b.error()));
    auto a = old_.at(from_.file_offset(before) + done, b->size());
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
  const Index &from = from_.header.index, &to = to_.header.index;
  for (size_t i = 0; i < to.size(); ++i) {
    const TensorView after = to.at(i);
    const auto place = from.find(after.name);
    if (place) {
      const TensorView before = from.at(*place);
      if (before.dtype == after.dtype && std::ranges::equal(before.shape, after.shape)) {
        auto found = compare(before, after);
        if (!found) return Failure(std::move(found.error()).about_tensor(after.name));
        if (*found) changed_.push_back({i, **found});
        continue;
      }
    }
    auto fresh = hash_new(after);
    if (!fresh) return Failure(std::move(fresh.error()).about_tensor(after.name));
    DeltaTensor t{fresh->all, {}};
    if (place) {
      auto old = hash_old(from.at(*place));
      if (!old) return Failure(std::move(old.error()).about_tensor(after.name));
      t.old = *old;
    }
    changed_.push_back({i, t});
  }
  for (size_t i = 0; i < from.size(); ++i) {
    const TensorView before = from.at(i);
    if (to.find(before.name)) continue;
    auto old = hash_old(before);
    if (!old) return Failure(std::move(old.error()).about_tensor(before.name));
    deleted_.emplace_back(before.name, *old);
  }
  return {};
}

Result<void> Comparison::write(os::Env &env, const std::string &path) {
  const Index &to = to_.header.index;
  const std::vector<NotedTensor> in_file_order = changed_;
  std::sort(changed_.begin(), changed_.end(), [&](const NotedTensor &a, const NotedTensor &b) {
    const TensorView x = to.at(a.tensor), y = to.at(b.tensor);
    return write::canonical_before(x.dtype, x.name, y.dtype, y.name);
  });
  const DeltaNotes notes = describe(listing_of(from_.header.index), listing_of(to), changed_, std::move(deleted_));
  std::vector<write::NewTensor> tensors;
  tensors.reserve(changed_.size());
  for (const NotedTensor &t : changed_) tensors.push_back(write::declaration(to.at(t.tensor)));
  auto writer = write_delta(env, path, std::move(tensors), notes, options_.alignment, options_.lock_timeout_ms);
  if (!writer) return Failure(std::move(writer.error()));

  read::Window again(to_.file, to_.file_size(), false);
  for (const NotedTensor &t : in_file_order) {
    const TensorView view = to.at(t.tensor);
    auto hashed = hash_piece(again, to_.file_offset(view), view.nbytes, [&](auto piece) -> Result<void> {
      if (auto go = tell(0); !go) return go;
      return (*writer)->add(view.name, piece.data(), piece.size());
    });
    if (!hashed) return Failure(std::move(hashed.error()).about_tensor(view.name));
    if (hashed->all != t.hashes.bytes)
      return Failure(error(Status::file_changed, "tensor ", quoted(view.name), " of ", quoted(to_.file.path()),
                           " was changed while it was compared; compare again")
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
  auto before = Checkpoint::open(env, from, reading);
  if (!before) return Failure(std::move(before.error()));
  auto after = Checkpoint::open(env, to, reading);
  if (!after) return Failure(std::move(after.error()));
  const Snapshot &a = (*before)->snapshot(), &b = (*after)->snapshot();
  for (const Snapshot *s : {&a, &b})
    if (auto apart = must_be_another(env, delta, *s); !apart) return apart;
  Comparison comparison(a, b, options);
  if (auto compared = comparison.compare(); !compared) return compared;
  return comparison.write(env, delta);
}

}  // namespace st::store
