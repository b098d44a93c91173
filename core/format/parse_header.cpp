// Header parsing: the plain form by scan_header, which is several times faster
// on 10^5 tensors, everything else on simdjson On Demand. The latter follows what serde makes of the
// reference's types, down to its odd corners: a tensor may be an array
// [dtype, shape, data_offsets], a dtype may be {"F32": null}, unknown fields
// are ignored but must be valid JSON, nesting ends at 127.
#include <simdjson.h>

#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"
#include "format/header.h"
#include "format/ignored_number.h"
#include "format/json_document.h"
#include "format/json_token.h"
#include "format/scan_header.h"

namespace st {
namespace {

namespace od = simdjson::ondemand;

constexpr int max_depth = 127;

// What simdjson calls an error, in our terms.
Failure json_failure(simdjson::error_code code, std::string_view where) {
  switch (code) {
    case simdjson::UTF8_ERROR:
      return fail(Status::header_utf8,
                  "the header is not valid UTF-8; the file is damaged or no safetensors file; fetch it again");
    case simdjson::MEMALLOC: return fail(Status::nomem, "no memory to parse the header");
    default:
      return fail(Status::header_json, "the header is not valid JSON", where.empty() ? "" : " in ", where, " (",
                  simdjson::error_message(code), "); the file is damaged or no safetensors file; fetch it again");
  }
}

bool is_plain(std::string_view s) {
  return std::memchr(s.data(), '\\', s.size()) == nullptr;
}

class HeaderParser {
 public:
  HeaderParser(const char *json, uint64_t size, uint64_t seed) : end_(json + size), builder_(seed, size) {}

  Result<Index> parse(od::document &document);

 private:
  Result<std::string_view> key(od::field &field);
  Result<std::string_view> string(od::value &value);  // which is one
  Result<void> metadata(od::value value);
  Result<void> tensor(od::value value);
  Result<void> tensor_fields(od::object object);
  Result<void> tensor_elements(od::array array);
  Result<Dtype> dtype(od::value value);
  Result<Dtype> named_dtype(std::string_view name);
  Result<void> shape(od::value value);
  Result<void> offsets(od::value value);
  Result<uint64_t> number(od::value value, std::string_view what);
  class Nested;
  Result<void> skip(od::value value, int depth);
  Result<void> skip_plain(od::value &value, od::json_type type);

  // An entry that is no tensor, said with its name; and simdjson's errors,
  // which are either a wrong type or broken JSON.
  Failure bad(Status status, std::string_view what) const {
    return Failure(error(status, "tensor ", in_quotes(name_), " ", what).about_tensor(name_));
  }
  Failure bad(simdjson::error_code code, std::string_view what) const {
    if (code == simdjson::INCORRECT_TYPE) return bad(Status::tensor_info, what);
    return json_failure(code, name_);
  }

  const char *end_;
  IndexBuilder builder_;
  std::string_view name_;  // of the entry under way
  uint64_t begin_offset_ = 0, end_offset_ = 0;
};

Result<Index> HeaderParser::parse(od::document &document) {
  od::object top;
  if (auto code = document.get_object().get(top)) {
    if (code == simdjson::INCORRECT_TYPE)
      return fail(Status::header_json,
                  "the header is not a JSON object; the file is damaged or no safetensors file; fetch it again");
    return json_failure(code, "");
  }
  bool metadata_seen = false;
  for (auto entry : top) {
    od::field field;
    if (auto code = std::move(entry).get(field)) return json_failure(code, name_);
    ST_TRY(name_, key(field));
    if (name_ != "__metadata__") {
      builder_.begin_tensor(name_);
      ST_TRY(tensor(field.value()));
    } else if (metadata_seen) {
      return fail(Status::metadata, "the header has two __metadata__ entries");
    } else {
      metadata_seen = true;
      ST_TRY(metadata(field.value()));
    }
  }
  if (document.current_location().error() != simdjson::OUT_OF_BOUNDS)
    return fail(Status::header_json, "something follows the JSON object in the header; only spaces may");
  return builder_.finish();
}

// A key: in place where it has no escapes, else unescaped into simdjson's
// buffer, which outlives the parse.
Result<std::string_view> HeaderParser::key(od::field &field) {
  const char *raw = field.key().raw();
  const auto *quote = static_cast<const char *>(std::memchr(raw, '"', static_cast<size_t>(end_ - raw)));
  if (quote) {
    const std::string_view in_place(raw, static_cast<size_t>(quote - raw));
    if (is_plain(in_place)) return in_place;
  }
  std::string_view unescaped;
  if (auto code = field.unescaped_key().get(unescaped)) return json_failure(code, name_);
  return unescaped;
}

Result<std::string_view> HeaderParser::string(od::value &value) {
  const std::string_view token = trimmed(value.raw_json_token());
  if (token.size() >= 2 && token.front() == '"' && token.back() == '"' && is_plain(token)) {
    od::raw_json_string taken;
    if (auto code = value.get_raw_json_string().get(taken)) return json_failure(code, name_);
    return token.substr(1, token.size() - 2);
  }
  std::string_view unescaped;
  if (auto code = value.get_string().get(unescaped)) return json_failure(code, name_);
  return unescaped;
}

Result<void> HeaderParser::metadata(od::value value) {
  constexpr std::string_view not_a_map = "__metadata__ must map strings to strings";
  od::object object;
  if (auto code = value.get_object().get(object)) {
    bool null = false;
    if (code == simdjson::INCORRECT_TYPE && !value.is_null().get(null) && null) return {};
    if (code == simdjson::INCORRECT_TYPE) return fail(Status::metadata, not_a_map);
    return json_failure(code, name_);
  }
  for (auto entry : object) {
    od::field field;
    if (auto code = std::move(entry).get(field)) return json_failure(code, "__metadata__");
    ST_TRY(auto k, key(field));
    od::json_type type;
    if (auto code = field.value().type().get(type)) return json_failure(code, "__metadata__");
    if (type != od::json_type::string) return fail(Status::metadata, not_a_map);
    ST_TRY(auto v, string(field.value()));
    builder_.add_metadata(k, v);
  }
  return {};
}

Result<void> HeaderParser::tensor(od::value value) {
  od::json_type type;
  if (auto code = value.type().get(type)) return json_failure(code, name_);
  if (type == od::json_type::object) {
    od::object object;
    if (auto code = value.get_object().get(object)) return json_failure(code, name_);
    return tensor_fields(object);
  }
  if (type == od::json_type::array) {
    od::array array;
    if (auto code = value.get_array().get(array)) return json_failure(code, name_);
    return tensor_elements(array);
  }
  return bad(Status::tensor_info, "is not described by an object");
}

Result<void> HeaderParser::tensor_fields(od::object object) {
  std::optional<Dtype> type;
  bool has_shape = false, has_offsets = false;
  for (auto entry : object) {
    od::field field;
    if (auto code = std::move(entry).get(field)) return json_failure(code, name_);
    ST_TRY(auto k, key(field));
    if (k == "dtype") {
      if (type) return bad(Status::tensor_info, "has two dtypes");
      ST_TRY(type, dtype(field.value()));
    } else if (k == "shape") {
      if (has_shape) return bad(Status::tensor_info, "has two shapes");
      has_shape = true;
      ST_TRY(shape(field.value()));
    } else if (k == "data_offsets") {
      if (has_offsets) return bad(Status::tensor_info, "has data_offsets twice");
      has_offsets = true;
      ST_TRY(offsets(field.value()));
    } else {
      ST_TRY(skip(field.value(), 3));
    }
  }
  if (!type) return bad(Status::tensor_info, "has no dtype");
  if (!has_shape) return bad(Status::tensor_info, "has no shape");
  if (!has_offsets) return bad(Status::tensor_info, "has no data_offsets");
  builder_.end_tensor(*type, begin_offset_, end_offset_);
  return {};
}

Result<void> HeaderParser::tensor_elements(od::array array) {
  constexpr std::string_view wrong_count = "is an array of other than three elements (dtype, shape, data_offsets)";
  std::optional<Dtype> type;
  int count = 0;
  for (auto element : array) {
    od::value value;
    if (auto code = element.get(value)) return json_failure(code, name_);
    switch (count++) {
      case 0: {
        ST_TRY(type, dtype(value));
        break;
      }
      case 1: ST_TRY(shape(value)); break;
      case 2: ST_TRY(offsets(value)); break;
      default: return bad(Status::tensor_info, wrong_count);
    }
  }
  if (count != 3) return bad(Status::tensor_info, wrong_count);
  builder_.end_tensor(*type, begin_offset_, end_offset_);
  return {};
}

Result<Dtype> HeaderParser::named_dtype(std::string_view name) {
  if (auto known = parse_dtype(name)) return *known;
  return bad(Status::dtype, text("has the dtype ", in_quotes(name), ", which the format does not have"));
}

Result<Dtype> HeaderParser::dtype(od::value value) {
  constexpr std::string_view no_string = "has a dtype that is no string";
  od::json_type type;
  if (auto code = value.type().get(type)) return json_failure(code, name_);
  if (type == od::json_type::string) {
    ST_TRY(auto name, string(value));
    return named_dtype(name);
  }
  if (type != od::json_type::object) return bad(Status::tensor_info, no_string);
  // serde's other spelling of an enum: {"F32": null}
  od::object object;
  if (auto code = value.get_object().get(object)) return bad(code, no_string);
  std::optional<Dtype> found;
  for (auto entry : object) {
    od::field field;
    if (auto code = std::move(entry).get(field)) return json_failure(code, name_);
    ST_TRY(auto name, key(field));
    bool null = false;
    if (auto code = field.value().is_null().get(null); (code && code != simdjson::INCORRECT_TYPE) || found || !null)
      return bad(Status::tensor_info, no_string);
    ST_TRY(found, named_dtype(name));
  }
  if (!found) return bad(Status::tensor_info, no_string);
  return *found;
}

Result<void> HeaderParser::shape(od::value value) {
  od::array array;
  if (auto code = value.get_array().get(array)) return bad(code, "has a shape that is no array");
  for (auto element : array) {
    od::value dim;
    if (auto code = element.get(dim)) return json_failure(code, name_);
    ST_TRY(auto n, number(dim, "has a dimension that is no whole number from 0 to 2^64 - 1"));
    builder_.add_dim(n);
  }
  return {};
}

Result<void> HeaderParser::offsets(od::value value) {
  constexpr std::string_view not_two = "has data_offsets that are not two whole numbers";
  od::array array;
  if (auto code = value.get_array().get(array)) return bad(code, not_two);
  int count = 0;
  for (auto element : array) {
    od::value offset;
    if (auto code = element.get(offset)) return json_failure(code, name_);
    if (count == 2) return bad(Status::tensor_info, not_two);
    ST_TRY(auto n, number(offset, not_two));
    (count++ == 0 ? begin_offset_ : end_offset_) = n;
  }
  if (count != 2) return bad(Status::tensor_info, not_two);
  return {};
}

Result<uint64_t> HeaderParser::number(od::value value, std::string_view what) {
  od::json_type type;
  if (auto code = value.type().get(type)) return json_failure(code, name_);
  if (type != od::json_type::number) return bad(Status::tensor_info, what);
  const std::string_view token = trimmed(value.raw_json_token());
  uint64_t n = 0;
  if (!value.get_uint64().get(n)) return n;
  if (is_acceptable_number(token)) return bad(Status::tensor_info, what);
  return json_failure(simdjson::NUMBER_ERROR, name_);
}

// An object or array of an ignored field, and how far it was read.
class HeaderParser::Nested {
 public:
  explicit Nested(od::object object) : fields_(object.begin()), fields_end_(object.end()), is_object_(true) {}
  explicit Nested(od::array array) : elements_(array.begin()), elements_end_(array.end()), is_object_(false) {}
  // False: there is no other value in it.
  Result<bool> next(HeaderParser &parser, od::value *value) {
    if (is_object_) {
      if (!std::exchange(is_first_, false)) ++fields_;
      if (fields_ == fields_end_) return false;
      od::field field;
      if (auto code = (*fields_).get(field)) return json_failure(code, parser.name_);
      ST_TRY(parser.key(field));
      *value = field.value();
      return true;
    }
    if (!std::exchange(is_first_, false)) ++elements_;
    if (elements_ == elements_end_) return false;
    if (auto code = (*elements_).get(*value)) return json_failure(code, parser.name_);
    return true;
  }

 private:
  simdjson::simdjson_result<od::object_iterator> fields_, fields_end_;
  simdjson::simdjson_result<od::array_iterator> elements_, elements_end_;
  bool is_object_, is_first_ = true;
};

// A value of a field that the format does not know: ignored, but it must be
// valid JSON, which On Demand checks only where it is looked at. What nests is kept
// in a list, as threads with small stacks open files, too.
Result<void> HeaderParser::skip(od::value value, int depth) {
  std::vector<Nested> open;
  for (;;) {
    od::json_type type;
    if (auto code = value.type().get(type)) return json_failure(code, name_);
    if (type == od::json_type::object || type == od::json_type::array) {
      if (depth + static_cast<int>(open.size()) > max_depth)
        return fail(Status::header_json, "the header nests deeper than ", max_depth, " levels");
      od::object object;
      od::array array;
      const auto code = type == od::json_type::object ? value.get_object().get(object) : value.get_array().get(array);
      if (code) return json_failure(code, name_);
      type == od::json_type::object ? open.emplace_back(object) : open.emplace_back(array);
    } else {
      ST_TRY(skip_plain(value, type));
    }
    for (bool found = false; !found;) {
      if (open.empty()) return {};
      ST_TRY(found, open.back().next(*this, &value));
      if (!found) open.pop_back();
    }
  }
}

Result<void> HeaderParser::skip_plain(od::value &value, od::json_type type) {
  switch (type) {
    case od::json_type::string: {
      ST_TRY(string(value));
      return {};
    }
    case od::json_type::number: {
      if (!is_acceptable_number(trimmed(value.raw_json_token()))) return json_failure(simdjson::NUMBER_ERROR, name_);
      // Taken, so that On Demand checks what follows; one that simdjson finds too
      // large, but the reference does not, it moves past by itself.
      double taken;
      static_cast<void>(value.get_double().get(taken) == simdjson::SUCCESS);
      return {};
    }
    case od::json_type::boolean: {
      bool ignored;
      if (auto code = value.get_bool().get(ignored)) return json_failure(code, name_);
      return {};
    }
    case od::json_type::null: {
      bool null = false;
      if (auto code = value.is_null().get(null); code || !null) return json_failure(simdjson::N_ATOM_ERROR, name_);
      return {};
    }
    default: break;
  }
  return fail(Status::internal, "simdjson names a type that JSON does not have");
}

// What people take for a model, by what it begins with.
struct OtherFile {
  std::string_view begins;
  const char *what;
};
using std::operator""sv;
constexpr const char *html_page =
    "the file is an HTML page, as a server sends it in place of a model; fetch the model again";
constexpr const char *pickle = "the file is a pickle, as PyTorch's old .bin are, and no safetensors file; convert it";
constexpr const char *zip =
    "the file is a zip archive, as .npz and PyTorch's .bin and .pt are, and no safetensors file; convert it";
constexpr OtherFile other_files[] = {
    {"version https://git-lfs.github.com/spec"sv,
     "the file is a Git LFS pointer, not the model; `git lfs pull` fetches the model"},
    {"<!DOCTYPE html"sv, html_page},
    {"<!doctype html"sv, html_page},
    {"<html"sv, html_page},
    {"{"sv,
     "the file is JSON, as an index of shards is, or a server's error; fetch the model, or name the index "
     "*.safetensors.index.json"},
    {"PK\3\4"sv, zip},
    {"PK\5\6"sv, zip},  // of nothing
    {"\x1f\x8b\x8"sv, "the file was compressed by gzip, and is no safetensors file as it is; decompress it"},
    {"\x80\2"sv, pickle},
    {"\x80\3"sv, pickle},
    {"\x80\4"sv, pickle},
    {"\x80\5"sv, pickle},
    {"GGUF"sv, "the file is a GGUF model and no safetensors file; convert it"},
    {"\x89HDF"sv, "the file is HDF5, as .h5 files are, and no safetensors file; convert it"},
    {"\x93NUMPY"sv, "the file is an array of numpy's (.npy) and no safetensors file; convert it"},
};

// Null: none that is known. `n` is what the begin says of a header. Where the format has room for it, the begin may be
// that of a damaged file: so it must be longer, and no header may begin after it.
const char *what_else_begins_so(std::span<const char> bytes, uint64_t n) {
  const std::string_view file(bytes.data(), bytes.size());
  constexpr size_t says_enough = 3;
  const bool is_no_length = n > max_header_bytes;
  if (!is_no_length && (file.size() == length_bytes || "{ \t\r\n"sv.find(file[length_bytes]) != std::string_view::npos))
    return nullptr;
  for (const OtherFile &other : other_files)
    if (file.starts_with(other.begins) && (is_no_length || other.begins.size() >= says_enough)) return other.what;
  return nullptr;
}

}  // namespace

Result<uint64_t> parse_header_length(std::span<const char> first_bytes, uint64_t file_size) {
  if (file_size < length_bytes || first_bytes.size() < length_bytes)
    return fail(Status::header_too_small, "the file has ", file_size,
                " bytes, fewer than the 8 that give the header's length; it is no safetensors file, so fetch it again");
  const uint64_t n = load_u64le(first_bytes.data());
  if (const char *other = what_else_begins_so(first_bytes, n))
    return fail(n > max_header_bytes           ? Status::header_too_large
                : n > file_size - length_bytes ? Status::header_truncated
                                               : Status::header_json,
                other);
  if (n > max_header_bytes)
    return fail(Status::header_too_large, "the header claims ", n, " bytes, more than the format's ", max_header_bytes,
                "; the file is damaged or no safetensors file; fetch it again");
  if (n > file_size - length_bytes)
    return fail(Status::header_truncated, "the header claims ", n, " bytes but the file ends after ",
                file_size - length_bytes, " of them; fetch the file again");
  return n;
}

namespace {

// simdjson takes memory when it is first used, where no exception may pass: it does so when libst is loaded, so that a
// first call without memory answers ST_E_NOMEM.
[[maybe_unused]] const std::string &chosen = simdjson::get_active_implementation()->name();

Result<Index> parse_index(const char *json, uint64_t json_bytes, uint64_t hash_seed) {
  if (!simdjson::validate_utf8(json, json_bytes)) return json_failure(simdjson::UTF8_ERROR, "");
  {  // The full parser has a builder of its own, which is as large: a quarter more than the header.
    IndexBuilder builder(hash_seed, json_bytes);
    if (scan_header({json, static_cast<size_t>(json_bytes)}, builder)) return builder.finish();
  }
  od::parser parser;
  JsonDocument document;
  if (auto code = document.parse(parser, json, json_bytes, json_bytes + header_padding)) return json_failure(code, "");
  return HeaderParser(json, json_bytes, hash_seed).parse(document);
}

}  // namespace

Result<Header> parse_header(const char *json, uint64_t json_bytes, uint64_t file_size, uint64_t hash_seed) {
  ST_TRY(auto &&index, parse_index(json, json_bytes, hash_seed));

  return finish_header(json_bytes, std::move(index), file_size);
}

Result<Header> finish_header(uint64_t json_bytes, Index index, uint64_t file_size) {
  Header header{json_bytes, std::move(index)};
  const uint64_t have = file_size - header.data_offset();
  const uint64_t need = header.index.data_bytes();
  if (have < need)
    return Failure(error(Status::truncated, "the tensors need ", need, " bytes but the file has only ", have,
                         " after its header; fetch the file again")
                       .at_offset(file_size));
  if (have > need)
    return Failure(error(Status::trailing_data, have - need,
                         " bytes follow the last tensor and belong to none; the file is damaged")
                       .at_offset(header.data_offset() + need));
  return header;
}

std::string json_parser() {
  return text("simdjson ", static_cast<int>(simdjson::SIMDJSON_VERSION_MAJOR), ".",
              static_cast<int>(simdjson::SIMDJSON_VERSION_MINOR), ".",
              static_cast<int>(simdjson::SIMDJSON_VERSION_REVISION), ", ",
              simdjson::get_active_implementation()->name());
}

}  // namespace st
