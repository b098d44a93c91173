// Files to take deltas of, and what a file holds, to compare it by.
#pragma once

#include <functional>
#include <map>
#include <numeric>
#include <random>

#include "engine/deltas.h"
#include "engine/open.h"
#include "fault_env.h"
#include "format/shard_index.h"
#include "model/model.h"
#include "sim_env.h"
#include "test_files.h"

namespace st::testing {

// The n-th call that takes room on the disk finds none. *hit: whether there were so many.
inline std::function<int(Call)> no_room_for(int n, bool *hit) {
  *hit = false;
  const auto takes_room = [=, seen = 0](Call call) mutable {
    if (call != Call::pwrite && call != Call::fallocate && call != Call::copy_range) return false;
    *hit |= seen++ == n;
    return true;
  };
  return nth_call_fails(static_cast<size_t>(n), -ENOSPC, false, takes_room);
}

// All that a delta is to bring over: tensors in their order, and metadata, which has none.
struct Holdings {
  std::vector<TestTensor> tensors;
  std::map<std::string, std::string> metadata;

  std::string file(uint64_t reserve = 0) const {
    const std::vector<std::pair<std::string_view, std::string_view>> pairs(metadata.begin(), metadata.end());
    return file_of(tensors, pairs, reserve);
  }
};
inline uint64_t elements_of(const std::vector<uint64_t> &shape) {
  return std::accumulate(shape.begin(), shape.end(), uint64_t{1}, std::multiplies<>());
}

inline bool operator==(const TestTensor &a, const TestTensor &b) {
  return a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.bytes == b.bytes;
}
inline bool operator==(const Holdings &a, const Holdings &b) {
  return a.tensors == b.tensors && a.metadata == b.metadata;
}
inline void PrintTo(const Holdings &h, std::ostream *out) {
  for (const TestTensor &t : h.tensors)
    *out << "\n  " << t.name << " " << dtype_name(t.dtype) << " " << t.bytes.size() << " bytes";
  for (const auto &[key, value] : h.metadata) *out << "\n  " << key << " = " << value.substr(0, 40);
}

inline Holdings holdings_of(const std::string &file) {
  Holdings h;
  auto n = parse_header_length(std::string_view(file).substr(0, std::min<size_t>(file.size(), 8)), file.size());
  EXPECT_TRUE(is_ok(n));
  if (!n) return h;
  std::string json = file.substr(8, *n);
  json.resize(json.size() + header_padding);
  auto header = parse_header(json.data(), *n, file.size(), 1);
  EXPECT_TRUE(is_ok(header));
  if (!header) return h;
  for (size_t i = 0; i < header->index.size(); ++i) {
    const TensorView t = header->index.at(i);
    h.tensors.push_back({std::string(t.name),
                         t.dtype,
                         {t.shape.begin(), t.shape.end()},
                         file.substr(header->data_offset() + t.begin, t.nbytes)});
  }
  for (size_t i = 0; i < header->index.metadata_size(); ++i) {
    const auto [key, value] = header->index.metadata_at(i);
    h.metadata[std::string(key)] = value;
  }
  return h;
}

// Some tensors, small and large, with names that JSON must escape.
inline Holdings random_holdings(std::mt19937 &random) {
  constexpr Dtype dtypes[] = {Dtype::U8, Dtype::F16, Dtype::F32, Dtype::I64, Dtype::F4};
  Holdings h;
  for (size_t i = 0, n = random() % 12; i < n; ++i) {
    const Dtype dtype = dtypes[random() % std::size(dtypes)];
    const uint64_t elements = random() % 5 == 0 ? 0 : 2 * (1 + random() % (random() % 8 ? 900 : 30000));
    const std::string name = text(i % 3 ? "t" : "t\n\"\xC3\xA9/", i, i == 7 ? std::string(1, '\0') : std::string());
    h.tensors.push_back({name,
                         dtype,
                         {elements},
                         pattern(*tensor_nbytes(dtype, std::vector{elements}), static_cast<unsigned>(random()))});
  }
  for (size_t i = 0, n = random() % 4; i < n; ++i) h.metadata[text("k", i)] = text("v", random() % 3);
  return h;
}

// For tensors that have no order of their own, as those of shards.
inline Holdings by_name(Holdings h) {
  std::sort(h.tensors.begin(), h.tensors.end(), [](const auto &a, const auto &b) { return a.name < b.name; });
  return h;
}

inline std::string index_in(const std::string &folder) {
  return folder + "/model.safetensors.index.json";
}

// The same as at most three shards in a folder of `disk`, each tensor in any of them; a piece of metadata in the index,
// or else in the header of the first shard.
inline void add_shards(SimEnv &disk, const std::string &folder, const Holdings &h, std::mt19937 &random) {
  disk.make_folder(folder, 0755);
  const std::vector<std::string> names = {"s1.safetensors", "s2.safetensors", "s3.safetensors"};
  std::vector<Holdings> shards(names.size());
  ShardIndex index = ShardIndex::of(names, 0);
  uint64_t total = 0, elements = 0;
  for (const TestTensor &t : h.tensors) {
    const size_t in = random() % names.size();
    shards[in].tensors.push_back(t);
    index.assign(t.name, names[in]);
    total += t.bytes.size();
    elements += elements_of(t.shape);
  }
  const auto first =
      std::find_if(shards.begin(), shards.end(), [](const Holdings &shard) { return !shard.tensors.empty(); });
  for (const auto &[key, value] : h.metadata) {
    const bool in_header = first != shards.end() && random() % 2;
    if (in_header) first->metadata[key] = value;
    if (!in_header || random() % 3 == 0) index.set_metadata(key, value);
    if (!in_header && first != shards.end() && random() % 3 == 0) first->metadata[key] = "hidden by the index";
  }
  if (random() % 2) {
    index.set_total(total_size_key, total);
    index.set_total(total_parameters_key, elements);
  }
  for (size_t i = 0; i < names.size(); ++i)
    if (!shards[i].tensors.empty()) disk.add_file(folder + "/" + names[i], shards[i].file());
  disk.add_file(index_in(folder), index.spell());
}

// What a reader that follows the index finds.
inline Holdings in_shards(SimEnv &disk, const std::string &folder) {
  std::string json = disk.contents(index_in(folder));
  const size_t n = json.size();
  json.resize(n + header_padding);
  auto index = ShardIndex::parse(json.data(), n, 1);
  EXPECT_TRUE(is_ok(index));
  Holdings h;
  if (!index) return h;
  uint64_t total = 0, elements = 0;
  for (uint32_t i = 0; i < index->shards().size(); ++i) {
    const Holdings shard = holdings_of(disk.contents(folder + "/" + index->shards()[i]));
    EXPECT_EQ(shard.tensors.size(), index->counts()[i]);
    for (const TestTensor &t : shard.tensors) {
      EXPECT_EQ(index->shard_of(t.name), i) << t.name;
      h.tensors.push_back(t);
      total += t.bytes.size();
      elements += elements_of(t.shape);
    }
    if (i == 0) h.metadata = shard.metadata;
  }
  for (const auto &pair : index->metadata())
    if (!is_total(pair.key)) h.metadata[pair.key] = pair.text;
  if (index->total(total_size_key)) {
    EXPECT_EQ(index->total(total_size_key), total);
    EXPECT_EQ(index->total(total_parameters_key), elements);
  }
  return by_name(h);
}

// What a handle shows, with deltas on the path.
inline Holdings seen_through(os::Env &env, const std::string &path, const std::vector<std::string> &deltas) {
  store::OpenOptions options;
  options.deltas = deltas;
  auto opened = store::open_path(env, path, options);
  EXPECT_TRUE(is_ok(opened));
  Holdings h;
  if (!opened) return h;
  const store::Catalogue catalogue = (*opened)->catalogue();
  for (size_t i = 0; i < catalogue.size(); ++i) {
    const store::Place place = catalogue.at(i).value();
    const TensorView t = place.tensor();
    EXPECT_EQ(catalogue.find(t.name).value().global, i);
    const auto *bytes = reinterpret_cast<const char *>(place.member->view(*place.snapshot, place.index).value());
    h.tensors.push_back({std::string(t.name),
                         t.dtype,
                         {t.shape.begin(), t.shape.end()},
                         {bytes ? bytes : "", static_cast<size_t>(t.nbytes)}});
  }
  for (size_t i = 0; i < catalogue.metadata_size(); ++i) {
    const auto [key, value] = catalogue.metadata_at(i);
    EXPECT_EQ(catalogue.metadata_find(key), value);
    h.metadata[std::string(key)] = value;
  }
  return h;
}

// Something like `from`: with other bytes here, without a tensor there.
inline Holdings random_change(const Holdings &from, std::mt19937 &random) {
  Holdings h;
  const bool bytes_only = random() % 3 == 0;
  for (TestTensor t : from.tensors) {
    switch (bytes_only ? random() % 2 : random() % 6) {
      case 0: break;
      case 1:
        if (!t.bytes.empty()) t.bytes[random() % t.bytes.size()] ^= 1;
        break;
      case 2: continue;
      case 3: t = {t.name, Dtype::U8, {t.bytes.size()}, t.bytes}; break;
      case 4: t.bytes = pattern(t.bytes.size(), static_cast<unsigned>(random())); break;
      case 5: t = u8_tensor(t.name, random() % 3000, static_cast<unsigned>(random())); break;
    }
    h.tensors.push_back(std::move(t));
  }
  h.metadata = from.metadata;
  if (bytes_only) return h;
  for (size_t i = 0, n = random() % 3; i < n; ++i)
    h.tensors.insert(h.tensors.begin() + static_cast<ptrdiff_t>(random() % (h.tensors.size() + 1)),
                     u8_tensor(text("new", random()), random() % 5000, static_cast<unsigned>(random())));
  if (random() % 4 == 0) std::shuffle(h.tensors.begin(), h.tensors.end(), random);
  if (random() % 2) h.metadata[text("k", random() % 4)] = "set";
  if (random() % 3 == 0) h.metadata.erase("k1");
  // Tensors of no bytes lie at one offset with what follows them: as a file has them.
  return holdings_of(h.file());
}

}  // namespace st::testing
