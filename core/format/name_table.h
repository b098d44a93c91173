// Names and a number of each, in little memory: one text for all names, and two arrays. A copy copies these three, so
// that of 10^6 names takes milliseconds. By a seeded hash, as names are chosen by the author of a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/huge_memory.h"

namespace st {

class NameTable {
 public:
  explicit NameTable(uint64_t seed) : seed_(seed) {}
  size_t size() const { return size_; }
  std::optional<uint32_t> find(std::string_view name) const;
  // What the name had before. Where memory runs out nothing has changed.
  std::optional<uint32_t> set(std::string_view name, uint32_t number);
  std::optional<uint32_t> remove(std::string_view name);
  // Each that is there, in the order in which they came; names stay where they are until the next set().
  template <class Visit>
  void each(Visit visit) const {
    for (const Entry &e : entries_)
      if (e.number != none) visit(name_of(e), e.number);
  }
  // Each number becomes number_of(it).
  template <class NumberOf>
  void renumber(NumberOf number_of) {
    for (Entry &e : entries_)
      if (e.number != none) e.number = number_of(e.number);
  }
  size_t memory_bytes() const {
    return names_.capacity() + entries_.capacity() * sizeof(Entry) + slots_.capacity() * sizeof(Slot);
  }

 private:
  static constexpr uint32_t none = UINT32_MAX;  // of a name that was removed: it keeps its place
  struct Entry {
    uint64_t begin;  // in names_
    uint32_t length, number;
  };
  // For an open-addressed table: the hash's low half, and the entry's number and one more; 0: free.
  struct Slot {
    uint32_t hash, entry;
  };
  template <class T>
  using Array = std::vector<T, HugeAllocator<T>>;

  std::string_view name_of(const Entry &e) const { return std::string_view(names_).substr(e.begin, e.length); }
  uint32_t hash_of(std::string_view name) const;
  size_t slot_of(std::string_view name, uint32_t hash) const;
  void grow();

  uint64_t seed_;
  size_t size_ = 0;
  std::string names_;
  Array<Entry> entries_;
  Array<Slot> slots_;  // none, or a power of two
};

}  // namespace st
