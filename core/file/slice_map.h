// Which bytes of one tensor a transaction has staged by slices, and where in its payloads the new ones lie. What was
// staged later wins. Also what a commit journals of them. Pure: knows no file.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <vector>

#include "base/error.h"
#include "journal/journal_layout.h"
#include "newfile/units.h"

namespace st::store {

// Bytes of the tensor that follow each other in a payload, too.
struct Strip {
  uint64_t begin = 0, length = 0;  // in the tensor
  size_t payload = 0;              // number of the transaction's payload
  uint64_t skip = 0;               // bytes of it
  uint64_t end() const { return begin + length; }
};

// Short strips that are less than a page apart are journalled together, with the file's own bytes between them: the
// disk writes the page anyway, and a range of its own takes as long as some thousands of bytes. Long strips stay alone,
// where they lie.
inline constexpr uint64_t short_gap = 4096;
inline constexpr uint64_t long_strip = 2048;
inline constexpr uint64_t longest_gathered = write::write_chunk_bytes;

class SliceMap {
 public:
  // Over what was there.
  void put(Strip strip);
  uint64_t bytes() const;
  uint64_t bytes_gathered() const;  // with those between short strips
  // Ascending, as they lie in the tensor.
  template <class Take>
  void each(Take take) const {
    for (const auto &[begin, strip] : strips_) take(strip);
  }
  // What a commit takes together: a strip, or short ones with the bytes between them.
  struct Stretch {
    uint64_t begin, end;  // in the tensor
    std::map<uint64_t, Strip>::const_iterator first, behind;
    bool gathered() const { return std::next(first) != behind; }
  };
  // Calls take(stretch), a Result<void>, and ends with the first failure.
  template <class Take>
  Result<void> each_stretch(Take take) const {
    for (auto at = strips_.begin(); at != strips_.end();) {
      const Stretch stretch = stretch_from(at);
      ST_TRY(take(stretch));
      at = stretch.behind;
    }
    return {};
  }

 private:
  Stretch stretch_from(std::map<uint64_t, Strip>::const_iterator at) const;

  std::map<uint64_t, Strip> strips_;  // by begin; none overlap
};

// Ranges that ascend and do not overlap.
struct Covered {
  uint64_t begin, end;
};
// The same ranges, but those less than `gap` bytes apart as one; and still others, beginning with the nearest, until
// there are at most `most`.
std::vector<Covered> cover(const std::vector<Covered> &ranges, uint64_t gap, size_t most = SIZE_MAX);

}  // namespace st::store
