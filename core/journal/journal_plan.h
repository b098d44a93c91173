// How long a journal becomes, and what is written to it: the steps of Journal, but for the writing. Both go by the
// functions below, which say where a thing goes. Pure: no I/O.
#pragma once

#include "base/round.h"
#include "journal/journal_layout.h"
#include "newfile/cost.h"

namespace st::write {

inline constexpr uint64_t journal_page = 4096;
inline constexpr uint64_t journal_step = uint64_t{64} << 10;    // room is set aside in these
inline constexpr uint64_t large_payload = uint64_t{256} << 10;  // from here on written at once, on a page

constexpr uint64_t payload_alignment(uint64_t n) {
  return n >= large_payload ? journal_page : 8;
}
// How far room is set aside for a payload of n bytes behind `end`, with what will be noted of it.
inline uint64_t end_of_payload_room(uint64_t end, uint64_t n) {
  return end + journal_page + n + sectors_of(0, n + sector_bytes) * sizeof(uint32_t) + range_record_bytes;
}
inline uint64_t table_bytes(uint64_t offset, uint64_t n) {
  return sectors_of(offset, n) * sizeof(uint32_t);
}
// Blocks that are shared keep their place in a block.
constexpr uint64_t place_of_shared(uint64_t end, uint64_t offset, uint64_t block) {
  return round_up(end, block) + offset % block;
}

// The blocks that lie whole in a range, from begin to end.
struct WholeBlocks {
  uint64_t begin, end;
  WholeBlocks(uint64_t offset, uint64_t length, uint64_t block)
      : begin(round_up(offset, block)), end(round_down(offset + length, block)) {}
  bool any() const { return begin < end; }
};

class JournalPlan {
 public:
  JournalPlan() = default;  // of a new one
  // For a journal that is there: where it ends, how much is yet to be written, and how much is set aside.
  JournalPlan(uint64_t end, uint64_t unwritten, uint64_t allocated, bool has_header)
      : has_header_(has_header), end_(end), allocated_(allocated), reserved_(allocated), written_(unwritten) {}

  void append(uint64_t n);
  void note_old(uint64_t offset, uint64_t n);                  // of a payload that is appended
  void note_staged(uint64_t offset, uint64_t n);               // of what is to be saved
  void save_old(uint64_t offset, uint64_t n, uint64_t block);  // as Journal::save_old
  void seal(uint64_t manifest_bytes);
  void write_record() { written_ += header_bytes; }
  void empty() { written_ += sector_bytes; }
  Cost cost() const;

 private:
  void reserve(uint64_t end);
  void add(uint64_t n, uint64_t alignment);

  bool has_header_ = false;
  uint64_t end_ = header_bytes, allocated_ = 0, reserved_ = 0;
  uint64_t written_ = 0, shared_ = 0;
  uint64_t given_back_ = 0;  // of what is reserved, where blocks come to be shared instead
};

}  // namespace st::write
