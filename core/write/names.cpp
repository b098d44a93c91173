#include "write/names.h"

#include <algorithm>

#include "hash.h"

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

std::string temporary_prefix(const std::string &file, std::string_view infix) {
  return "." + fitted(file, longest_name - 1 - infix.size() - digits) + std::string(infix);
}

bool is_temporary_of(std::string_view name, const std::string &file, std::string_view infix) {
  const std::string prefix = temporary_prefix(file, infix);
  if (!name.starts_with(prefix) || name.size() != prefix.size() + digits) return false;
  return std::all_of(name.begin() + static_cast<std::ptrdiff_t>(prefix.size()), name.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace st::write
