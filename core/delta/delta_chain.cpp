#include "delta/delta_chain.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "delta/delta_hash.h"
#include "format/base_identity.h"

namespace st::store {
namespace {

// Tensors that lie in a delta below are checked by that delta's own hashes; tensors of
// the base are noted.
Result<void> check_replaced(std::span<const DeltaFile> below, const ListedTensor &t, const OldBytes &old,
                            const std::optional<Hash128> &result, std::vector<OldTensor> *of_base) {
  const auto [layer, index] = t.steps.empty() ? std::pair(t.layer, t.index) : t.steps.back();
  if (layer == 0) {
    of_base->push_back({index, old, result});
    return {};
  }
  const DeltaFile &holder = below[layer - 1];
  const Hash128 &bytes = holder.notes.tensors[index].bytes;
  if (bytes == old.all) return {};
  return Failure(wrong_base(t.name, holder.path, bytes, result));
}

}  // namespace

Result<DeltaChain> chain(const ModelView &base, std::span<const DeltaFile> deltas) {
  DeltaChain c{base.listing(), {}};
  ListedNames names(base.fresh_seed());
  Hash128 identity = deltas.empty() ? Hash128() : identity_of(c.listing);
  for (size_t n = 0; n < deltas.size(); ++n) {
    const DeltaFile &delta = deltas[n];
    const auto check = [&](std::string_view name, const OldBytes &old,
                           const std::optional<Hash128> &result) -> Result<void> {
      const auto found = names.find(c.listing, name);
      if (!found) return {};  // apply() will say what is wrong
      return check_replaced(deltas.first(n), c.listing.tensors[*found], old, result, &c.old);
    };
    for (size_t i = 0; i < delta.index().size(); ++i)
      if (const auto &old = delta.notes.tensors[i].old)
        ST_TRY(check(delta.index().at(i).name, *old, delta.notes.tensors[i].bytes));
    for (const auto &[name, old] : delta.notes.deleted) ST_TRY(check(name, old, std::nullopt));
    const auto layer = static_cast<uint32_t>(n + 1);
    if (auto applied = apply(&c.listing, &identity, delta.index(), delta.notes, layer, &names); !applied) {
      applied.error().message +=
          text(" (delta ", in_quotes(delta.path), " on ", in_quotes(n == 0 ? base.path() : deltas[n - 1].path), ")");
      return Failure(std::move(applied.error()));
    }
  }
  std::sort(c.old.begin(), c.old.end(), [](const OldTensor &a, const OldTensor &b) { return a.index < b.index; });
  return c;
}

std::vector<OldTensor> DeltaChain::old_without_steps() const {
  std::set<size_t> stepped;
  for (const ListedTensor &t : listing.tensors)
    if (t.layer == 0 && !t.steps.empty()) stepped.insert(t.index);
  std::vector<OldTensor> others;
  std::copy_if(old.begin(), old.end(), std::back_inserter(others),
               [&](const OldTensor &t) { return !stepped.contains(t.index); });
  return others;
}

Result<void> check_old(const ModelView &base, std::span<const OldTensor> tensors, const TakeOld &take) {
  TensorWindow window(false);
  for (const OldTensor &old : tensors) {
    const Place &place = base.at(old.index);
    const TensorView t = place.tensor();
    ST_TRY(auto hashed, hash_tensor(window, *place.snapshot, t, [&](auto piece) { return take(t, piece); }));
    if (hashed != old.bytes) return Failure(wrong_base(t.name, place.member->place(), hashed.all, old.result));
  }
  return {};
}

}  // namespace st::store
