// The header of a safetensors file: `u64le n | n bytes of JSON | data`.
// Pure: bytes in, values out; no I/O.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/little_endian.h"
#include "format/index.h"

namespace st {

inline constexpr uint64_t length_bytes = 8;  // the u64le before the JSON
inline constexpr uint64_t max_header_bytes = 100000000;
inline constexpr size_t header_padding = 64;  // readable bytes that the parser wants after the JSON, a NUL first

struct Header {
  uint64_t json_bytes = 0;  // n, padding included
  Index index;

  uint64_t data_offset() const { return length_bytes + json_bytes; }
};

// The JSON parser inside, and which of its forms this processor runs: "simdjson 3.0.1, haswell".
std::string json_parser();

// n, from the first 8 bytes, checked against the format's limit and the file's
// size. With more of the file's bytes a failure names what the file is, if libst knows it.
Result<uint64_t> parse_header_length(std::span<const char> first_bytes, uint64_t file_size);

// Parse `json_bytes` of JSON at `json`, and check every rule of the format against
// the file's size. After the JSON header_padding bytes must be readable, the first a NUL.
// Accepts what the reference reader (safetensors 0.8) accepts, but for names
// that stand twice. Time and memory are linear in json_bytes.
Result<Header> parse_header(const char *json, uint64_t json_bytes, uint64_t file_size, uint64_t hash_seed);

// The last of its steps: an index of any origin against the file's size.
Result<Header> finish_header(uint64_t json_bytes, Index index, uint64_t file_size);

// A tensor to be written; begin and nbytes as in the index.
struct HeaderTensor {
  std::string_view name;
  Dtype dtype;
  std::span<const uint64_t> shape;
  uint64_t begin;
  uint64_t nbytes;
};
using MetadataPairs = std::span<const std::pair<std::string_view, std::string_view>>;

// The first bytes of a file, length included: JSON as the stock writer spells
// it, not yet padded and its length not yet filled in. Refuses what the format
// refuses, names that stand twice, and offsets beyond 2^63.
Result<std::string> serialize_header(std::span<const HeaderTensor> tensors, MetadataPairs metadata);

// Status invalid_argument: of a tensor "__metadata__".
Failure refuse_name_of_metadata();

// Status header_utf8: JSON holds no other text. About that tensor.
Result<void> check_utf8(std::string_view name);
Result<void> check_utf8(std::string_view key, std::string_view value);  // of metadata

// How many of its bytes one of the tensors takes. Status header_utf8.
Result<uint64_t> header_bytes_of(const HeaderTensor &tensor);

// Spaces up to data_offset, which is no less than the header's size, and the
// length. Status header_too_large.
Result<void> pad_header(std::string *header, uint64_t data_offset);

}  // namespace st
