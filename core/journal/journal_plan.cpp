#include "journal/journal_plan.h"

#include <algorithm>

namespace st::write {

void JournalPlan::reserve(uint64_t end) {
  if (!has_header_) written_ += header_bytes;
  has_header_ = true;
  if (end > reserved_) reserved_ = round_up(end, journal_step);
}

void JournalPlan::add(uint64_t n, uint64_t alignment) {
  const uint64_t at = round_up(end_, alignment);
  written_ += at - end_ + n;
  end_ = at + n;
}

void JournalPlan::append(uint64_t n) {
  reserve(end_of_payload_room(end_, n));
  add(n, payload_alignment(n));
}

void JournalPlan::note_old(uint64_t offset, uint64_t n) {
  add(table_bytes(offset, n), 8);
}

void JournalPlan::note_staged(uint64_t offset, uint64_t n) {
  reserve(end_ + journal_page + table_bytes(offset, n));
  add(table_bytes(offset, n), 8);
}

void JournalPlan::save_old(uint64_t offset, uint64_t n, uint64_t block) {
  const WholeBlocks whole(offset, n, block ? block : 1);
  if (block == 0 || !whole.any()) {
    add(0, 8);
    reserve(end_ + n);
    return add(n, 1);
  }
  end_ = place_of_shared(end_, offset, block);
  reserve(end_ + (whole.begin - offset));
  add(whole.begin - offset, 1);
  const uint64_t length = whole.end - whole.begin, tail = offset + n - whole.end;
  given_back_ += std::min(length, reserved_ - std::min(reserved_, end_));
  shared_ += length;
  end_ += length;
  if (end_ > reserved_) {
    given_back_ += end_ - reserved_;  // never set aside
    reserved_ = end_;
  }
  reserve(end_ + tail + journal_page);
  add(tail, 1);
}

void JournalPlan::seal(uint64_t manifest_bytes) {
  add(0, 8);
  reserve(end_ + manifest_bytes);
  add(manifest_bytes, 1);
}

Cost JournalPlan::cost() const {
  const uint64_t taken = reserved_ - allocated_;
  return {written_, shared_, 0, taken - std::min(taken, given_back_)};
}

}  // namespace st::write
