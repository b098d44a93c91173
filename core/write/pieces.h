// What a transaction writes into the data file: pieces, in chunks that end at
// sectors, so that whoever is stopped between two has not cut one.
#pragma once

#include <memory>
#include <span>

#include "write/journal.h"

namespace st::write {

struct Piece {
  uint64_t offset = 0;          // in the data file
  Payload payload;              // in the journal; or its length alone, see staged()
  const void *bytes = nullptr;  // the same in memory; null: read them from the journal
  SectorTable table = {};       // of these bytes, if they were not staged

  bool staged() const { return payload.offset != 0; }
};

// A chunk, or the largest piece. Taken before a commit, since running out of
// memory after it would be too late.
std::unique_ptr<std::byte[]> chunk_for(std::span<const Piece> pieces);

// `buffer` is of chunk_for these pieces. Nothing is synced.
Result<void> write_pieces(const os::File &data, const Journal &journal, std::span<const Piece> pieces,
                          std::byte *buffer);

// Copies the bytes [begin, end) of a range, counted in the data file, from the
// journal that holds them.
Result<void> copy_payload(const os::File &data, const os::File &journal, const RangeRecord &range, uint64_t begin,
                          uint64_t end, std::byte *buffer);

}  // namespace st::write
