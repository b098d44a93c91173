#include "tensor_file.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace st::testing {
namespace {

constexpr size_t alignment = 64;  // of the data, in the file

// The words that a step changes: a few of most pages, and none of others.
bool changes(uint64_t i) {
  return i / 1024 % 3 != 1 && i % 61 == 7;
}

// Word i of a tensor: the first is the version itself, the second its ground, the rest follow from the two.
uint64_t word(uint64_t i, uint32_t tensor, Value value) {
  if (i == 0) return value.version;
  if (i == 1) return value.ground;
  const uint64_t version = changes(i) ? value.version : value.ground;
  uint64_t x = version * 0x9E3779B97F4A7C15u + (uint64_t{tensor} << 40) + i;  // splitmix64
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Back from y = x ^ (x >> n), for n of 21 and more.
uint64_t unshifted(uint64_t y, int n) {
  return y ^ (y >> n) ^ (y >> 2 * n) ^ (3 * n < 64 ? y >> 3 * n : 0);
}

// What is multiplied by the odd number `a` is multiplied back by this.
constexpr uint64_t inverse(uint64_t a) {
  uint64_t x = a;  // right in three bits; each round doubles them
  for (int i = 0; i < 5; ++i) x *= 2 - a * x;
  return x;
}

}  // namespace

bool is_changed_by_step(uint64_t i) {
  return i == 0 || (i > 1 && changes(i));
}

uint64_t version_of_word(uint64_t word, uint64_t i, uint32_t tensor) {
  if (i < 2) return word;
  uint64_t x = unshifted(word, 31) * inverse(0x94D049BB133111EBu);
  x = unshifted(x, 27) * inverse(0xBF58476D1CE4E5B9u);
  return (unshifted(x, 30) - i - (uint64_t{tensor} << 40)) * inverse(0x9E3779B97F4A7C15u);
}

void fill(std::span<std::byte> bytes, uint32_t tensor, Value value) {
  for (size_t at = 0; at < bytes.size(); at += word_bytes) {
    const uint64_t w = word(at / word_bytes, tensor, value);
    std::memcpy(&bytes[at], &w, std::min(word_bytes, bytes.size() - at));
  }
}

std::optional<Value> value_of(std::span<const std::byte> bytes, uint32_t tensor) {
  if (bytes.size() < word_bytes) return std::nullopt;
  Value value;
  std::memcpy(&value.version, bytes.data(), word_bytes);
  value.ground = value.version;
  if (bytes.size() >= 2 * word_bytes) std::memcpy(&value.ground, &bytes[word_bytes], word_bytes);
  for (size_t at = word_bytes; at < bytes.size(); at += word_bytes) {
    const uint64_t w = word(at / word_bytes, tensor, value);
    if (std::memcmp(&bytes[at], &w, std::min(word_bytes, bytes.size() - at)) != 0) return std::nullopt;
  }
  return value;
}

std::optional<uint64_t> version_of(std::span<const std::byte> bytes, uint32_t tensor) {
  const auto value = value_of(bytes, tensor);
  return value ? std::optional(value->version) : std::nullopt;
}

Layout::Layout(std::vector<uint64_t> sizes) : sizes_(std::move(sizes)) {
  std::string json = "{";
  uint64_t end = 0;
  for (uint64_t size : sizes_) {
    const std::string number = std::to_string(names_.size());
    names_.push_back(std::string(number.size() < 2 ? "t0" : "t") + number);
    offsets_.push_back(end);
    json += (end ? ",\"" : "\"") + names_.back() + "\":{\"dtype\":\"U8\",\"shape\":[" + std::to_string(size) +
            "],\"data_offsets\":[" + std::to_string(end) + ",";
    end += size;
    json += std::to_string(end) + "]}";
  }
  json += "}";
  while ((word_bytes + json.size()) % alignment != 0) json += ' ';
  const uint64_t length = json.size();
  header_.assign(reinterpret_cast<const char *>(&length), sizeof length);
  header_ += json;
  for (uint64_t &offset : offsets_) offset += header_.size();
}

Bytes Layout::value(uint32_t tensor, uint64_t version) const {
  Bytes bytes(size(tensor));
  fill(bytes, tensor, version);
  return bytes;
}

st_tensor Layout::described(uint32_t tensor, const void *bytes) const {
  st_tensor value = {};
  value.dtype = ST_DTYPE_U8;
  value.rank = 1;
  value.shape = &sizes_[tensor];
  value.nbytes = sizes_[tensor];
  value.data = bytes;
  return value;
}

void Layout::write(const std::string &path) const {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(header_.data(), static_cast<std::streamsize>(header_.size()));
  for (uint32_t t = 0; t < count(); ++t) {
    const Bytes bytes = value(t, 0);
    out.write(reinterpret_cast<const char *>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  if (!out.flush()) throw std::runtime_error("cannot write " + path);
}

void Layout::write(const std::string &path, const std::map<uint32_t, Bytes> &values) const {
  {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(header_.data(), static_cast<std::streamsize>(header_.size()));
    for (const auto &[t, bytes] : values) {
      out.seekp(static_cast<std::streamoff>(offset(t)));
      out.write(reinterpret_cast<const char *>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
    if (!out.flush()) throw std::runtime_error("cannot write " + path);
  }
  std::filesystem::resize_file(path, offsets_.back() + sizes_.back());
}

std::vector<std::optional<uint64_t>> Layout::versions_in(const std::string &path) const {
  std::ifstream in(path, std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::optional<uint64_t>> versions(count());
  if (all.compare(0, header_.size(), header_) != 0) return versions;
  for (uint32_t t = 0; t < count(); ++t)
    if (offset(t) + size(t) <= all.size())
      versions[t] = version_of(std::as_bytes(std::span(all).subspan(offset(t), size(t))), t);
  return versions;
}

std::optional<Value> read_value(st_file *file, const Layout &layout, uint32_t tensor) {
  Bytes bytes(layout.size(tensor));
  if (st_read(file, layout.name(tensor), ST_NTS, bytes.data(), bytes.size(), nullptr) != ST_OK) return std::nullopt;
  return value_of(bytes, tensor);
}

std::optional<uint64_t> read_version(st_file *file, const Layout &layout, uint32_t tensor) {
  const auto value = read_value(file, layout, tensor);
  return value ? std::optional(value->version) : std::nullopt;
}

}  // namespace st::testing
