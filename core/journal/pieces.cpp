#include "journal/pieces.h"

#include <algorithm>

#include "base/hash.h"
#include "base/round.h"
#include "journal/changes.h"
#include "newfile/units.h"
#include "os/given_memory.h"

namespace st::write {
namespace {

constexpr uint64_t page_bytes = 4096;
constexpr uint64_t kept_at_once = uint64_t{16} << 20;    // whole pages, whatever their size
constexpr uint64_t worth_a_start = uint64_t{256} << 10;  // of writing to the disk: sparse ranges are short

Failure no_longer_staged(const os::File &journal) {
  return fail(Status::journal, "the new bytes in ", in_quotes(journal.path()), " are no longer those that were staged");
}

// Through which chunk after chunk of a piece goes from the journal into the file.
class Staged {
 public:
  Staged(const Journal &journal, const Piece &piece) : journal_(journal), piece_(piece) {}
  // The last chunk is not written if the piece is not what was staged.
  Result<void> write(const os::File &data, uint64_t done, uint64_t n, const ChunkBuffer &buffer) {
    ST_TRY(journal_.read(buffer.bytes.get(), n, piece_.payload.offset + done));
    hasher_.add(buffer.bytes.get(), n);
    if (done + n == piece_.payload.length && hasher_.digest() != piece_.payload.hash)
      return no_longer_staged(journal_.file());
    return data.write(buffer.bytes.get(), n, piece_.offset + done);
  }

 private:
  const Journal &journal_;
  const Piece &piece_;
  Hasher hasher_;
};

// Looked at before it is written, in a copy that does not change any more: what is
// neither old nor noted as new must never be in the file, as recovery would not
// know it.
Result<void> write_borrowed(const os::File &data, const Journal &journal, const Piece &piece, uint64_t done, uint64_t n,
                            const ChunkBuffer &buffer) {
  const auto *from = static_cast<const std::byte *>(piece.bytes) + done;
  ST_TRY(os::copy_given(data.env(), from, n, buffer.bytes.get()));
  ST_TRY(auto same,
         journal.was_noted(piece.table, done, {buffer.bytes.get(), static_cast<size_t>(n)}, buffer.hashes.get()));
  if (!same) return fail(Status::invalid_argument, "the new bytes changed between staging and commit");
  return data.write(buffer.bytes.get(), n, piece.offset + done);
}

Result<void> write_piece(const os::File &data, const Journal &journal, const Piece &piece, const ChunkBuffer &buffer,
                         StillOurs &ours) {
  if (piece.is_sparse()) {
    ST_TRY(write_changes(data, journal.file(), piece.sparse, buffer.changes.get(), buffer.bytes.get()));
    if (piece.payload.length >= worth_a_start) data.env().sync_range(data.fd(), piece.offset, piece.payload.length);
    return {};
  }
  Staged staged(journal, piece);
  uint64_t started = 0;
  for (uint64_t done = 0; done < piece.payload.length;) {
    const uint64_t n = up_to_sector(piece.offset + done, write_chunk_bytes, piece.payload.length - done);
    ST_TRY(ours.check());
    ST_TRY(piece.staged() ? staged.write(data, done, n, buffer)
                          : write_borrowed(data, journal, piece, done, n, buffer));
    done += n;
    if (done - started >= write_out_bytes) {
      data.env().sync_range(data.fd(), piece.offset + started, done - started);
      started = done;
    }
  }
  return {};
}

// How many staged pieces fit into a chunk together. Sparse ones stay alone.
size_t chunk_of(std::span<const Piece> pieces) {
  uint64_t n = 0;
  size_t count = 0;
  for (; count < pieces.size(); ++count) {
    const Piece &p = pieces[count];
    if (!p.staged() || p.is_sparse() || p.payload.length > write_chunk_bytes - n) break;
    n += p.payload.length;
  }
  return count;
}

// Calls `each` with the bytes of those pieces that lie together, and their length.
template <class Place, class Each>
Result<void> each_run(std::span<const Piece> pieces, std::byte *bytes, Place place, Each each) {
  for (size_t i = 0; i < pieces.size();) {
    const uint64_t begin = place(pieces[i]);
    uint64_t length = 0;
    do length += pieces[i].payload.length;
    while (++i < pieces.size() && place(pieces[i]) == begin + length);
    ST_TRY(each(bytes, length, begin));
    bytes += length;
  }
  return {};
}

// Small pieces. None of them is written if one is not what was staged. What lies together in the journal takes one
// read, and what lies together in the file one write.
Result<void> write_together(const os::File &data, const Journal &journal, std::span<const Piece> pieces,
                            const ChunkBuffer &buffer) {
  ST_TRY(each_run(
      pieces, buffer.bytes.get(), [](const Piece &p) { return p.payload.offset; },
      [&](std::byte *bytes, uint64_t n, uint64_t at) { return journal.read(bytes, n, at); }));
  const std::byte *bytes = buffer.bytes.get();
  for (const Piece &piece : pieces) {
    if (hash64(bytes, piece.payload.length) != piece.payload.hash) return no_longer_staged(journal.file());
    bytes += piece.payload.length;
  }
  return each_run(
      pieces, buffer.bytes.get(), [](const Piece &p) { return p.offset; },
      [&](const std::byte *run, uint64_t n, uint64_t at) { return data.write(run, n, at); });
}

}  // namespace

size_t run_of(std::span<const Piece> pieces) {
  size_t count = 1;
  while (count < pieces.size() && !pieces[count - 1].is_sparse() && !pieces[count].is_sparse() &&
         pieces[count].offset == pieces[count - 1].offset + pieces[count - 1].payload.length)
    ++count;
  return count;
}

ChunkBuffer chunk_for(std::span<const Piece> pieces) {
  uint64_t all = 0, packed = 0;
  for (const Piece &p : pieces) {
    all += p.payload.length;
    packed = std::max(packed, p.sparse.packed);
  }
  const uint64_t n = std::min(write_chunk_bytes, all);
  return {std::make_unique_for_overwrite<std::byte[]>(n),
          std::make_unique_for_overwrite<uint32_t[]>(n / sector_bytes + 2),
          std::make_unique_for_overwrite<std::byte[]>(packed)};
}

Result<void> write_pieces(const os::File &data, const Journal &journal, std::span<const Piece> pieces,
                          const ChunkBuffer &buffer, StillOurs &ours) {
  for (size_t i = 0; i < pieces.size();) {
    ST_TRY(ours.check());
    const size_t together = chunk_of(pieces.subspan(i));
    if (together > 1)
      ST_TRY(write_together(data, journal, pieces.subspan(i, together), buffer));
    else
      ST_TRY(write_piece(data, journal, pieces[i], buffer, ours));
    i += std::max<size_t>(together, 1);
  }
  return {};
}

Result<void> keep_in_views(os::BytesUnderChange &changing, std::span<const Piece> pieces, const Control &control) {
  uint64_t kept = 0;  // since it was asked whether to go on
  const auto keep = [&](uint64_t begin, uint64_t end) -> Result<void> {
    while (begin < end) {
      const uint64_t until = std::min(end, round_down(begin, kept_at_once) + kept_at_once);
      ST_TRY(changing.keep(begin, until - begin));
      kept += until - begin;
      begin = until;
      if (begin == end && kept < kept_at_once) continue;
      kept = 0;
      ST_TRY(control.check(0, 0));  // which counts nothing
    }
    return {};
  };
  // What shares a page is kept together.
  for (size_t i = 0; i < pieces.size();) {
    const uint64_t begin = pieces[i].offset;
    uint64_t end = begin;
    do end = pieces[i].offset + pieces[i].payload.length;
    while (++i < pieces.size() && pieces[i].offset - end < page_bytes);
    ST_TRY(keep(begin, end));
  }
  return {};
}

Result<void> write_changes(const os::File &data, const os::File &journal, const RangeRecord &range, std::byte *packed,
                           std::byte *bytes) {
  ST_TRY(journal.read(packed, range.packed, range.payload));
  if (hash64(packed, range.packed) != range.payload_hash) return no_longer_staged(journal);
  ST_TRY(data.read(bytes, range.length, range.offset));
  if (!lay_changes({packed, static_cast<size_t>(range.packed)}, {bytes, static_cast<size_t>(range.length)}))
    return no_longer_staged(journal);
  return data.write(bytes, range.length, range.offset);
}

Result<void> copy_payload(const os::File &data, const os::File &journal, const RangeRecord &range, uint64_t begin,
                          uint64_t end, std::byte *buffer) {
  for (uint64_t at = begin; at < end;) {
    const uint64_t n = up_to_sector(at, write_chunk_bytes, end - at);
    ST_TRY(journal.read(buffer, n, range.payload + (at - range.offset)));
    ST_TRY(data.write(buffer, n, at));
    at += n;
  }
  return {};
}

}  // namespace st::write
