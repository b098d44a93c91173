#include "format/tensor_list.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "format/base_identity.h"

namespace st {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

std::map<std::string_view, std::string_view> map_of(const std::vector<Pair> &metadata) {
  return {metadata.begin(), metadata.end()};
}

// The names of `tensors`, with what is `kept` in its place and `added` behind.
std::vector<std::string_view> natural_order(const std::vector<ListedTensor> &from,
                                            const std::set<std::string_view> &kept,
                                            const std::vector<std::string_view> &added) {
  std::vector<std::string_view> names;
  for (const ListedTensor &t : from)
    if (kept.count(t.name)) names.push_back(t.name);
  names.insert(names.end(), added.begin(), added.end());
  return names;
}

Result<void> reorder(TensorList *c, const std::vector<std::string> &order, ListedNames *names) {
  std::vector<ListedTensor> ordered;
  ordered.reserve(order.size());
  std::vector<bool> taken(c->tensors.size());
  for (const std::string &name : order) {
    const auto found = names->find(*c, name);
    if (!found || taken[*found]) break;
    ordered.push_back(c->tensors[*found]);
    taken[*found] = true;
  }
  names->forget();
  if (ordered.size() != c->tensors.size() || order.size() != ordered.size())
    return fail(Status::delta, "the order that the delta names is not one of the tensors that it leaves");
  c->tensors = std::move(ordered);
  return {};
}

bool same_form(const ListedTensor &a, const ListedTensor &b) {
  return a.dtype == b.dtype && std::ranges::equal(a.shape, b.shape);
}

// Which tensors there are then; those that go leave their place. Answers whether names or forms are others.
Result<bool> apply_tensors(TensorList *c, const Index &delta, const DeltaNotes &notes, uint32_t layer,
                           ListedNames *names) {
  std::unordered_set<const ListedTensor *> gone;
  for (const auto &[name, old] : notes.deleted) {
    const auto found = names->find(*c, name);
    if (!found) return fail(Status::delta, "the delta deletes ", in_quotes(name), ", which its base does not have");
    gone.insert(&c->tensors[*found]);
  }
  std::vector<ListedTensor> added;
  bool forms_change = false;
  for (size_t i = 0; i < delta.size(); ++i) {
    const TensorView t = delta.at(i);
    const ListedTensor mine{t.name, t.dtype, t.shape, t.nbytes, layer, i, {}};
    const auto found = names->find(*c, t.name);
    if (found.has_value() != notes.tensors[i].old.has_value())
      return fail(Status::delta, "the delta takes tensor ", in_quotes(t.name),
                  " for one that its base has, or has not, and is wrong");
    if (!found) {
      added.push_back(mine);
      continue;
    }
    ListedTensor &now = c->tensors[*found];
    if (notes.tensors[i].steps) {
      now.steps.emplace_back(layer, i);
    } else {
      forms_change = forms_change || !same_form(now, mine);
      now = mine;
    }
  }
  if (!gone.empty())
    c->tensors.erase(
        std::remove_if(c->tensors.begin(), c->tensors.end(), [&](const auto &t) { return gone.count(&t) > 0; }),
        c->tensors.end());
  c->tensors.insert(c->tensors.end(), added.begin(), added.end());
  const bool names_change = !gone.empty() || !added.empty();
  if (names_change) names->forget();
  if (!notes.order.empty()) ST_TRY(reorder(c, notes.order, names));
  return forms_change || names_change;
}

void apply_metadata(TensorList *c, const DeltaNotes &notes) {
  const std::set<std::string_view> removed(notes.removed.begin(), notes.removed.end());
  std::erase_if(c->metadata, [&](const Pair &p) { return removed.contains(p.first); });
  std::map<std::string_view, size_t> places;
  for (const Pair &p : c->metadata) places.emplace(p.first, places.size());
  for (const auto &[key, value] : notes.set) {
    const auto [found, is_new] = places.try_emplace(key, c->metadata.size());
    if (is_new)
      c->metadata.emplace_back(key, value);
    else
      c->metadata[found->second].second = value;
  }
}

}  // namespace

std::optional<size_t> ListedNames::find(const TensorList &in, std::string_view name) {
  if (by_name_.empty()) {
    by_name_.reserve(in.tensors.size());
    for (const ListedTensor &t : in.tensors) by_name_.emplace(t.name, by_name_.size());
  }
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
}

TensorList listing_of(const Index &index) {
  TensorList c;
  c.tensors.reserve(index.size());
  for (size_t i = 0; i < index.size(); ++i) {
    const TensorView t = index.at(i);
    c.tensors.push_back({t.name, t.dtype, t.shape, t.nbytes, 0, i});
  }
  for (size_t i = 0; i < index.metadata_size(); ++i) c.metadata.push_back(index.metadata_at(i));
  return c;
}

Result<void> apply(TensorList *listing, Hash128 *identity, const Index &delta, const DeltaNotes &notes, uint32_t layer,
                   ListedNames *names) {
  const Hash128 found = *identity;
  if (found != notes.base)
    return fail(Status::delta_base, "the delta was made for a base with other names, dtypes, shapes or metadata (",
                spell_hash(notes.base), ", found ", spell_hash(found), ")",
                found == notes.result ? "; it seems to have been applied already"
                                      : "; give it the base that it was made for, or make it anew");
  ST_TRY(const bool tensors_differ, apply_tensors(listing, delta, notes, layer, names));
  apply_metadata(listing, notes);
  if (tensors_differ || !notes.set.empty() || !notes.removed.empty()) *identity = identity_of(*listing);
  if (*identity != notes.result)
    return fail(Status::delta, "the delta does not lead to the result that it names; make it anew");
  return {};
}

Result<void> apply(TensorList *listing, const Index &delta, const DeltaNotes &notes, uint32_t layer,
                   uint64_t hash_seed) {
  Hash128 identity = identity_of(*listing);
  ListedNames names(hash_seed);
  return apply(listing, &identity, delta, notes, layer, &names);
}

DeltaNotes describe(const TensorList &from, const TensorList &to, std::span<const NotedTensor> tensors,
                    std::vector<std::pair<std::string, OldBytes>> deleted) {
  DeltaNotes notes;
  notes.base = identity_of(from);
  notes.result = identity_of(to);
  notes.deleted = std::move(deleted);

  const auto before = map_of(from.metadata), after = map_of(to.metadata);
  for (const auto &[key, value] : to.metadata)
    if (const auto old = before.find(key); old == before.end() || old->second != value)
      notes.set.emplace_back(key, value);
  for (const auto &[key, value] : from.metadata)
    if (!after.count(key)) notes.removed.emplace_back(key);

  std::vector<std::string_view> added;
  std::set<std::string_view> kept;
  for (const ListedTensor &t : to.tensors) kept.insert(t.name);
  for (const NotedTensor &t : tensors) {
    notes.tensors.push_back(t.hashes);
    if (t.hashes.old) continue;
    added.push_back(to.tensors[t.tensor].name);
    kept.erase(added.back());
  }
  const auto natural = natural_order(from.tensors, kept, added);
  const bool is_natural = std::equal(natural.begin(), natural.end(), to.tensors.begin(), to.tensors.end(),
                                     [](std::string_view name, const ListedTensor &t) { return name == t.name; });
  if (is_natural) return notes;
  notes.order.reserve(to.tensors.size());
  for (const ListedTensor &t : to.tensors) notes.order.emplace_back(t.name);
  return notes;
}

}  // namespace st
