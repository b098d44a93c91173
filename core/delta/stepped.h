// A tensor as the steps of deltas make it of the bytes that it has in a file: block by block, so that no copy of a
// whole tensor is ever in memory.
#pragma once

#include "delta/delta_file.h"
#include "delta/delta_hash.h"
#include "delta/steps.h"
#include "os/helper.h"

namespace st::store {

// Tensor `index` of a delta that holds its steps.
struct StepsAt {
  const DeltaFile *delta;
  size_t index;
};

inline constexpr uint64_t page_to_change = 4096;

// Which pages of a file have bytes that change. The disk writes whole pages, and a range costs memory.
class ChangedPages {
 public:
  // Among n bytes of the file, from `at` on.
  ChangedPages(uint64_t at, uint64_t n) : skip_(at % page), n_(n), changed_((skip_ + n + page - 1) / page) {}
  // These elements of the bytes.
  void add(std::span<const uint32_t> places, uint32_t width);
  // As ranges of the bytes.
  std::vector<ByteRange> ranges() const;

 private:
  static constexpr uint64_t page = page_to_change;
  uint64_t skip_, n_;
  std::vector<uint8_t> changed_;
};

// A block of a tensor, as the steps make it.
struct SteppedBlock {
  uint64_t begin;  // in the tensor
  std::span<const std::byte> bytes;
  std::span<const StepReader *const> changed_by;
  // The pages with steps, as ranges of the block; `at`: where the block lies in its file.
  std::vector<ByteRange> changed_pages(uint64_t at) const;
};
// `take` sees each block, and may end it.
using TakeBlock = std::function<Result<void>(const SteppedBlock &)>;

// The pages that steps change, of a tensor of the base that lies at `at` in its file. Reads the steps alone. `go_on` is
// asked before each block.
struct PagesToChange {
  uint64_t bytes = 0, ranges = 0;
};
Result<PagesToChange> pages_to_change(const StepsAt &steps, const TensorView &t, uint64_t at, StepRoom &room,
                                      const std::function<Result<void>()> &go_on);

// What lies below the steps of a listed tensor, and where these are. `base` and `deltas` are what it is listed of.
struct SteppedTensor {
  const Snapshot *file;
  TensorView tensor;      // there
  std::string_view path;  // of that file
  std::vector<StepsAt> steps;
  const DeltaFile *holder = nullptr;  // whose file that is; null: the base's
};
SteppedTensor stepped_tensor(const ModelView &base, std::span<const DeltaFile> deltas, const ListedTensor &t);
// Answers the hash of what the steps lead to, which is that which the last delta names. Else the status is delta_base
// if the base has not what the first delta names. It is delta if a delta does not hold what was written: the message
// names the first such one. Others: those of reading. An error is about that tensor.
// `old`, if given, takes the bytes below the steps.
Result<OldBytes> step_to_the_end(const SteppedTensor &t, StepRoom &room, const TakeBlock &take,
                                 TensorHasher *old = nullptr);
// The same of one delta's steps, for a tensor whose bytes lie in `file` at `at`: `to` notes the blocks that change, in
// the helper's thread, in which both hashes are made, too. `tell` is asked after so many bytes.
Result<OldBytes> remake(const SteppedTensor &t, const os::File &file, uint64_t at, os::Helper &helper, StepRoom &room,
                        TakesRemade &to, const std::function<Result<void>(uint64_t n)> &tell);

}  // namespace st::store
