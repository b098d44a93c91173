// A tensor as the steps of deltas make it of the bytes that it has in a file: block by block, so that no copy of a
// whole tensor is ever in memory.
#pragma once

#include "delta/delta_file.h"
#include "delta/delta_hash.h"

namespace st::store {

// Tensor `index` of a delta that holds its steps.
struct StepsAt {
  const DeltaFile *delta;
  size_t index;
};

struct SteppedHashes {
  OldBytes old, fresh;
};

// `take` sees each block, as it is in the file and as the steps make it, the same memory where they leave it alone; and
// may end it. Statuses: delta, unsupported; those of reading. An error is about that tensor.
using TakeBlock =
    std::function<Result<void>(uint64_t begin, std::span<const std::byte> old, std::span<const std::byte> fresh)>;
Result<SteppedHashes> step_through(const Snapshot &file, const TensorView &t, std::span<const StepsAt> steps,
                                   const TakeBlock &take);

// What lies below the steps of a listed tensor, and where these are. `base` and `deltas` are what it is listed of.
struct SteppedTensor {
  const Snapshot *file;
  TensorView tensor;      // there
  std::string_view path;  // of that file
  std::vector<StepsAt> steps;
};
SteppedTensor stepped_tensor(const ModelView &base, std::span<const DeltaFile> deltas, const ListedTensor &t);
// The same as step_through(), and the bytes that they lead from and to are those that the deltas name. Else status
// delta_base, or delta.
Result<void> step_to_the_end(const SteppedTensor &t, const TakeBlock &take);

// The pages of a block of which some byte differs, as ranges of it; `at` is where the block lies in its file. The disk
// writes whole pages, and a range costs memory.
std::vector<ByteRange> changed_pages(uint64_t at, std::span<const std::byte> old, std::span<const std::byte> fresh);

}  // namespace st::store
