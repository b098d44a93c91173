#include "delta/diff.h"

#include <algorithm>
#include <cstring>

#include "delta/delta_file.h"
#include "delta/delta_hash.h"
#include "file/writer.h"

namespace st::store {
namespace {

class Comparison {
 public:
  Comparison(const ModelView &from, const ModelView &to, const DiffOptions &options)
      : from_(from), to_(to), options_(options), control_(options.progress, nullptr), total_(to.data_bytes()) {}

  Result<void> compare();
  Result<void> write(os::Env &env, const std::string &path);

 private:
  using Found = std::optional<DeltaTensor>;  // none: the same bytes
  Result<Found> compare(const Place &before, const Place &after);
  Result<OldBytes> hash_old(const Place &p);
  Result<OldBytes> hash_new(const Place &p);
  Result<void> tell(uint64_t n) { return control_.check(done_ += n, total_); }

  const ModelView &from_, &to_;
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

// Two tensors of one form. While they are equal one hash does for both.
Result<Comparison::Found> Comparison::compare(const Place &before, const Place &after) {
  const TensorView was = before.tensor(), is = after.tensor();
  TensorHasher old;
  std::optional<TensorHasher> fresh;
  for (uint64_t done = 0; done < is.nbytes;) {
    ST_TRY(auto b, new_.at(*after.snapshot, is, done, is.nbytes - done));
    ST_TRY(auto a, old_.at(*before.snapshot, was, done, b.size()));
    const auto same_size = b.first(a.size());
    if (!fresh && std::memcmp(a.data(), same_size.data(), a.size()) != 0) fresh = old;
    old.add(a);
    if (fresh) fresh->add(same_size);
    done += a.size();
    ST_TRY(tell(a.size()));
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
    ST_TRY(auto fresh, hash_new(after));
    DeltaTensor t{fresh.all, {}};
    if (place) {
      ST_TRY(t.old, hash_old(from_.at(*place)));
    }
    changed_.push_back({after.global, t});
  }
  for (const Place &before : from_.places()) {
    const std::string_view name = before.tensor().name;
    if (to_.find(name)) continue;
    ST_TRY(auto old, hash_old(before));
    deleted_.emplace_back(name, old);
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
  ST_TRY(auto writer, write_delta(env, path, std::move(tensors), notes, options_.alignment, options_.lock_timeout_ms,
                                  [this](uint64_t, uint64_t) { return tell(0).has_value(); }));

  TensorWindow again(false);
  for (const NotedTensor &t : in_file_order) {
    const Place &place = to_.at(t.tensor);
    const TensorView view = place.tensor();
    const auto add = [&](auto piece) -> Result<void> {
      ST_TRY(tell(0));
      return writer->add(view.name, piece.data(), piece.size());
    };
    ST_TRY(auto hashed, hash_tensor(again, *place.snapshot, view, add));
    if (hashed.all != t.hashes.bytes)
      return Failure(error(Status::file_changed, "tensor ", in_quotes(view.name), " of ",
                           in_quotes(place.member->path()), " was changed while it was compared; compare again")
                         .about_tensor(view.name));
  }
  return writer->finish();
}

}  // namespace

Result<void> diff(os::Env &env, const Model &from, const Model &to, const std::string &delta,
                  const DiffOptions &options) {
  auto a = ModelView::of(from), b = ModelView::of(to);
  for (const auto *whole : {&a, &b}) {
    if (!*whole) return Failure(Error(whole->error()));
    ST_TRY((*whole)->must_not_be(env, delta));
  }
  Comparison comparison(*a, *b, options);
  ST_TRY(comparison.compare());
  return comparison.write(env, delta);
}

}  // namespace st::store
