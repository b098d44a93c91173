#include "newfile/names.h"

#include <algorithm>
#include <charconv>

#include "base/hash.h"

namespace st::write {
namespace {

constexpr size_t longest_name = 255;  // of any filesystem
constexpr size_t digits = temporary_digits;

std::string hexadecimal(uint64_t n) {
  constexpr char hex[] = "0123456789abcdef";
  std::string out;
  for (int shift = 60; shift >= 0; shift -= 4) out += hex[n >> shift & 15];
  return out;
}

// At most so many bytes: the file's name, or what fits of it in whole characters, and the hash of all of it.
std::string fitted(const std::string &file, size_t most) {
  if (file.size() <= most) return file;
  size_t n = most - digits - 1;
  while (n > 0 && (static_cast<unsigned char>(file[n]) & 0xC0) == 0x80) --n;
  return file.substr(0, n) + "-" + hexadecimal(hash64(file.data(), file.size()));
}

}  // namespace

std::string journal_folder_name(const std::string &file) {
  return fitted(file, longest_name - folder_suffix.size()) + std::string(folder_suffix);
}

std::string old_list_name(const std::string &index) {
  constexpr std::string_view suffix = ".st-old";
  return fitted(index, longest_name - suffix.size()) + std::string(suffix);
}

std::string temporary_prefix(const std::string &file, std::string_view infix) {
  return "." + fitted(file, longest_name - 1 - infix.size() - digits) + std::string(infix);
}

bool is_temporary_of(std::string_view name, const std::string &file, std::string_view infix) {
  const std::string prefix = temporary_prefix(file, infix);
  if (!name.starts_with(prefix) || name.size() != prefix.size() + digits) return false;
  return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(prefix.size()), name.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string_view target_of_temporary(std::string_view name, std::string_view infix) {
  const size_t at = name.rfind(infix);
  if (at == std::string_view::npos || at < 2) return {};
  const std::string_view file = name.substr(1, at - 1);
  return is_temporary_of(name, std::string(file), infix) ? file : std::string_view();
}

namespace {

// `<stem><number><suffix>`, each with the dot that it begins with.
struct Numbered {
  std::string_view stem, suffix;
  uint64_t generation = 0;
};

Numbered take_apart(std::string_view shard) {
  const size_t dot = std::min(shard.rfind('.'), shard.size());
  Numbered name{shard.substr(0, dot), shard.substr(dot)};
  const size_t before = name.stem.rfind(".g");
  if (before == std::string_view::npos || before == 0) return name;
  const std::string_view number = name.stem.substr(before + 2);
  uint64_t generation = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), generation);
  const bool is_one = error == std::errc() && end == number.data() + number.size() && number.front() != '0' &&
                      number.size() <= longest_generation;
  if (is_one) name = {name.stem.substr(0, before), name.suffix, generation};
  return name;
}

}  // namespace

uint64_t generation_of(std::string_view shard) {
  return take_apart(shard).generation;
}

std::string with_generation(std::string_view shard, uint64_t generation) {
  const Numbered name = take_apart(shard);
  std::string out(name.stem);
  if (generation > 0) out += ".g" + std::to_string(generation);
  return out += name.suffix;
}

}  // namespace st::write
