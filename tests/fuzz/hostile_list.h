// Any text as the list of old shards, `<index>.st-old`, beside a honest checkpoint.
#pragma once

#include <string>

namespace st::fuzz {

inline constexpr const char *old_list_begins = "st-old ";

// What is accepted says the same after being spelled anew. Recovery, and a commit under new names, remove only plain
// shards that the list names as they are and that the index does not; all that the index names stays. So with the hash
// as it is and with the one that the text should have. An `@` in it stands for inode, size and time of a shard that
// the index does not name.
void check_old_list(std::string list);

}  // namespace st::fuzz
