// What `<index>.st-old` says: the shards that an index named before a commit gave their tensors to other shards.
// It also says until when readers of the older index still find them. Pure: no I/O.
//
// Text, a line each: `st-old 1`; then of each shard `<until> <inode> <size> <changed> <name>`, the time in seconds
// since 1970 and the file's own in nanoseconds; then `end <hash of all before it, 16 hexadecimal digits>`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace st::write {

struct OldShard {
  std::string name;  // in the index's folder; of an entry that may be a link
  // What stood under the name: whatever differs now is something else.
  uint64_t inode = 0, size = 0, changed_ns = 0;
  uint64_t until = 0;
  bool operator==(const OldShard &) const = default;
};

// A list of 10,000 shards with the longest names.
inline constexpr uint64_t longest_old_list = uint64_t{4} << 20;
// Can the list have it? Nothing but shards is removed for it.
bool may_be_listed(std::string_view name);
std::string spell(const std::vector<OldShard> &list);
// Nothing if it is not one, or names what is no plain name, or a file twice.
std::optional<std::vector<OldShard>> parse_old_list(std::string_view text);

}  // namespace st::write
