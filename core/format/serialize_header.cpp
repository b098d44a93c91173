// Header writing: JSON spelled as the stock writer spells it (serde_json,
// compact), so that the same input gives the same bytes.
#include <simdjson.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "format/header.h"
#include "format/json_string.h"

namespace st {
namespace {

void append_tensor(std::string &out, const HeaderTensor &t) {
  append_json_string(out, t.name);
  out += ":{\"dtype\":\"";
  out += dtype_name(t.dtype);
  out += "\",\"shape\":[";
  for (size_t i = 0; i < t.shape.size(); ++i) {
    if (i) out += ',';
    append_text(out, t.shape[i]);
  }
  out += "],\"data_offsets\":[";
  append_text(out, t.begin);
  out += ',';
  append_text(out, t.begin + t.nbytes);
  out += "]}";
}

constexpr std::string_view metadata_name = "__metadata__";

// The second of two tensors of one name, or one that is named like the metadata. A set of names takes more memory than
// the header, so hashes tell first whether there may be such.
const HeaderTensor *find_duplicate(std::span<const HeaderTensor> tensors) {
  std::vector<uint64_t> hashes{hash64(metadata_name.data(), metadata_name.size())};
  hashes.reserve(tensors.size() + 1);
  for (const HeaderTensor &t : tensors) hashes.push_back(hash64(t.name.data(), t.name.size()));
  std::sort(hashes.begin(), hashes.end());
  if (std::adjacent_find(hashes.begin(), hashes.end()) == hashes.end()) return nullptr;
  std::set<std::string_view> names{metadata_name};
  for (const HeaderTensor &t : tensors)
    if (!names.insert(t.name).second) return &t;
  return nullptr;
}

// What a reader would refuse is not written.
Result<void> check(std::span<const HeaderTensor> tensors) {
  auto refuse = [](const HeaderTensor &t, Status status, std::string_view why) {
    return Failure(error(status, "tensor ", in_quotes(t.name), " ", why).about_tensor(t.name));
  };
  if (const HeaderTensor *t = find_duplicate(tensors))
    return t->name == metadata_name ? refuse_name_of_metadata()
                                    : refuse(*t, Status::duplicate_name, "stands twice; names must be distinct");
  for (const HeaderTensor &t : tensors) {
    ST_TRY(check_utf8(t.name));
    auto nbytes = tensor_nbytes(t.dtype, t.shape);
    if (!nbytes) return refuse(t, nbytes.error().status, nbytes.error().message);
    if (*nbytes != t.nbytes)
      return refuse(t, Status::size_mismatch, text("has ", t.nbytes, " bytes; its dtype and shape need ", *nbytes));
    uint64_t end;
    if (__builtin_add_overflow(t.begin, t.nbytes, &end) || end > INT64_MAX)
      return refuse(t, Status::offsets, "would end beyond 2^63 bytes, where no file reaches");
  }
  uint64_t behind = 0;
  const auto follows = [&](const HeaderTensor &t) { return std::exchange(behind, behind + t.nbytes) == t.begin; };
  if (std::all_of(tensors.begin(), tensors.end(), follows)) return {};
  std::vector<const HeaderTensor *> by_offset;
  by_offset.reserve(tensors.size());
  for (const HeaderTensor &t : tensors) by_offset.push_back(&t);
  std::sort(by_offset.begin(), by_offset.end(), [](const HeaderTensor *a, const HeaderTensor *b) {
    return a->begin != b->begin ? a->begin < b->begin : a->nbytes < b->nbytes;
  });
  uint64_t at = 0;
  for (const HeaderTensor *t : by_offset) {
    if (t->begin != at)
      return Failure(error(t->begin < at ? Status::overlap : Status::hole, "tensor ", in_quotes(t->name), " begins at ",
                           t->begin, " but the one before it ends at ", at)
                         .about_tensor(t->name));
    at += t->nbytes;
  }
  return {};
}

}  // namespace

Failure refuse_name_of_metadata() {
  return Failure(error(Status::invalid_argument, "no tensor may be named ", in_quotes(metadata_name),
                       ": that is where the format keeps metadata")
                     .about_tensor(metadata_name));
}

Result<void> check_utf8(std::string_view name) {
  if (simdjson::validate_utf8(name.data(), name.size())) return {};
  return Failure(error(Status::header_utf8, "the name ", in_quotes(name), " is not valid UTF-8").about_tensor(name));
}

Result<void> check_utf8(std::string_view key, std::string_view value) {
  if (!simdjson::validate_utf8(key.data(), key.size()))
    return fail(Status::header_utf8, "the key ", in_quotes(key), " of the metadata is not valid UTF-8");
  if (!simdjson::validate_utf8(value.data(), value.size()))
    return fail(Status::header_utf8, "the value of the metadata ", in_quotes(key), " is not valid UTF-8");
  return {};
}

Result<std::string> serialize_header(std::span<const HeaderTensor> tensors, MetadataPairs metadata) {
  ST_TRY(check(tensors));
  for (const auto &[key, value] : metadata) ST_TRY(check_utf8(key, value));

  std::string out(length_bytes, '\0');
  constexpr size_t around = 80;  // what mostly stands around a name
  size_t names = 0;
  for (const HeaderTensor &t : tensors) names += t.name.size() + around;
  out.reserve(names);
  out += '{';
  if (!metadata.empty()) {
    out += "\"__metadata__\":{";
    for (size_t i = 0; i < metadata.size(); ++i) {
      if (i) out += ',';
      append_json_string(out, metadata[i].first);
      out += ':';
      append_json_string(out, metadata[i].second);
    }
    out += '}';
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (i || !metadata.empty()) out += ',';
    append_tensor(out, tensors[i]);
  }
  out += '}';

  if (out.size() > length_bytes + max_header_bytes)
    return fail(Status::header_too_large, "the header would have ", out.size() - length_bytes,
                " bytes, more than the format's ", max_header_bytes);
  return out;
}

Result<uint64_t> header_bytes_of(const HeaderTensor &tensor) {
  ST_TRY(check_utf8(tensor.name));
  std::string out;
  append_tensor(out, tensor);
  return out.size();
}

Result<void> pad_header(std::string *header, uint64_t data_offset) {
  ST_ASSERT(data_offset >= header->size());
  if (data_offset > length_bytes + max_header_bytes)
    return fail(Status::header_too_large, "the header would have ", header->size() - length_bytes,
                " bytes, and with its padding ", data_offset - length_bytes, ", more than the format's ",
                max_header_bytes);
  header->resize(data_offset, ' ');
  store_u64le(header->data(), data_offset - length_bytes);
  return {};
}

}  // namespace st
