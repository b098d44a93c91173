// What a file holds, or a file under deltas: tensors in order, each with the
// layer that has its bytes, and metadata. The algebra of deltas is done here,
// on names and forms alone. Pure; must never look at a tensor's bytes.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "format/delta.h"
#include "format/index.h"
#include "format/seeded_hash.h"

namespace st {

struct ListedTensor {
  std::string_view name;
  Dtype dtype;
  std::span<const uint64_t> shape;
  uint64_t nbytes;
  uint32_t layer;  // 0: the base; n: the n-th delta on it
  size_t index;    // in that layer's index
  // Layers above it that hold steps of it, from the lowest up, and its index in each.
  std::vector<std::pair<uint32_t, size_t>> steps = {};
};

// Views of the indices and notes that it was made from, which must outlive it.
struct TensorList {
  std::vector<ListedTensor> tensors;
  std::vector<std::pair<std::string_view, std::string_view>> metadata;
};

TensorList listing_of(const Index &index);

// Where the names of one listing stand in it: a table that deltas on it share, as each one changes few names.
class ListedNames {
 public:
  // The author of the names must not know the seed.
  explicit ListedNames(uint64_t hash_seed) : by_name_(0, SeededHash(hash_seed)) {}
  std::optional<size_t> find(const TensorList &in, std::string_view name);
  // The listing has other names by now, or another order.
  void forget() { by_name_.clear(); }

 private:
  SeededMap<std::string_view, size_t> by_name_;  // empty: not made yet
};

// What `delta`, the file's index and its notes, makes of a catalogue, as its layer
// number `layer`: what it replaces keeps its place, what it adds comes last in the
// order of the delta, unless the notes name another order. Status delta_base: it
// was made for another; delta: it does not do what its notes say. `identity` and `names`: those of the listing, and
// then those of what becomes of it.
Result<void> apply(TensorList *listing, Hash128 *identity, const Index &delta, const DeltaNotes &notes, uint32_t layer,
                   ListedNames *names);
// The same of a listing whose identity nobody has taken; `hash_seed` as of ListedNames.
Result<void> apply(TensorList *listing, const Index &delta, const DeltaNotes &notes, uint32_t layer,
                   uint64_t hash_seed);

// A tensor of a delta in the making.
struct NotedTensor {
  size_t tensor;  // in the tensors of the result
  DeltaTensor hashes;
};

// The notes of the delta that makes `to` of `from` and holds these tensors, in
// this order.
DeltaNotes describe(const TensorList &from, const TensorList &to, std::span<const NotedTensor> tensors,
                    std::vector<std::pair<std::string, OldBytes>> deleted);

}  // namespace st
