// A safetensors file whose values tell their history: each tensor holds one
// version, written all over it, so that a reader can say of every byte whether
// it belongs there. Sizes are odd on purpose: neighbours share disk sectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "abi.h"

namespace st::testing {

using Bytes = std::vector<std::byte>;

// What a tensor holds. A version that is written all over it is its own ground. A step changes few words of the ground.
struct Value {
  uint64_t version, ground;
};

// Tensor `tensor` of a file as version `version` has it; at least 8 bytes.
void fill(std::span<std::byte> bytes, uint32_t tensor, Value value);
inline void fill(std::span<std::byte> bytes, uint32_t tensor, uint64_t version) {
  fill(bytes, tensor, {version, version});
}
// What these bytes are; nothing if a single byte is not of it.
std::optional<Value> value_of(std::span<const std::byte> bytes, uint32_t tensor);
std::optional<uint64_t> version_of(std::span<const std::byte> bytes, uint32_t tensor);
// The other way round, of word i alone: the version that it is of. Rubbish gives rubbish.
constexpr size_t word_bytes = sizeof(uint64_t);
uint64_t version_of_word(uint64_t word, uint64_t i, uint32_t tensor);
bool is_changed_by_step(uint64_t i);

// The layout of such a file: U8 vectors, named t00, t01, …
class Layout {
 public:
  explicit Layout(std::vector<uint64_t> sizes);
  uint32_t count() const { return static_cast<uint32_t>(sizes_.size()); }
  const char *name(uint32_t tensor) const { return names_[tensor].c_str(); }
  uint64_t size(uint32_t tensor) const { return sizes_[tensor]; }
  uint64_t offset(uint32_t tensor) const { return offsets_[tensor]; }  // in the file
  uint64_t data_offset() const { return header_.size(); }

  Bytes value(uint32_t tensor, uint64_t version) const;
  // `bytes` as a value for st_update; borrows them, and this layout.
  st_tensor described(uint32_t tensor, const void *bytes) const;

  // A new file, every tensor in version 0.
  void write(const std::string &path) const;
  // A new file with these tensors, and zeros for the others.
  void write(const std::string &path, const std::map<uint32_t, Bytes> &values) const;
  // What stands in the file now, past libst: whole versions, or nothing.
  std::vector<std::optional<uint64_t>> versions_in(const std::string &path) const;

 private:
  std::vector<std::string> names_;
  std::vector<uint64_t> sizes_, offsets_;
  std::string header_;
};

// A handle that closes itself.
struct CloseFile {
  void operator()(st_file *file) const { st_close(file); }
};
using FileHandle = std::unique_ptr<st_file, CloseFile>;

inline st_open_options open_options(uint32_t flags, int32_t lock_timeout_ms = ST_TIMEOUT_DEFAULT) {
  auto options = sized<st_open_options>();
  options.flags = flags;
  options.lock_timeout_ms = lock_timeout_ms;
  return options;
}

// However long another judge takes for it. On a busy machine that is more than the ten seconds of the default.
inline st_status recover_in_the_end(const std::string &path) {
  auto options = sized<st_recover_options>();
  options.lock_timeout_ms = ST_TIMEOUT_FOREVER;
  return st_recover(path.c_str(), &options);
}

// Null, with st_last_error() saying why, or *status if it is wanted.
inline FileHandle open_file(const std::string &path, const st_open_options &options, st_status *status = nullptr) {
  st_file *file = nullptr;
  const st_status answer = st_open(path.c_str(), &options, &file);
  if (status) *status = answer;
  return FileHandle(file);
}

// What a handle reads: a whole tensor, or its version; nothing if it is torn or
// the read failed.
std::optional<Value> read_value(st_file *file, const Layout &layout, uint32_t tensor);
std::optional<uint64_t> read_version(st_file *file, const Layout &layout, uint32_t tensor);

}  // namespace st::testing
