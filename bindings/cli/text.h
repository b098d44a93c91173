// How stctl writes names, sizes and shapes for people. Names are bytes that a
// stranger chose: nothing in them may move a terminal's cursor or hide.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stctl {

inline constexpr uint32_t bad_utf8 = UINT32_MAX;

// Takes one code point off the front of `s` (not empty); one byte, and bad_utf8, where
// there is none.
uint32_t take_code_point(std::string_view &s);

// With backslash, control characters and invisible or direction-changing ones
// as \\ \n \r \t \xHH \u{HEX}. Different names look different.
std::string escape(std::string_view name);

// The same within a sentence: in quotes where it is empty, or could be taken for several words or for quoted.
std::string escape_word(std::string_view name);

// A sentence of libst's, whose names are escaped already: what is not escaped in it is.
std::string harmless(std::string_view sentence);

// The reverse; nothing if `text` is not what escape() could write.
std::optional<std::string> unescape(std::string_view text);

// Takes one escape off the front of `text`; false, and nothing taken, if there is none that escape() could write.
bool take_escape(std::string_view &text, std::string &out);

// A name that was given: as escape() prints it, or else literally.
std::string plain_name(const std::string &name);

// The scheme of a URL, in small letters; nothing where the path is no URL.
std::string scheme_of(const std::string &path);

// A path as it is told: a URL without its query, and without a user's name, which may be secrets.
std::string shown(const std::string &path);

// As escape(), but cut to `max` characters and "…".
std::string escape_short(std::string_view text, size_t max);

// Columns on a terminal: two for wide characters, none for combining ones.
size_t width(std::string_view utf8);

std::string human_size(uint64_t bytes);                      // "4.00 MiB"
std::string grouped(uint64_t n);                             // "13,476,831,232"
std::string counted(uint64_t n, const char *thing);          // "1 tensor", "2 tensors"
std::string shape_text(const uint64_t *shape, size_t rank);  // "[2, 3]"

// Can a word that is no tensor's name be meant as a pattern? A backslash alone makes none.
bool is_pattern(std::string_view word);

// Does the shell pattern match all of `name`? * ? [abc] [a-z] [!abc], escapes as escape() writes them, and \c for any
// other c itself. Unlike fnmatch(3): takes names with NUL, knows UTF-8 in every locale.
bool glob_matches(std::string_view pattern, std::string_view name);

// The same; what each * matched, the first ones as little as possible. Nothing if it does not match.
std::optional<std::vector<std::string>> glob_stars(std::string_view pattern, std::string_view name);

}  // namespace stctl
