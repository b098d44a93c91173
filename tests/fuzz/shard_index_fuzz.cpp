// What an enemy may put beside shards. Either any text as the index: an accepted
// one names files of its own folder only, and says the same after being spelled
// anew and after each edit. It opens, reads and changes without a path that leaves
// the folder. Or any text as the list of old shards: hostile_list.h. Or a
// folder as a crash leaves it, damaged: hostile_folder.h.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <set>
#include <string>

#include "folder_watch.h"
#include "format/header.h"
#include "format/shard_index.h"
#include "hostile_folder.h"
#include "hostile_list.h"
#include "require.h"
#include "shards_workload.h"

namespace st::fuzz {
namespace {

Result<ShardIndex> parse(const std::string &json, uint64_t seed) {
  const std::string room = json + std::string(header_padding, '"');
  return ShardIndex::parse(room.data(), json.size(), seed);
}

// All that an index says, as text.
std::string described(const ShardIndex &index) {
  std::set<std::string> lines;
  const auto names = index.names_by_shard();
  for (uint32_t i = 0; i < index.shards().size(); ++i)
    for (const std::string_view name : names[i])
      lines.insert(text("t ", in_quotes(name), " in ", in_quotes(index.shards()[i])));
  for (const ShardIndex::Pair &p : index.metadata())
    lines.insert(text("m ", in_quotes(p.key), " is ", in_quotes(p.text), " by ", in_quotes(p.json)));
  std::string all;
  for (const std::string &line : lines) all += line + '\n';
  return all;
}

void check_sound(const ShardIndex &index) {
  uint64_t sum = 0;
  const auto by_shard = index.names_by_shard();
  for (uint32_t i = 0; i < index.shards().size(); ++i) {
    const std::string &shard = index.shards()[i];
    REQUIRE(!shard.empty() && shard != "." && shard != ".." && shard.find('/') == std::string::npos, in_quotes(shard));
    REQUIRE(i == 0 || index.shards()[i - 1] < shard, "shards out of order: ", in_quotes(shard));
    const auto &names = by_shard[i];
    REQUIRE(names.size() == index.counts()[i], names.size(), " names, not ", index.counts()[i]);
    for (const std::string_view name : names) REQUIRE(index.shard_of(name) == i, in_quotes(name), " is not found");
    sum += names.size();
  }
  REQUIRE(sum == index.size(), sum, " of ", index.size());
  for (const ShardIndex::Pair &p : index.metadata())
    REQUIRE(index.metadata_find(p.key) == p.text, "key ", in_quotes(p.key), " is not found");
}

// Spelled anew it says the same; spelled once more, in the same bytes.
void check_spelling(const ShardIndex &index, std::string_view after) {
  const std::string spelled = index.spell();
  const auto again = parse(spelled, 2);
  REQUIRE(again, said(again), " after ", after);
  REQUIRE(described(*again) == described(index), described(*again), " | ", described(index), " after ", after);
  REQUIRE(again->spell() == spelled, again->spell(), " | ", spelled, " after ", after);
  check_sound(*again);
}

void check_edits(ShardIndex index) {
  const std::string first = index.shards().empty() ? std::string() : std::string(index.names_by_shard()[0].front());
  index.set_total(total_size_key, 1234567);
  REQUIRE(index.total(total_size_key) == 1234567, "another total_size");
  index.set_metadata("k", "v");
  index.set_metadata("k", std::string("\0\"\xE5\xB1\xA4", 5));
  check_spelling(index, "an edit of metadata");
  if (!index.metadata().empty()) {
    const std::string key = index.metadata().front().key;
    index.set_metadata(key, "another");
    REQUIRE(index.metadata_find(key) == "another", in_quotes(key));
    check_spelling(index, "another text of a key");
    index.set_metadata(key, std::nullopt);
    REQUIRE(!index.metadata_find(key), in_quotes(key), " is still there");
  }
  index.assign("new", "m-1.safetensors");
  index.assign("new", "another shard");
  index.assign(first, "another shard");
  check_sound(index);
  check_spelling(index, "moving tensors");
  index.remove(first);
  REQUIRE(!index.shard_of(first), in_quotes(first), " is still there");
  check_spelling(index, "removing a tensor");
}

// Shards of a honest checkpoint under this index.
void check_use(const std::string &json) {
  static const testing::SimDisk honest = [] {
    testing::SimEnv env = testing::shards_disk(testing::disks[0]);
    env.add_file("/outside.safetensors", env.contents(testing::shards_folder + "/" + testing::shard_names[0]));
    return env.disk();
  }();
  FolderWatch env(honest, testing::shards_folder);
  env.reflink = true;
  env.add_file(testing::index_path, json);
  {
    const auto opened = open_writable(env);
    if (!opened) return;
    read_all(**opened);
    change_something(**opened);
    read_all(**opened);
  }
  REQUIRE(env.open_files() == 0, env.open_files(), " descriptors are left open");
}

void check_text(const std::string &json) {
  if (json.starts_with(old_list_begins)) return check_old_list(json);
  const auto index = parse(json, 1);
  if (!index) {
    const Status s = index.error().status;
    REQUIRE(s == Status::shard_index || s == Status::shard_duplicate || s == Status::shard_path, said(index));
  } else {
    check_sound(*index);
    check_spelling(*index, "reading it");
    check_edits(*parse(json, 3));
  }
  check_use(json);
}

}  // namespace
}  // namespace st::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  FuzzedDataProvider in(data, size);
  if (in.ConsumeBool())
    st::fuzz::check_text(in.ConsumeRemainingBytesAsString());
  else
    st::fuzz::check_hostile_folder(in);
  return 0;
}
