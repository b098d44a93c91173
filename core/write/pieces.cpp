#include "write/pieces.h"

#include <algorithm>
#include <cerrno>

#include "write/units.h"

namespace st::write {
namespace {

// A chunk, from the caller's memory or from the journal. The caller's may fail
// us (a mapped file that was truncated): then the journal may have the same
// bytes, and all of the chunk is written again, so that no sector is left cut.
Result<void> write_chunk(const os::File &data, const Journal &journal, const Piece &piece, uint64_t done, uint64_t n,
                         std::byte *buffer) {
  if (piece.bytes) {
    auto put = data.write(static_cast<const std::byte *>(piece.bytes) + done, n, piece.offset + done);
    if (put || put.error().os_errno != EFAULT || !piece.staged()) return put;
  }
  if (auto got = journal.read(buffer, n, piece.payload.offset + done); !got) return got;
  return data.write(buffer, n, piece.offset + done);
}

Result<void> write_piece(const os::File &data, const Journal &journal, const Piece &piece, std::byte *buffer) {
  uint64_t started = 0;
  for (uint64_t done = 0; done < piece.payload.length;) {
    const uint64_t n = up_to_sector(piece.offset + done, write_chunk_bytes, piece.payload.length - done);
    if (auto put = write_chunk(data, journal, piece, done, n, buffer); !put) return put;
    done += n;
    if (done - started >= write_out_bytes) {
      data.env().sync_range(data.fd(), piece.offset + started, done - started);
      started = done;
    }
  }
  return {};
}

}  // namespace

std::unique_ptr<std::byte[]> chunk_for(std::span<const Piece> pieces) {
  uint64_t largest = 0;
  for (const Piece &p : pieces) largest = std::max(largest, p.payload.length);
  return std::make_unique_for_overwrite<std::byte[]>(std::min(write_chunk_bytes, largest));
}

Result<void> write_pieces(const os::File &data, const Journal &journal, std::span<const Piece> pieces,
                          std::byte *buffer) {
  for (const Piece &piece : pieces)
    if (auto put = write_piece(data, journal, piece, buffer); !put) return put;
  return {};
}

Result<void> copy_payload(const os::File &data, const os::File &journal, const RangeRecord &range, uint64_t begin,
                          uint64_t end, std::byte *buffer) {
  for (uint64_t at = begin; at < end;) {
    const uint64_t n = up_to_sector(at, write_chunk_bytes, end - at);
    if (auto got = journal.read(buffer, n, range.payload + (at - range.offset)); !got) return got;
    if (auto put = data.write(buffer, n, at); !put) return put;
    at += n;
  }
  return {};
}

}  // namespace st::write
