#include "format/name_table.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"

namespace st {

uint32_t NameTable::hash_of(std::string_view name) const {
  return static_cast<uint32_t>(hash64(name.data(), name.size(), seed_));
}

// That of the name, or the free one where it would be. There is a free one.
size_t NameTable::slot_of(std::string_view name, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Slot &slot = slots_[i];
    if (slot.entry == 0 || (slot.hash == hash && name_of(entries_[slot.entry - 1]) == name)) return i;
  }
}

void NameTable::grow() {
  constexpr size_t least = 16;
  Array<Slot> more(std::max(least, slots_.size() * 2), Slot{0, 0});
  const size_t mask = more.size() - 1;
  for (const Slot &slot : slots_) {
    if (slot.entry == 0) continue;
    size_t i = slot.hash & mask;
    while (more[i].entry != 0) i = (i + 1) & mask;
    more[i] = slot;
  }
  slots_ = std::move(more);
}

std::optional<uint32_t> NameTable::find(std::string_view name) const {
  if (slots_.empty()) return std::nullopt;
  const Slot &slot = slots_[slot_of(name, hash_of(name))];
  if (slot.entry == 0 || entries_[slot.entry - 1].number == none) return std::nullopt;
  return entries_[slot.entry - 1].number;
}

std::optional<uint32_t> NameTable::set(std::string_view name, uint32_t number) {
  if (entries_.size() >= slots_.size() / 4 * 3) grow();
  const uint32_t hash = hash_of(name);
  Slot &slot = slots_[slot_of(name, hash)];
  if (slot.entry == 0) {
    const uint64_t begin = names_.size();
    names_ += name;
    entries_.push_back({begin, static_cast<uint32_t>(name.size()), none});
    slot = {hash, static_cast<uint32_t>(entries_.size())};
  }
  uint32_t &held = entries_[slot.entry - 1].number;
  const uint32_t before = std::exchange(held, number);
  size_ += before == none;
  return before == none ? std::nullopt : std::optional(before);
}

std::optional<uint32_t> NameTable::remove(std::string_view name) {
  if (slots_.empty()) return std::nullopt;
  const Slot &slot = slots_[slot_of(name, hash_of(name))];
  if (slot.entry == 0) return std::nullopt;
  const uint32_t before = std::exchange(entries_[slot.entry - 1].number, none);
  if (before == none) return std::nullopt;
  --size_;
  return before;
}

}  // namespace st
