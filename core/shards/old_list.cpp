#include "shards/old_list.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "base/error.h"
#include "base/hash.h"

namespace st::write {
namespace {

constexpr std::string_view first_line = "st-old 1\n", last_word = "end ";

// As long as any other, so that it is known beforehand how long a list will be.
std::string hash_line(std::string_view before) {
  std::string digits(16, '0');
  char out[16];
  const char *end = std::to_chars(std::begin(out), std::end(out), hash64(before.data(), before.size()), 16).ptr;
  digits.replace(digits.size() - static_cast<size_t>(end - out), std::string::npos, out,
                 static_cast<size_t>(end - out));
  return text(last_word, digits, "\n");
}

// Up to the next `end`, which is taken off too.
std::optional<std::string_view> take_until(std::string_view *left, char end) {
  const size_t at = left->find(end);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view taken = left->substr(0, at);
  left->remove_prefix(at + 1);
  return taken;
}

bool take(std::string_view *left, uint64_t *number) {
  const auto digits = take_until(left, ' ');
  if (!digits) return false;
  const auto [end, error] = std::from_chars(digits->data(), digits->data() + digits->size(), *number);
  return error == std::errc() && end == digits->data() + digits->size();
}

}  // namespace

bool may_be_listed(std::string_view name) {
  return name.ends_with(".safetensors") && name.size() <= 255 &&
         name.find_first_of(std::string_view("/\0\n", 3)) == std::string_view::npos;
}

std::string spell(const std::vector<OldShard> &list) {
  std::string out(first_line);
  for (const OldShard &old : list)
    out += text(old.until, " ", old.inode, " ", old.size, " ", old.changed_ns, " ", old.name, "\n");
  return out += hash_line(out);
}

std::optional<std::vector<OldShard>> parse_old_list(std::string_view text) {
  if (!text.starts_with(first_line)) return std::nullopt;
  const size_t last = text.rfind('\n', text.size() - 2) + 1;  // the first line ends in one
  if (text.substr(last) != hash_line(text.substr(0, last))) return std::nullopt;
  std::string_view left = text.substr(0, last).substr(first_line.size());
  std::vector<OldShard> list;
  std::set<std::string_view> names;
  while (!left.empty()) {
    OldShard old;
    if (!take(&left, &old.until) || !take(&left, &old.inode) || !take(&left, &old.size) ||
        !take(&left, &old.changed_ns))
      return std::nullopt;
    const auto name = take_until(&left, '\n');
    if (!name || !may_be_listed(*name) || !names.insert(*name).second) return std::nullopt;
    old.name = *name;
    list.push_back(std::move(old));
  }
  return list;
}

}  // namespace st::write
