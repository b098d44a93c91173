#include "format/shard_index.h"

#include <simdjson.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <numeric>

#include "format/ignored_number.h"
#include "format/json_document.h"
#include "format/json_number.h"
#include "format/json_string.h"
#include "format/json_token.h"

namespace st {
namespace {

namespace od = simdjson::ondemand;

Failure broken(simdjson::error_code code) {
  if (code == simdjson::MEMALLOC) return fail(Status::nomem, "no memory to parse the index of shards");
  return fail(Status::shard_index, "the index of shards is not valid JSON (", simdjson::error_message(code),
              "); fetch it again");
}

Failure not_an_index(std::string_view why) {
  return fail(Status::shard_index, "the index of shards ", why,
              "; it must be {\"metadata\": {…}, \"weight_map\": {tensor: shard}}");
}

// A plain name in the index's own folder.
Result<void> check_shard_name(std::string_view shard, std::string_view tensor) {
  const bool plain = !shard.empty() && shard != "." && shard != ".." &&
                     shard.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
  if (plain) return {};
  return Failure(error(Status::shard_path, "the index of shards has tensor ", in_quotes(tensor), " in ",
                       in_quotes(shard), ", which is no name of a file in the index's own folder; do not use it")
                     .about_tensor(tensor));
}

// One that also readers can hold which have no more than 64 bits for it.
bool is_readable_number(std::string_view text) {
  if (!is_acceptable_number(text)) return false;
  simdjson::dom::parser parser;
  const PaddedJson padded(text);
  const auto code = parser.parse(padded.data(), padded.size(), false).error();
  if (code == simdjson::MEMALLOC) throw std::bad_alloc();
  return code == simdjson::SUCCESS;
}

// All of it is JSON, also what is not looked at below; that nesting is bounded is simdjson's own limit. A number may be
// larger than simdjson holds.
Result<void> check_json(const char *json, uint64_t size) {
  simdjson::dom::parser parser;
  simdjson::dom::element ignored;
  const auto parse = [&](const char *from) {
    return parser.parse(reinterpret_cast<const uint8_t *>(from), size, false).get(ignored);
  };
  const auto code = parse(json);
  if (!code) return {};
  if (code == simdjson::MEMALLOC) return broken(code);
  std::string copy = without_numbers({json, static_cast<size_t>(size)});
  copy.resize(size + simdjson::SIMDJSON_PADDING);
  if (parse(copy.data())) return broken(code);
  return {};
}

// Stock writes an index in order, and what is new comes last.
template <class T>
void sort_mostly_sorted(std::vector<T> &all) {
  const auto rest = std::is_sorted_until(all.begin(), all.end());
  std::sort(rest, all.end());
  std::inplace_merge(all.begin(), rest, all.end());
}

}  // namespace

bool is_index_name(std::string_view path) {
  constexpr std::string_view middle = ".safetensors.index.", end = ".json";
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const size_t at = name.rfind(middle);
  if (at == std::string_view::npos || !name.ends_with(end)) return false;
  const std::string_view variant = name.substr(at + middle.size() - 1);  // ".json" or ".fp16.json"
  return variant.size() >= end.size() && variant.find('.', 1) >= variant.size() - end.size();
}

// Collects what the JSON says. It was checked as a whole before, so here only the types are.
class ShardIndexParser {
 public:
  explicit ShardIndexParser(uint64_t seed) : index_(seed), numbers_(seed) {}

  Result<ShardIndex> parse(od::document &document);

 private:
  Result<void> weight_map(od::value value);
  Result<void> metadata(od::value value);
  static Result<std::string> raw(od::value &value);

  ShardIndex index_;
  NameTable numbers_;  // of the shards, as they came
};

Result<std::string> ShardIndexParser::raw(od::value &value) {
  od::json_type type;
  if (auto code = value.type().get(type)) return broken(code);
  std::string_view text;
  if (type == od::json_type::object) {
    od::object object;
    if (auto code = value.get_object().get(object)) return broken(code);
    if (auto code = object.raw_json().get(text)) return broken(code);
  } else if (type == od::json_type::array) {
    od::array array;
    if (auto code = value.get_array().get(array)) return broken(code);
    if (auto code = array.raw_json().get(text)) return broken(code);
  } else {
    text = value.raw_json_token();
  }
  return std::string(trimmed(text));
}

Result<void> ShardIndexParser::metadata(od::value value) {
  od::json_type type;
  if (auto code = value.type().get(type)) return broken(code);
  if (type == od::json_type::null) return {};
  od::object object;
  if (value.get_object().get(object)) return not_an_index("has \"metadata\" that is no object");
  index_.has_metadata_ = true;
  for (auto entry : object) {
    od::field field;
    if (auto code = std::move(entry).get(field)) return broken(code);
    std::string_view key;
    if (auto code = field.unescaped_key().get(key)) return broken(code);
    ShardIndex::Pair pair{std::string(key), {}, {}};
    if (auto code = field.value().type().get(type)) return broken(code);
    if (type == od::json_type::string) {
      std::string_view text;
      pair.json = trimmed(field.value().raw_json_token());
      if (auto code = field.value().get_string().get(text)) return broken(code);
      pair.text = text;
    } else {
      ST_TRY(auto json, raw(field.value()));
      pair.text = pair.json = std::move(json);
    }
    if (!index_.put(std::move(pair))) return not_an_index("has a metadata key twice");
  }
  return {};
}

Result<void> ShardIndexParser::weight_map(od::value value) {
  od::object object;
  if (value.get_object().get(object)) return not_an_index("has a \"weight_map\" that is no object");
  for (auto entry : object) {
    od::field field;
    if (auto code = std::move(entry).get(field)) return broken(code);
    std::string_view key, shard;
    if (auto code = field.unescaped_key().get(key)) return broken(code);
    if (field.value().get_string().get(shard)) return not_an_index("maps a tensor to what is no name of a shard");
    auto number = numbers_.find(shard);
    if (!number) {
      ST_TRY(check_shard_name(shard, key));
      number = static_cast<uint32_t>(numbers_.size());
      numbers_.set(shard, *number);
    }
    if (index_.by_name_.set(key, *number))
      return Failure(error(Status::shard_duplicate, "the index of shards names tensor ", in_quotes(key),
                           " twice; one of them would be hidden")
                         .about_tensor(key));
  }
  return {};
}

Result<ShardIndex> ShardIndexParser::parse(od::document &document) {
  od::object top;
  if (document.get_object().get(top)) return not_an_index("is no JSON object");
  bool has_map = false, has_metadata = false;
  for (auto entry : top) {
    od::field field;
    if (auto code = std::move(entry).get(field)) return broken(code);
    std::string_view key;
    if (auto code = field.unescaped_key().get(key)) return broken(code);
    if (key == "weight_map") {
      if (std::exchange(has_map, true)) return not_an_index("has two weight_maps");
      ST_TRY(weight_map(field.value()));
    } else if (key == "metadata") {
      if (std::exchange(has_metadata, true)) return not_an_index("has \"metadata\" twice");
      ST_TRY(metadata(field.value()));
    } else {
      const std::string name(key);
      ST_TRY(auto json, raw(field.value()));
      if (!index_.others_.emplace(name, std::move(json)).second) return not_an_index("has a field twice");
    }
  }
  if (!has_map) return not_an_index("has no \"weight_map\"");

  // Numbers by name, not as they came.
  std::vector<std::pair<std::string_view, uint32_t>> order;
  numbers_.each([&](std::string_view shard, uint32_t number) { order.emplace_back(shard, number); });
  std::sort(order.begin(), order.end());
  std::vector<uint32_t> renumbered(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) {
    renumbered[order[i].second] = i;
    index_.shards_.emplace_back(order[i].first);
  }
  index_.counts_.assign(order.size(), 0);
  index_.by_name_.renumber([&](uint32_t number) { return renumbered[number]; });
  index_.by_name_.each([&](std::string_view, uint32_t number) { ++index_.counts_[number]; });
  return std::move(index_);
}

Result<ShardIndex> ShardIndex::parse(const char *json, uint64_t size, uint64_t hash_seed) {
  ST_TRY(check_json(json, size));
  od::parser parser;
  JsonDocument document;
  if (auto code = document.parse(parser, json, size, size + simdjson::SIMDJSON_PADDING)) return broken(code);
  return ShardIndexParser(hash_seed).parse(document);
}

ShardIndex ShardIndex::of(std::vector<std::string> shards, uint64_t hash_seed) {
  ShardIndex index(hash_seed);
  std::sort(shards.begin(), shards.end());
  index.shards_ = std::move(shards);
  index.counts_.assign(index.shards_.size(), 0);
  return index;
}

std::optional<uint32_t> ShardIndex::shard_of(std::string_view name) const {
  return by_name_.find(name);
}

std::vector<std::vector<std::string_view>> ShardIndex::names_by_shard() const {
  std::vector<std::vector<std::string_view>> names(shards_.size());
  for (size_t i = 0; i < names.size(); ++i) names[i].reserve(counts_[i]);
  by_name_.each([&](std::string_view name, uint32_t number) { names[number].push_back(name); });
  return names;
}

std::optional<std::string_view> ShardIndex::metadata_find(std::string_view key) const {
  const auto found = numbers_.find(key);
  return found == numbers_.end() ? std::nullopt : std::optional<std::string_view>(metadata_[found->second].text);
}

bool ShardIndex::has_same_metadata(const ShardIndex &other) const {
  return has_metadata_ == other.has_metadata_ && spelled_metadata() == other.spelled_metadata();
}

std::optional<uint64_t> ShardIndex::total(std::string_view key) const {
  const auto text = metadata_find(key);
  return text ? whole_number(*text) : std::nullopt;
}

size_t ShardIndex::memory_bytes() const {
  return by_name_.memory_bytes();
}

void ShardIndex::add_shards(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  std::vector<std::string> all;
  std::set_union(shards_.begin(), shards_.end(), names.begin(), names.end(), std::back_inserter(all));
  all.erase(std::unique(all.begin(), all.end()), all.end());
  std::vector<uint32_t> renumbered;
  std::vector<uint64_t> counts(all.size());
  for (size_t i = 0, at = 0; i < shards_.size(); ++i, ++at) {
    while (all[at] != shards_[i]) ++at;
    renumbered.push_back(static_cast<uint32_t>(at));
    counts[at] = counts_[i];
  }
  by_name_.renumber([&](uint32_t number) { return renumbered[number]; });
  shards_ = std::move(all);
  counts_ = std::move(counts);
}

void ShardIndex::assign(std::string_view name, std::string_view shard) {
  const auto place = [&] { return std::lower_bound(shards_.begin(), shards_.end(), shard); };
  if (place() == shards_.end() || *place() != shard) add_shards({std::string(shard)});
  const auto number = static_cast<uint32_t>(place() - shards_.begin());
  if (const auto before = by_name_.set(name, number)) --counts_[*before];
  ++counts_[number];
}

void ShardIndex::remove(std::string_view name) {
  if (const auto before = by_name_.remove(name)) --counts_[*before];
}

bool ShardIndex::put(Pair pair) {
  has_metadata_ = true;
  const auto [found, is_new] = numbers_.try_emplace(pair.key, static_cast<uint32_t>(metadata_.size()));
  if (is_new)
    metadata_.push_back(std::move(pair));
  else
    metadata_[found->second] = std::move(pair);
  return is_new;
}

void ShardIndex::set_metadata(std::string_view key, std::optional<std::string_view> text) {
  const auto found = numbers_.find(key);
  if (text) {
    Pair pair{std::string(key), std::string(*text), {}};
    if (found != numbers_.end() && is_json_number(metadata_[found->second].json) && is_readable_number(*text))
      pair.json = *text;
    else
      append_ascii_json_string(pair.json, *text);
    put(std::move(pair));
  } else if (found != numbers_.end()) {  // the last one takes its place, so that no other moves
    const uint32_t place = found->second;
    numbers_.erase(found);
    if (place + 1 < metadata_.size()) {
      metadata_[place] = std::move(metadata_.back());
      numbers_.find(metadata_[place].key)->second = place;
    }
    metadata_.pop_back();
  }
}

void ShardIndex::set_total(std::string_view key, uint64_t n) {
  put({std::string(key), std::to_string(n), std::to_string(n)});
}

void ShardIndex::add_to_total(std::string_view key, int64_t n) {
  const auto now = total(key);
  if (!now || n == 0) return;
  const uint64_t by = n < 0 ? -static_cast<uint64_t>(n) : static_cast<uint64_t>(n);
  set_total(key, n < 0 ? *now - std::min(*now, by) : *now + std::min(UINT64_MAX - *now, by));
}

std::string ShardIndex::spelled_metadata() const {
  std::vector<const Pair *> pairs;
  for (const Pair &p : metadata_) pairs.push_back(&p);
  std::sort(pairs.begin(), pairs.end(), [](const Pair *a, const Pair *b) { return a->key < b->key; });
  std::string out;
  for (const Pair *p : pairs) {
    out += out.empty() ? "{\n    " : ",\n    ";
    append_ascii_json_string(out, p->key);
    append_text(out, ": ");
    out += p->json;
  }
  return out + (out.empty() ? "{}" : "\n  }");
}

void ShardIndex::append_map(std::string &out) const {
  std::vector<std::string> shards(shards_.size());
  for (size_t i = 0; i < shards.size(); ++i) append_ascii_json_string(shards[i], shards_[i]);
  std::vector<std::pair<std::string_view, uint32_t>> names;
  names.reserve(by_name_.size());
  by_name_.each([&](std::string_view name, uint32_t shard) { names.emplace_back(name, shard); });
  sort_mostly_sorted(names);
  std::string_view before = "{\n    ";
  for (const auto &[name, shard] : names) {
    out += std::exchange(before, ",\n    ");
    append_ascii_json_string(out, name);
    append_text(out, ": ");
    out += shards[shard];
  }
  out += names.empty() ? "{}" : "\n  }";
}

std::string ShardIndex::spell() const {
  std::map<std::string_view, std::string> fields(others_.begin(), others_.end());
  if (has_metadata_) fields["metadata"] = spelled_metadata();
  fields["weight_map"];  // the longest, which goes to its place at once
  std::string out;
  for (const auto &[key, json] : fields) {
    out += out.empty() ? "{\n  " : ",\n  ";
    append_ascii_json_string(out, key);
    append_text(out, ": ");
    if (key == "weight_map")
      append_map(out);
    else
      out += json;
  }
  out += "\n}\n";
  return out;
}

Result<std::string> ShardIndex::spell_readable() const {
  std::string out = spell();
  if (out.size() > max_index_bytes)
    return fail(Status::header_too_large, "the index of shards would have ", out.size(), " bytes, more than the ",
                max_index_bytes, " that are read");
  if (!simdjson::validate_utf8(out.data(), out.size()))
    return fail(Status::header_utf8, "a name or the metadata of the index of shards is not valid UTF-8");
  return out;
}

}  // namespace st
