#include "format/delta.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <set>

#include "format/json_document.h"
#include "format/json_string.h"

namespace st {
namespace {

namespace od = simdjson::ondemand;

constexpr std::string_view version_key = "st.delta.version", base_key = "st.delta.base", result_key = "st.delta.result",
                           hashes_key = "st.delta.hashes", deleted_key = "st.delta.deleted", set_key = "st.delta.set",
                           removed_key = "st.delta.removed", order_key = "st.delta.order";
constexpr std::string_view whole_tensors = "1", some_steps = "2";  // versions

Failure bad(std::string_view key, std::string_view why) {
  return fail(Status::delta, "the delta's metadata ", in_quotes(key), " ", why, "; make the delta anew");
}

std::string hex(uint64_t n) {
  std::string out(16, '0');
  for (size_t i = 16; i-- > 0; n >>= 4) out[i] = "0123456789abcdef"[n & 15];
  return out;
}

std::optional<uint64_t> parse_hex(std::string_view s) {
  uint64_t n = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), n, 16);
  if (s.size() != 16 || error != std::errc() || end != s.data() + s.size()) return std::nullopt;
  return n;
}

std::optional<Hash128> parse_hash(std::string_view s) {
  if (s.size() != 32) return std::nullopt;
  const auto high = parse_hex(s.substr(0, 16)), low = parse_hex(s.substr(16));
  if (!high || !low) return std::nullopt;
  return Hash128{*high, *low};
}

// One value of the metadata that is JSON: an array or an object, walked to its end.
class JsonValue {
 public:
  JsonValue(const Index &index, std::string_view key) : key_(key) {
    if (const auto found = index.metadata_find(key)) text_.emplace(*found);
  }
  bool is_there() const { return text_.has_value(); }

  // Each string of an array.
  template <class Take>
  Result<void> each_string(Take take) {
    return walk([&](od::document &document) -> simdjson::error_code {
      od::array array;
      if (auto code = document.get_array().get(array)) return code;
      for (auto element : array) {
        std::string_view s;
        if (auto code = element.get_string().get(s)) return code;
        take(s);
      }
      return simdjson::SUCCESS;
    });
  }
  // Each member of an object; `take` answers simdjson's error of the value.
  template <class Take>
  Result<void> each_member(Take take) {
    return walk([&](od::document &document) -> simdjson::error_code {
      od::object object;
      if (auto code = document.get_object().get(object)) return code;
      return members(object, take);
    });
  }
  template <class Take>
  static simdjson::error_code members(od::object &object, Take take) {
    for (auto entry : object) {
      od::field field;
      if (auto code = std::move(entry).get(field)) return code;
      std::string_view key;
      if (auto code = field.unescaped_key().get(key)) return code;
      if (auto code = take(std::string(key), field.value())) return code;
    }
    return simdjson::SUCCESS;
  }

 private:
  template <class Walk>
  Result<void> walk(Walk walk) {
    if (!text_) return {};
    od::parser parser;
    JsonDocument document;
    auto code = document.parse(parser, text_->data(), text_->size(), text_->capacity());
    if (!code) code = walk(document);
    if (code == simdjson::MEMALLOC) return fail(Status::nomem, "no memory to parse the metadata of a delta");
    if (code) return bad(key_, text("is not the JSON that it should be (", simdjson::error_message(code), ")"));
    if (document.current_location().error() != simdjson::OUT_OF_BOUNDS)
      return bad(key_, "is followed by something after its JSON");
    return {};
  }

  const std::string_view key_;
  std::optional<PaddedJson> text_;
};

struct Hashes {
  std::optional<Hash128> fresh, old, steps;
  std::optional<uint64_t> head;
  bool all_are_good = true;
};

Result<std::map<std::string, Hashes>> parse_hashes(const Index &index) {
  std::map<std::string, Hashes> all;
  bool twice = false;
  const auto take = [&](std::string name, od::value value) -> simdjson::error_code {
    const auto [place, fresh] = all.try_emplace(std::move(name));
    twice |= !fresh;
    Hashes &h = place->second;
    od::object object;
    if (auto code = value.get_object().get(object)) return code;
    return JsonValue::members(object, [&](const std::string &which, od::value spelled) -> simdjson::error_code {
      std::string_view s;
      if (auto code = spelled.get_string().get(s)) return code;
      if (which == "new") h.all_are_good &= (h.fresh = parse_hash(s)).has_value();
      if (which == "old") h.all_are_good &= (h.old = parse_hash(s)).has_value();
      if (which == "head") h.all_are_good &= (h.head = parse_hex(s)).has_value();
      if (which == "steps") h.all_are_good &= (h.steps = parse_hash(s)).has_value();
      return simdjson::SUCCESS;
    });
  };
  ST_TRY(JsonValue(index, hashes_key).each_member(take));
  if (twice) return bad(hashes_key, "has a name twice");
  for (const auto &[name, h] : all)
    if (!h.all_are_good || h.old.has_value() != h.head.has_value())
      return bad(hashes_key, text("has no hashes that can be read for ", st::in_quotes(name)));
  return all;
}

Result<Hash128> parse_identity(const Index &index, std::string_view key) {
  const auto spelled = index.metadata_find(key);
  const auto hash = spelled ? parse_hash(*spelled) : std::nullopt;
  if (!hash) return bad(key, "is missing, or is not 32 hexadecimal digits");
  return *hash;
}

template <class Pairs, class Spell>
std::string spell_object(const Pairs &pairs, Spell spell) {
  std::string out = "{";
  for (const auto &pair : pairs) {
    if (out.size() > 1) out += ',';
    append_json_string(out, pair.first);
    out += ':';
    spell(out, pair.second);
  }
  return out + "}";
}

std::string spell_array(const std::vector<std::string> &strings) {
  std::string out = "[";
  for (const std::string &s : strings) {
    if (out.size() > 1) out += ',';
    append_json_string(out, s);
  }
  return out + "]";
}

// What steps are held as.
bool is_bytes(const TensorView &t) {
  return t.dtype == Dtype::U8 && t.shape.size() == 1;
}

std::string spell_old(const OldBytes &old) {
  return text("\"old\":\"", spell_hash(old.all), "\",\"head\":\"", hex(old.head), "\"");
}

}  // namespace

std::string spell_hash(const Hash128 &hash) {
  return hex(hash.high) + hex(hash.low);
}

bool DeltaNotes::changes_bytes_only() const {
  for (const DeltaTensor &t : tensors)
    if (!t.old) return false;
  return deleted.empty() && set.empty() && removed.empty() && order.empty();
}

Result<DeltaNotes> parse_delta(const Index &index) {
  const auto found = index.metadata_find(version_key);
  if (!found)
    return fail(Status::delta, "the file is no delta: its metadata has no ", in_quotes(version_key),
                "; make one with stctl diff or st_delta_create");
  if (*found != whole_tensors && *found != some_steps)
    return fail(Status::delta, "the delta is of version ", in_quotes(*found), ", and this library knows versions ",
                whole_tensors, " and ", some_steps, "; use a newer library");
  DeltaNotes notes;
  ST_TRY(notes.base, parse_identity(index, base_key));
  ST_TRY(notes.result, parse_identity(index, result_key));

  ST_TRY(auto hashes, parse_hashes(index));
  notes.tensors.reserve(index.size());
  for (size_t i = 0; i < index.size(); ++i) {
    const auto h = hashes.find(std::string(index.at(i).name));
    if (h == hashes.end() || !h->second.fresh)
      return bad(hashes_key, text("has no hash for tensor ", st::in_quotes(index.at(i).name)));
    DeltaTensor t{*h->second.fresh, {}};
    if (h->second.old) t.old = OldBytes{*h->second.old, *h->second.head};
    if (*found == some_steps) t.steps = h->second.steps;
    if (t.steps && !(t.old && is_bytes(index.at(i))))
      return bad(hashes_key, text("has steps for tensor ", st::in_quotes(index.at(i).name),
                                  ", which replaces none, or is no list of bytes"));
    notes.tensors.push_back(t);
  }

  std::vector<std::string> deleted;
  ST_TRY(JsonValue(index, deleted_key).each_string([&](std::string_view s) { deleted.emplace_back(s); }));
  std::set<std::string_view> seen;
  for (std::string &name : deleted) {
    if (index.find(name)) return bad(deleted_key, text("has ", st::in_quotes(name), ", which the delta also holds"));
    if (!seen.insert(name).second) return bad(deleted_key, text("has ", st::in_quotes(name), " twice"));
    const auto h = hashes.find(name);
    if (h == hashes.end() || !h->second.old) return bad(hashes_key, text("has no old hash for ", st::in_quotes(name)));
    notes.deleted.emplace_back(name, OldBytes{*h->second.old, *h->second.head});
  }
  const auto set = [&](std::string key, od::value value) -> simdjson::error_code {
    std::string_view s;
    if (auto code = value.get_string().get(s)) return code;
    notes.set.emplace_back(std::move(key), s);
    return simdjson::SUCCESS;
  };
  ST_TRY(JsonValue(index, set_key).each_member(set));
  ST_TRY(JsonValue(index, removed_key).each_string([&](std::string_view s) { notes.removed.emplace_back(s); }));
  ST_TRY(JsonValue(index, order_key).each_string([&](std::string_view s) { notes.order.emplace_back(s); }));
  return notes;
}

std::vector<std::pair<std::string, std::string>> spell_delta(const DeltaNotes &notes,
                                                             const std::vector<std::string_view> &names) {
  const bool has_steps = std::any_of(notes.tensors.begin(), notes.tensors.end(), [](auto &t) { return t.steps; });
  const std::string_view version = has_steps ? some_steps : whole_tensors;
  std::vector<std::pair<std::string, std::string>> out{{std::string(version_key), std::string(version)},
                                                       {std::string(base_key), spell_hash(notes.base)},
                                                       {std::string(result_key), spell_hash(notes.result)}};
  std::vector<std::pair<std::string_view, std::string>> hashes;
  for (size_t i = 0; i < names.size(); ++i) {
    const DeltaTensor &t = notes.tensors[i];
    std::string spelled = text("{\"new\":\"", spell_hash(t.bytes), "\"");
    if (t.old) spelled += "," + spell_old(*t.old);
    if (t.steps) spelled += text(",\"steps\":\"", spell_hash(*t.steps), "\"");
    hashes.emplace_back(names[i], spelled + "}");
  }
  std::vector<std::string> deleted;
  for (const auto &[name, old] : notes.deleted) {
    deleted.push_back(name);
    hashes.emplace_back(name, "{" + spell_old(old) + "}");
  }
  out.emplace_back(hashes_key,
                   spell_object(hashes, [](std::string &to, const std::string &spelled) { to += spelled; }));
  if (!deleted.empty()) out.emplace_back(deleted_key, spell_array(deleted));
  if (!notes.set.empty()) out.emplace_back(set_key, spell_object(notes.set, append_json_string));
  if (!notes.removed.empty()) out.emplace_back(removed_key, spell_array(notes.removed));
  if (!notes.order.empty()) out.emplace_back(order_key, spell_array(notes.order));
  return out;
}

}  // namespace st
