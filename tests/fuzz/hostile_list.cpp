#include "hostile_list.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/hash.h"
#include "engine/recover_all.h"
#include "file/transaction.h"
#include "folder_watch.h"
#include "hostile_folder.h"
#include "located.h"
#include "newfile/names.h"
#include "require.h"
#include "shards/old_list.h"
#include "shards/old_shards.h"
#include "shards_workload.h"

namespace st::fuzz {
namespace {

using testing::index_path;
using testing::shards_folder;
using testing::SimDisk;
using testing::SimEnv;

const std::string old_shard = "another.safetensors";
const std::string list_path = index_path + ".st-old";

std::string in_checkpoint(const std::string &name) {
  return shards_folder + "/" + name;
}

const SimDisk &honest_checkpoint() {
  static const SimDisk disk = [] {
    SimEnv env = testing::shards_disk(testing::disks[0]);
    const std::string shard = env.contents(in_checkpoint(testing::shard_names[0]));
    env.add_file("/outside.safetensors", shard);
    env.add_file(in_checkpoint(old_shard), shard);
    return env.disk();
  }();
  return disk;
}

// The old shard's inode, size and time.
const std::string &identity() {
  static const std::string known = [] {
    SimEnv env(honest_checkpoint());
    const auto is = store::OldShards::shard_at(testing::located(env, in_checkpoint(old_shard)), 0);
    REQUIRE(is, said(is));
    return text(is->inode, " ", is->size, " ", is->changed_ns);
  }();
  return known;
}

// With the hash that it should have.
std::string sealed(const std::string &list) {
  const size_t last = list.size() < 2 ? 0 : list.rfind('\n', list.size() - 2) + 1;
  const std::string before = list.substr(0, last);
  char line[32];
  std::snprintf(line, sizeof line, "end %016llx\n",
                static_cast<unsigned long long>(hash64(before.data(), before.size())));
  return before + line;
}

// The shards that may go by this list.
std::set<std::string> names_that_may_go(const std::string &list) {
  std::set<std::string> all, names;
  const auto parsed = write::parse_old_list(list);
  if (!parsed) return names;
  for (const write::OldShard &old : *parsed) {
    REQUIRE(write::may_be_listed(old.name) && old.name.find('/') == std::string::npos, in_quotes(old.name));
    REQUIRE(all.insert(old.name).second, in_quotes(old.name), " comes twice");
    if (old.name == old_shard && text(old.inode, " ", old.size, " ", old.changed_ns) == identity())
      names.insert(old.name);
  }
  REQUIRE(write::parse_old_list(write::spell(*parsed)) == parsed, in_quotes(list),
          " is another list when spelled anew");
  return names;
}

// Under new names, so the list is read, and written anew.
void rename_something(SimEnv &env) {
  const auto opened = open_writable(env);
  REQUIRE(opened, said(opened));
  store::TransactionOptions options;
  options.lock_timeout_ms = 0;
  options.new_names = true;
  auto begun = (*opened)->begin(options);
  REQUIRE(begun && (*begun)->rename("a", "z"), "a list of old shards is in the way");
  const auto done = (*begun)->commit();
  REQUIRE(done || done.error().status != Status::internal, said(done));
}

void check_what_goes(const std::string &list) {
  const std::set<std::string> listed = names_that_may_go(list);
  for (const bool commits : {false, true}) {
    FolderWatch env(honest_checkpoint(), shards_folder);
    env.add_file(list_path, list);
    const std::vector<std::string> names = env.names(shards_folder);
    if (commits)
      rename_something(env);
    else
      static_cast<void>(store::recover_all(env, index_path, {0, nullptr, nullptr}, {}));
    const std::vector<std::string> left = env.names(shards_folder);
    for (const std::string &name : names) {
      if (!name.ends_with(".safetensors")) continue;
      const bool is_there = std::find(left.begin(), left.end(), name) != left.end();
      REQUIRE(is_there || listed.contains(name), in_quotes(name), " was removed");
    }
    const testing::Seen seen = testing::follow_index(env);
    REQUIRE(seen.wrong.empty(), seen.wrong);
    REQUIRE(env.open_files() == 0, env.open_files(), " descriptors are left open");
  }
}

}  // namespace

void check_old_list(std::string list) {
  for (size_t at = 0; list.size() < 4096 && (at = list.find('@', at)) != std::string::npos; at += identity().size())
    list.replace(at, 1, identity());
  check_what_goes(list);
  check_what_goes(sealed(list));
}

}  // namespace st::fuzz
