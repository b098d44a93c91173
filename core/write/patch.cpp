#include "write/patch.h"

#include <algorithm>
#include <cerrno>

namespace st::write {
namespace {

constexpr uint64_t chunk = uint64_t{1} << 20;
constexpr uint64_t write_out = uint64_t{8} << 20;

Result<void> note_and_seal(const os::File &data, Journal &journal, std::span<const Piece> pieces,
                           const Identity &identity, const Control &control) {
  uint64_t done = 0, total = 0;
  for (const Piece &p : pieces) total += p.payload.length;
  std::vector<RangeRecord> ranges;
  ranges.reserve(pieces.size());
  for (const Piece &p : pieces) {
    if (auto go = control.check(done, total); !go) return go;
    auto range = journal.record_old(data, p.offset, p.payload);
    if (!range) return Failure(std::move(range.error()));
    ranges.push_back(*range);
    done += p.payload.length;
  }
  return journal.seal(identity, ranges);
}

// A chunk, from the caller's memory or from the journal. The caller's may fail
// us (a mapped file that was truncated): then the journal has the same bytes,
// and all of the chunk is written again, so that no sector is left cut.
Result<void> write_chunk(const os::File &data, const Journal &journal, const Piece &piece, uint64_t done, uint64_t n,
                         std::byte *buffer) {
  if (piece.bytes) {
    auto put = data.write(static_cast<const std::byte *>(piece.bytes) + done, n, piece.offset + done);
    if (put || put.error().os_errno != EFAULT) return put;
  }
  if (auto got = journal.read(buffer, n, piece.payload.offset + done); !got) return got;
  return data.write(buffer, n, piece.offset + done);
}

Result<void> write_piece(const os::File &data, const Journal &journal, const Piece &piece, std::byte *buffer) {
  uint64_t started = 0;
  for (uint64_t done = 0; done < piece.payload.length;) {
    const uint64_t n = up_to_sector(piece.offset + done, chunk, piece.payload.length - done);
    if (auto put = write_chunk(data, journal, piece, done, n, buffer); !put) return put;
    done += n;
    if (done - started >= write_out) {
      data.env().sync_range(data.fd(), piece.offset + started, done - started);
      started = done;
    }
  }
  return {};
}

Result<void> write_pieces(const os::File &data, const Journal &journal, std::span<const Piece> pieces,
                          std::byte *buffer) {
  for (const Piece &piece : pieces)
    if (auto put = write_piece(data, journal, piece, buffer); !put) return put;
  return data.sync_data();
}

}  // namespace

tl::expected<void, PatchFailure> apply_patch(const os::File &data, const os::File &dir, Journal &journal,
                                             std::span<const Piece> pieces, const Identity &identity,
                                             const Control &control) {
  using Failed = tl::unexpected<PatchFailure>;
  if (auto sealed = note_and_seal(data, journal, pieces, identity, control); !sealed)
    return Failed({std::move(sealed.error()), false, false});
  if (auto synced = journal.sync_payload(dir); !synced) return Failed({std::move(synced.error()), false, true});

  // Memory for what follows, since running out of it would be too late there.
  uint64_t largest = 0;
  for (const Piece &p : pieces) largest = std::max(largest, p.payload.length);
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(std::min(chunk, largest));

  // The point of no return.
  if (auto committed = journal.commit(); !committed) return Failed({std::move(committed.error()), true, true});
  if (auto written = write_pieces(data, journal, pieces, buffer.get()); !written)
    return Failed({std::move(written.error()), true, true});
  if (auto retired = journal.retire(); !retired) return Failed({std::move(retired.error()), true, true});
  return {};
}

}  // namespace st::write
