// What makes a safetensors file a delta: pairs of its metadata whose keys begin
// with "st.delta.". They say which base it was made for, and what it changes there
// besides replacing and adding the tensors it holds. Pure: strings in, values out.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "format/index.h"

namespace st {

// So many first bytes of a tensor have a hash of their own, by which a wrong
// base is told without reading much.
inline constexpr uint64_t delta_head_bytes = 4096;

// The bytes that a tensor of the base had.
struct OldBytes {
  Hash128 all;
  uint64_t head = 0;  // hash64 of the first delta_head_bytes, or of all if fewer
  bool operator==(const OldBytes &) const = default;
};

struct DeltaTensor {
  Hash128 bytes;                // those that the tensor is to have
  std::optional<OldBytes> old;  // none: the base has no tensor of that name
  std::optional<Hash128> steps =
      {};  // of what the delta holds, if that is the steps from the old bytes to the new ones
};

struct DeltaNotes {
  Hash128 base, result;              // see identity_of
  std::vector<DeltaTensor> tensors;  // one for each of the file, in its order
  std::vector<std::pair<std::string, OldBytes>> deleted;
  std::vector<std::pair<std::string, std::string>> set;  // metadata
  std::vector<std::string> removed;                      // metadata
  std::vector<std::string> order;  // all names of the result; empty: the order that apply() has of itself

  // Nothing but the bytes of tensors is another.
  bool changes_bytes_only() const;
};

// Status delta.
Result<DeltaNotes> parse_delta(const Index &index);

// The metadata of a delta that holds tensors of these names.
std::vector<std::pair<std::string, std::string>> spell_delta(const DeltaNotes &notes,
                                                             const std::vector<std::string_view> &names);

std::string spell_hash(const Hash128 &hash);  // 32 hexadecimal digits

}  // namespace st
