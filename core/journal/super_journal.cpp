#include "journal/super_journal.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/little_endian.h"
#include "journal/journal_layout.h"
#include "newfile/names.h"

namespace st::write {
namespace {

void put(std::vector<std::byte> &out, uint64_t number, size_t bytes) {
  std::byte le[8];
  store_u64le(le, number);
  out.insert(out.end(), le, le + bytes);
}

void put(std::vector<std::byte> &out, const SuperParticipant &e) {
  for (const std::string *s : {&e.file, &e.journal, &e.first, &e.second}) {
    put(out, s->size(), 2);
    const auto *bytes = reinterpret_cast<const std::byte *>(s->data());
    out.insert(out.end(), bytes, bytes + s->size());
  }
  for (const uint64_t n :
       {e.old.size, e.old.hash, e.first_form.size, e.first_form.hash, e.second_form.size, e.second_form.hash})
    put(out, n, 8);
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}
  bool at_end() const { return left_.empty(); }

  bool take(uint64_t *number, size_t bytes) {
    if (left_.size() < bytes) return false;
    std::byte le[8] = {};
    std::memcpy(le, left_.data(), bytes);
    *number = load_u64le(le);
    left_ = left_.subspan(bytes);
    return true;
  }
  bool take(std::string *s) {
    uint64_t n = 0;
    if (!take(&n, 2) || left_.size() < n) return false;
    s->assign(reinterpret_cast<const char *>(left_.data()), n);
    left_ = left_.subspan(n);
    return true;
  }
  bool take(SuperParticipant *e) {
    for (std::string *s : {&e->file, &e->journal, &e->first, &e->second})
      if (!take(s)) return false;
    for (uint64_t *n : {&e->old.size, &e->old.hash, &e->first_form.size, &e->first_form.hash, &e->second_form.size,
                        &e->second_form.hash})
      if (!take(n, 8)) return false;
    return is_sound(*e);
  }

 private:
  static bool is_sound(const SuperParticipant &e) {
    if (!is_plain_name(e.file) || (!e.journal.empty() && !is_plain_name(e.journal))) return false;
    for (const std::string *temporary : {&e.first, &e.second})
      if (!temporary->empty() && (!is_plain_name(*temporary) || !is_temporary_of(*temporary, e.file, undecided_infix)))
        return false;
    return true;
  }

  std::span<const std::byte> left_;
};

// Each file has one part in it: one that came twice would be waited for for ever.
bool names_one_twice(const SuperManifest &list) {
  std::vector<std::string_view> names;
  auto add = [&](const SuperParticipant &e) {
    for (const std::string *s : {&e.file, &e.first, &e.second})
      if (!s->empty()) names.push_back(*s);
  };
  add(list.index);
  for (const SuperParticipant &part : list.parts) add(part);
  std::sort(names.begin(), names.end());
  return std::adjacent_find(names.begin(), names.end()) != names.end();
}

}  // namespace

std::vector<std::byte> encode(const SuperManifest &list) {
  std::vector<std::byte> out;
  put(out, list.index);
  for (const SuperParticipant &part : list.parts) put(out, part);
  return out;
}

std::optional<SuperManifest> decode_super(std::span<const std::byte> manifest) {
  SuperManifest list;
  Reader reader(manifest);
  if (!reader.take(&list.index)) return std::nullopt;
  while (!reader.at_end()) {
    SuperParticipant part;
    if (!reader.take(&part) || part.journal.empty()) return std::nullopt;
    if (!list.parts.empty() && part.file <= list.parts.back().file) return std::nullopt;  // they ascend
    list.parts.push_back(std::move(part));
  }
  if (names_one_twice(list)) return std::nullopt;
  return list;
}

std::string super_name(uint64_t transaction) {
  constexpr char hex[] = "0123456789abcdef";
  std::string name;
  for (int shift = 60; shift >= 0; shift -= 4) name += hex[transaction >> shift & 15];
  return name;
}

namespace {

std::optional<uint64_t> number_of(std::string_view digits) {
  uint64_t n = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), n, 16);
  if (error != std::errc() || end != digits.data() + digits.size() || digits != super_name(n)) return std::nullopt;
  return n;
}

}  // namespace

std::optional<uint64_t> transaction_of(std::string_view name) {
  const size_t dot = name.find('.');
  if (dot != std::string_view::npos && !number_of(name.substr(dot + 1))) return std::nullopt;
  return number_of(name.substr(0, dot));
}

std::string name_of_claimed(std::string_view name, const std::string &random) {
  const auto transaction = transaction_of(name);
  return transaction ? super_name(*transaction) + "." + random : random;
}

}  // namespace st::write
