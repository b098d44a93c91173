// What a transaction writes into the data file: pieces, in chunks that end at
// sectors, so that a stop between two cuts no sector. Each is compared with its hash
// from staging, so that a change on the way is noticed.
#pragma once

#include <memory>
#include <span>

#include "journal/journal.h"
#include "journal/still_ours.h"
#include "os/writable_mappings.h"

namespace st::write {

struct Piece {
  uint64_t offset = 0;          // in the data file
  Payload payload;              // in the journal; or its length alone, see staged()
  const void *bytes = nullptr;  // of a borrowed piece: in the caller's memory, which may change
  SectorTable table = {};       // of these bytes as they were when they were borrowed
  RangeRecord sparse = {};      // if the journal holds only what changes of it, and its hashes

  bool staged() const { return payload.offset != 0; }
  // Borrowed, and noted for a place like this: in a file that replaced the one it was noted for, a tensor may lie
  // across other sectors.
  bool fits() const { return !staged() && table.fits(offset); }
  bool is_sparse() const { return sparse.is_sparse(); }
};

// How many pieces, from the first on, follow each other in the file without a gap; at least one. Sparse ones stay
// alone.
size_t run_of(std::span<const Piece> pieces);

// Memory for a chunk, or for all pieces if they are less, and for the hashes of its sectors.
// Taken before a commit, since running out of memory after it would be too late.
struct ChunkBuffer {
  std::unique_ptr<std::byte[]> bytes;
  std::unique_ptr<uint32_t[]> hashes;
  std::unique_ptr<std::byte[]> changes;  // of a sparse piece
};
ChunkBuffer chunk_for(std::span<const Piece> pieces);

// `buffer` is of chunk_for these pieces. Nothing is synced. Status journal if a
// staged piece is no longer what was staged, and invalid_argument if a borrowed one
// is not: what is in the file is then old or new, not all of it new. The same if another host has taken over.
Result<void> write_pieces(const os::File &data, const Journal &journal, std::span<const Piece> pieces,
                          const ChunkBuffer &buffer, StillOurs &ours);

// What these bytes of the file are now stays in the copy-on-write views that this process has of it. To be called
// before anything is decided, as it takes memory; `changing` ends when they are written, or are not to be. Part by
// part: between two of them other threads may fork, and the call may be stopped.
Result<void> keep_in_views(os::BytesUnderChange &changing, std::span<const Piece> pieces, const Control &control);

// Lays what changes of a sparse range over its bytes in the file. `packed` and `bytes` have room for both. Status
// journal, with nothing changed, if what changes is no longer what was staged.
Result<void> write_changes(const os::File &data, const os::File &journal, const RangeRecord &range, std::byte *packed,
                           std::byte *bytes);

// Copies the bytes [begin, end) of a range, counted in the data file, from the
// journal that holds them.
Result<void> copy_payload(const os::File &data, const os::File &journal, const RangeRecord &range, uint64_t begin,
                          uint64_t end, std::byte *buffer);

}  // namespace st::write
