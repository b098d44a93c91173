// The names of what libst puts beside a file: its journal folder, and new files that are to take its place. Each tells
// by its name whose it is, exactly: where a file's name is too long for that, the hash of all of it stands for its end.
#pragma once

#include <string>
#include <string_view>

namespace st::write {

inline constexpr std::string_view folder_suffix = ".st-journal";
inline constexpr std::string_view temporary_infix = ".st-tmp-", undecided_infix = ".st-new-";

// `<file>.st-journal`.
std::string journal_folder_name(const std::string &file);

// `.<file>.st-tmp-` and `.<file>.st-new-`: so many digits follow, and as many are the name of a journal.
inline constexpr size_t temporary_digits = 16;
std::string temporary_prefix(const std::string &file, std::string_view infix);
// Is it that, and the digits, and no more?
bool is_temporary_of(std::string_view name, const std::string &file, std::string_view infix);

}  // namespace st::write
