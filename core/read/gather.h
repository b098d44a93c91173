// Slices of many runs, out of a file that is dear to ask, as a server is: runs near each other are fetched by one read,
// and reads run side by side. Any number of slices; the memory for runs and what lies between them is bounded.
#pragma once

#include <memory>
#include <vector>

#include "format/slice.h"
#include "read/bulk.h"

namespace st::read {

class Gather {
 public:
  static constexpr uint64_t most_room = uint64_t{64} << 20;

  // `control`'s progress counts the bytes of the slices, which are `total` in all. This one has `room` bytes of memory
  // for runs that are read together.
  Gather(const os::File &file, const Strategy &strategy, const Control &control, uint64_t total,
         uint64_t room = most_room);

  // The runs of `plan`, of a tensor that begins at `offset`, packed into `to`. Both stay until finish().
  Result<void> add(uint64_t offset, const SlicePlan &plan, std::byte *to);
  // All that was added has come.
  Result<BulkDone> finish();

 private:
  // Bytes [offset, offset + length) of the file, and the runs in them.
  struct Window {
    uint64_t offset, length;
    uint64_t at;              // in the room
    SlicePlan::Cursor first;  // of `runs`
    uint64_t runs, run_bytes;
    std::byte *to;
  };

  // What is read through between two runs of that length.
  uint64_t longest_gap(uint64_t run_bytes) const;
  Result<void> read();

  const os::File &file_;
  const Strategy &strategy_;
  const Strategy between_;  // windows and single runs
  const Control &control_;
  const uint64_t total_, room_;
  std::vector<Piece> pieces_;    // runs that lie alone
  std::vector<Window> windows_;  // of several runs
  uint64_t used_ = 0;            // of the room
  uint64_t wanted_ = 0;          // bytes of both
  uint64_t gathered_ = 0;        // bytes that have come
  std::unique_ptr<std::byte[]> memory_;
  uint64_t memory_bytes_ = 0;
  BulkDone done_;
};

}  // namespace st::read
