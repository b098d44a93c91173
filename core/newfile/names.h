// The names of what libst puts beside a file: its journal folder, new files that are to take its place, and of an index
// the list of old shards. Each tells by its name whose it is, exactly: where a file's name is too long for that, the
// hash of all of it stands for its end. And the names of shards that take no other's:
// `model-00001-of-00004.g7.safetensors`, with a number before the suffix.
#pragma once

#include <string>
#include <string_view>

namespace st::write {

inline constexpr std::string_view folder_suffix = ".st-journal";
inline constexpr std::string_view temporary_infix = ".st-tmp-", undecided_infix = ".st-new-";

// `<file>.st-journal`.
std::string journal_folder_name(const std::string &file);

// `<index>.st-old`.
std::string old_list_name(const std::string &index);

// `.<file>.st-tmp-` and `.<file>.st-new-`: so many digits follow, and as many are the name of a journal.
inline constexpr size_t temporary_digits = 16;
std::string temporary_prefix(const std::string &file, std::string_view infix);
// These digits come first, in turn: a temporary that has them is found by a look at its name. A reshard keeps 0 for its
// shards.
inline constexpr std::string_view first_digits[] = {"0000000000000001", "0000000000000002"};
// Is it that, and the digits, and no more?
bool is_temporary_of(std::string_view name, const std::string &file, std::string_view infix);
// The file that such a name is a temporary of, where that is told by the name alone; else empty.
std::string_view target_of_temporary(std::string_view name, std::string_view infix);

// The number in a shard's name; 0: none. It is at most longest_generation digits long.
inline constexpr size_t longest_generation = 15;
// A file with this one, or a larger one, is not counted when the next is chosen.
inline constexpr uint64_t most_generation = 100'000'000'000'000;
uint64_t generation_of(std::string_view shard);
// The name with another number, or with 0 without one: so it is the same for all that were made one of the other.
std::string with_generation(std::string_view shard, uint64_t generation);

}  // namespace st::write
