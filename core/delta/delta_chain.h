// Deltas in their order on a base: does each fit what lies below it, and what do
// they make of it together? Reads hardly anything of the tensors.
#pragma once

#include <span>

#include "delta/delta_file.h"
#include "format/tensor_list.h"

namespace st::store {

struct DeltaChain {
  TensorList listing;          // views of the base and the deltas, which must outlive it
  std::vector<OldTensor> old;  // tensors of the base that deltas replace or delete, in its order

  // Those among them that no step is taken of. The hash of what steps lead to proves the others, as the steps lead back
  // from there to one tensor alone (step_to_the_end).
  std::vector<OldTensor> old_without_steps() const;
};

// Status delta_base: one was made for something else than what lies below it, as
// far as names, forms, metadata and the hashes in the deltas tell. The bytes of
// the base are for the caller to check: see `old`, check_heads, check_old.
Result<DeltaChain> chain(const ModelView &base, std::span<const DeltaFile> deltas);

// Do these tensors have the bytes that they are to have? Reads all of them; `take` sees each piece, and may end
// it. Status delta_base.
using TakeOld = std::function<Result<void>(const TensorView &tensor, std::span<const std::byte> piece)>;
Result<void> check_old(const ModelView &base, std::span<const OldTensor> tensors, const TakeOld &take);

}  // namespace st::store
