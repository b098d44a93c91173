// The index of a sharded checkpoint, `….safetensors.index.json`, as Hugging Face
// writes it: {"metadata": {"total_size": n, "total_parameters": m, …}, "weight_map": {name: shard, …}}.
// Pure: bytes in, values out. Must never let a shard lie outside the folder.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "format/name_table.h"
#include "format/seeded_hash.h"

namespace st {

inline constexpr uint64_t max_index_bytes = 100000000;  // as of a header
// What is counted over all shards: bytes, and elements as transformers writes them. They follow each change.
inline constexpr std::string_view total_size_key = "total_size", total_parameters_key = "total_parameters";
inline bool is_total(std::string_view key) {
  return key == total_size_key || key == total_parameters_key;
}

// Is this what an index is named? ("model.safetensors.index.json", also with a variant: "….index.fp16.json".)
bool is_index_name(std::string_view path);

class ShardIndex {
 public:
  // `hash_seed` must be unpredictable to the author of the names: see os/random.h.
  // After `size` bytes header_padding more must be readable. Statuses shard_index, shard_duplicate, shard_path.
  static Result<ShardIndex> parse(const char *json, uint64_t size, uint64_t hash_seed);
  // For a checkpoint to be written.
  static ShardIndex of(std::vector<std::string> shards, uint64_t hash_seed);

  // The shards that hold a tensor, in the order of their names; number i is the i-th.
  const std::vector<std::string> &shards() const { return shards_; }
  size_t size() const { return by_name_.size(); }
  std::optional<uint32_t> shard_of(std::string_view name) const;
  const std::vector<uint64_t> &counts() const { return counts_; }  // tensors of each shard
  // The names in each shard, in no order. One pass serves all shards.
  std::vector<std::vector<std::string_view>> names_by_shard() const;

  // Pairs of "metadata", in the order of the file unless one was removed: strings as they are meant, all else as it is
  // spelled.
  struct Pair {
    std::string key, text;
    std::string json;  // the value as it is spelled
  };
  const std::vector<Pair> &metadata() const { return metadata_; }
  bool has_same_metadata(const ShardIndex &other) const;  // to be spelled in the same way
  std::optional<std::string_view> metadata_find(std::string_view key) const;
  std::optional<uint64_t> total(std::string_view key) const;  // if there is one, and it is a whole number below 2^64
  size_t memory_bytes() const;

  // To spell another. Shards that hold nothing any more are left out.
  void add_shards(std::vector<std::string> names);  // in one pass, which assign() takes for each that is not there
  void assign(std::string_view name, std::string_view shard);
  void remove(std::string_view name);
  // Without a value: removes it. A number stays one if `text` spells a number that fits into 64 bits, as every reader
  // can hold it.
  void set_metadata(std::string_view key, std::optional<std::string_view> text);
  void set_total(std::string_view key, uint64_t n);
  // If there is such a number; any other stays. One that was too small for what went away becomes 0.
  void add_to_total(std::string_view key, int64_t n);
  // As json.dumps(…, indent=2, sort_keys=True) with a line's end, which is how stock writes it. Values that are as they
  // came stay as they were spelled.
  std::string spell() const;
  // To be written: not what parse() would refuse. Statuses header_utf8, header_too_large.
  Result<std::string> spell_readable() const;

 private:
  friend class ShardIndexParser;
  explicit ShardIndex(uint64_t hash_seed) : by_name_(hash_seed), numbers_(0, SeededHash(hash_seed)) {}
  // Whether there was none of that key.
  bool put(Pair pair);
  std::string spelled_metadata() const;
  void append_map(std::string &out) const;

  NameTable by_name_;
  std::vector<std::string> shards_;
  std::vector<uint64_t> counts_;
  std::vector<Pair> metadata_;
  bool has_metadata_ = false;                  // also an object without a pair: stock looks into it
  SeededMap<std::string, uint32_t> numbers_;   // of each key in them
  std::map<std::string, std::string> others_;  // fields that we do not know, as they are spelled
};

}  // namespace st
