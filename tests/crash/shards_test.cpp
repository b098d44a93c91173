// Transactions across shards on a simulated disk: the power cut before every
// change of it and after every acknowledgement, then recovered through the index,
// or by opening one shard alone; and every system call made to fail. On every
// disk, before recovery and after, each file parses, and whoever follows the
// index finds each tensor in the shard that it names.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>
#include <random>
#include <unordered_set>

#include "fault_env.h"
#include "format/shard_index.h"
#include "layout_workload.h"
#include "store/recover_all.h"
#include "store/shards.h"
#include "store/transaction.h"
#include "write/super_recover.h"

namespace st::testing {
namespace {

const std::string folder = "/models", index_path = folder + "/m.safetensors.index.json";
const std::vector<std::string> shard_names = {"m-1.safetensors", "m-2.safetensors", "m-3.safetensors"};

// What a checkpoint holds, whichever shard holds it: tensors, and metadata of the index but total_size.
struct Whole {
  std::map<std::string, ModelTensor> tensors;
  std::map<std::string, std::string> metadata;
  bool operator==(const Whole &) const = default;
};

std::string fill(size_t n, int seed) {
  std::string bytes(n, '\0');
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<char>(seed * 37 + static_cast<int>(i / 64) * 5 + static_cast<int>(i));
  return bytes;
}

ModelTensor u8(size_t n, int seed) {
  return {Dtype::U8, {n}, fill(n, seed)};
}

std::string file_of_model(const std::map<std::string, ModelTensor> &held) {
  std::vector<HeaderTensor> tensors;
  std::string data;
  for (const auto &[name, t] : held) {
    tensors.push_back({name, t.dtype, t.shape, data.size(), t.bytes.size()});
    data += t.bytes;
  }
  return *serialise_header(tensors, {}, 8, 0) + data;
}

const std::map<std::string, ModelTensor> first_shards[] = {{{"a", u8(700, 1)}, {"b", u8(300, 2)}}, {{"c", u8(600, 3)}}, {{"d", u8(520, 4)}, {"e", u8(40, 5)}}};

SimEnv shards_disk(const Disk &kind) {
  SimEnv env;
  env.reflink = kind.reflink;
  env.copies_ranges = kind.copies_ranges;
  env.mkdirat(AT_FDCWD, folder.c_str(), 0755);
  const int root = env.openat(AT_FDCWD, "/", O_RDONLY, 0);
  env.fsync(root);
  env.close(root);
  ShardIndex index = ShardIndex::of(shard_names);
  uint64_t total = 0;
  for (size_t i = 0; i < 3; ++i) {
    env.add_file(folder + "/" + shard_names[i], file_of_model(first_shards[i]));
    for (const auto &[name, t] : first_shards[i]) {
      index.assign(name, shard_names[i]);
      total += t.bytes.size();
    }
  }
  index.set_metadata("origin", "here");
  index.set_total_size(total);
  env.add_file(index_path, index.spell());
  return env;
}

Whole first_whole() {
  Whole whole;
  for (const auto &shard : first_shards) whole.tensors.insert(shard.begin(), shard.end());
  whole.metadata = {{"origin", "here"}};
  return whole;
}

// As a reader without libst sees it, who follows the index. What is wrong, or what it holds.
struct Seen {
  std::string wrong;
  Whole whole;
};
Seen follow_index(const SimEnv &env) {
  Seen seen;
  std::string json = env.contents(index_path);
  const size_t n = json.size();
  json.resize(n + header_padding);
  auto index = ShardIndex::parse(json.data(), n, 1);
  if (!index) return {"the index: " + index.error().message, {}};
  for (const std::string &shard : shard_names) {
    const auto model = model_of(env.contents(folder + "/" + shard));
    if (!model) return {shard + " is invalid", {}};
    const auto &names = index->shards();
    const auto number = std::find(names.begin(), names.end(), shard) - names.begin();
    if (number == static_cast<long>(names.size())) continue;
    for (const std::string_view name : index->names_in(static_cast<uint32_t>(number))) {
      const auto found = model->tensors.find(std::string(name));
      if (found == model->tensors.end()) return {text(name, " is not in ", shard), {}};
      seen.whole.tensors.insert(*found);
    }
  }
  for (const auto &pair : index->metadata())
    if (pair.key != total_size_key) seen.whole.metadata[pair.key] = pair.text;
  return seen;
}

// Names only: bytes may be a mix of old and new, which a patch does not promise against.
std::string classify(const SimEnv &env, const Whole &old, const Whole &fresh) {
  const Seen seen = follow_index(env);
  if (!seen.wrong.empty()) return seen.wrong;
  if (seen.whole == old) return "old";
  if (seen.whole == fresh) return "new";
  return "mixed";
}

// Also what only libst checks: the index and the shards say the same, and total_size is right.
std::string check_strictly(SimEnv &env) {
  auto opened = store::Shards::open(env, index_path, {});
  if (!opened) return opened.error().message;
  uint64_t total = 0;
  const store::Catalogue catalogue = (*opened)->catalogue();
  for (size_t i = 0; i < catalogue.size(); ++i) {
    auto place = catalogue.at(i);
    if (!place) return place.error().message;
    total += place->tensor().nbytes;
  }
  if (catalogue.metadata_find(total_size_key) != std::to_string(total)) return "total_size is wrong";
  return {};
}

enum class By { index, one_shard, recover };

// Recovers a disk in one way or the other, and says what it then holds.
std::string after_recovery(const SimDisk &disk, const Whole &old, const Whole &fresh, By by, size_t shard) {
  SimEnv env(disk);
  if (by == By::index) {
    auto opened = store::Shards::open(env, index_path, {.writable = true});
    if (!opened) return "does not open: " + opened.error().message;
    for (size_t i = 0; i < (*opened)->members(); ++i)
      if (auto member = (*opened)->member(i); !member) return "does not open: " + member.error().message;
  } else if (by == By::one_shard) {
    auto opened = store::Checkpoint::open(env, folder + "/" + shard_names[shard], {});
    if (!opened) return "does not open: " + opened.error().message;
    // What one shard decides must hold for all.
    opened->reset();
    const std::string alone = classify(env, old, fresh);
    auto rest = store::recover_all(env, index_path, {}, {});
    if (!rest) return "does not recover: " + rest.error().message;
    if (rest->aside > 0) return "moved aside: " + rest->why_aside;
    if (alone != "old" && alone != "new" && alone != "mixed") return alone;
  }
  auto rest = store::recover_all(env, index_path, {}, {});
  if (!rest) return "does not recover: " + rest.error().message;
  if (rest->aside > 0) return "moved aside: " + rest->why_aside;
  if (const std::string wrong = check_strictly(env); !wrong.empty()) return wrong;
  for (const std::string &name : env.names(folder))
    if (name.starts_with(".") && name.find(".st-tmp-") == std::string::npos) return "rubbish is left: " + name;
  if (env.open_files() != 0) return "descriptors are left open";
  return classify(env, old, fresh);
}

using Stage = std::function<Result<void>(store::AnyTransaction &, Whole &, std::vector<std::string> &keep)>;
struct Operation {
  std::string_view name;
  Stage stage;
  bool patches = false;  // bytes may be mixed before recovery
};

store::NewBytes value(const ModelTensor &t, std::vector<std::string> &keep) {
  keep.push_back(t.bytes);
  return {static_cast<uint32_t>(t.dtype), t.shape, keep.back().data(), keep.back().size()};
}
Stage update(std::string name, int seed) {
  return [=](store::AnyTransaction &txn, Whole &whole, std::vector<std::string> &keep) {
    ModelTensor &t = whole.tensors[name];
    t.bytes = fill(t.bytes.size(), seed);
    return txn.update(name, value(t, keep));
  };
}
Stage put(std::string name, ModelTensor t) {
  return [=](store::AnyTransaction &txn, Whole &whole, std::vector<std::string> &keep) {
    whole.tensors[name] = t;
    return txn.put(name, value(t, keep));
  };
}
Stage remove(std::string name) {
  return [=](store::AnyTransaction &txn, Whole &whole, std::vector<std::string> &) {
    whole.tensors.erase(name);
    return txn.remove(name);
  };
}
Stage rename(std::string from, std::string to) {
  return [=](store::AnyTransaction &txn, Whole &whole, std::vector<std::string> &) {
    auto node = whole.tensors.extract(from);
    node.key() = to;
    whole.tensors.insert(std::move(node));
    return txn.rename(from, to);
  };
}
Stage metadata(std::string key, std::string text) {
  return [=](store::AnyTransaction &txn, Whole &whole, std::vector<std::string> &) {
    whole.metadata[key] = text;
    return txn.set_metadata(key, text);
  };
}
Stage all(std::vector<Stage> stages) {
  return [=](store::AnyTransaction &txn, Whole &whole, std::vector<std::string> &keep) -> Result<void> {
    for (const Stage &stage : stages)
      if (auto ok = stage(txn, whole, keep); !ok) return ok;
    return {};
  };
}

const std::vector<Operation> operations = {
    {"updates in two shards", all({update("a", 31), update("d", 32)}), true},
    {"updates in all shards", all({update("b", 33), update("c", 34), update("e", 35)}), true},
    {"put of a new tensor", put("new", u8(90, 36))},
    {"delete", remove("b")},
    {"rename", rename("a", "z")},
    {"metadata", metadata("origin", "there")},
    {"delete in one shard, put in another", all({remove("d"), put("b", u8(30, 37)), put("new", u8(20, 38))})},
    {"a tensor leaves for another shard", all({remove("a"), put("d", u8(10, 39)), put("a", u8(50, 40))})},
    {"everything at once", all({update("c", 41), rename("b", "y"), remove("e"), put("new", u8(80, 42)), metadata("k", "v")}), true},
    {"delete of all that a shard holds", remove("c")},
};

Result<void> run(store::Shards &shards, const Operation &operation, Whole &whole) {
  store::TransactionOptions options;
  options.lock_timeout_ms = 50;
  std::vector<std::string> keep;
  keep.reserve(16);  // what is borrowed does not move
  auto begun = shards.begin(options);
  if (!begun) return Failure(std::move(begun.error()));
  if (auto staged = operation.stage(**begun, whole, keep); !staged) return staged;
  return (*begun)->commit();
}

std::unique_ptr<store::Shards> open_shards(os::Env &env) {
  store::OpenOptions options;
  options.writable = true;
  options.lock_timeout_ms = 50;
  auto opened = store::Shards::open(env, index_path, options);
  EXPECT_TRUE(opened) << opened.error().message;
  return opened ? std::move(*opened) : nullptr;
}

size_t states = 0;

class Cuts {
 public:
  void cut(const SimDisk &disk, const Whole &old, const Whole &fresh, const Operation &operation, bool acknowledged, const std::string &where) {
    if (::testing::Test::HasFailure()) return;
    const auto changes = pending_changes(disk);
    const bool every = changes.size() <= 5;
    for (uint32_t i = 0; i < (every ? 1u << changes.size() : 24u); ++i) {
      std::vector<uint32_t> keep(changes.size());
      for (size_t k = 0; k < keep.size(); ++k)
        keep[k] = every ? i >> k & 1 : random_() % 3 < 2 ? static_cast<uint32_t>(random_() % 2) : static_cast<uint32_t>(2 + random_() % 1000);
      const SimDisk left = after_cut(disk, changes, keep);
      if (!known_.insert(fingerprint(left) + acknowledged).second) continue;
      const std::string crashed = classify(SimEnv(left), old, fresh);
      const bool bearable = crashed == "old" || crashed == "new" || crashed == "mixed";
      ASSERT_TRUE(bearable) << where << ", before recovery: " << crashed;
      static_cast<void>(operation);
      const size_t shard = states % 3;
      const By by = static_cast<By>(states / 3 % 3);
      ++states;
      const std::string recovered = after_recovery(left, old, fresh, by, shard);
      const std::string how = text(where, ", cut ", i, ", recovered by ", by == By::index ? "the index" : by == By::one_shard ? "shard " + shard_names[shard] : "st_recover");
      if (acknowledged) {
        ASSERT_EQ(recovered, "new") << how;
      } else {
        ASSERT_TRUE(recovered == "old" || recovered == "new") << how << ": " << recovered;
      }
    }
  }

 private:
  std::unordered_set<uint64_t> known_;
  std::mt19937 random_{11};
};

TEST(ShardCuts, EveryCutLeavesAllShardsOldOrAllNew) {
  for (const Disk &kind : {disks[0], disks[2]})
    for (const Operation &operation : operations) {
      SimEnv env = shards_disk(kind);
      Cuts cuts;
      const std::string where = text(operation.name, ", ", kind.name);
      auto shards = open_shards(env);
      ASSERT_TRUE(shards);
      const Whole old = first_whole();
      Whole fresh = old;
      std::vector<SimDisk> moments;
      env.before_change = [&] { moments.push_back(env.disk()); };
      auto done = run(*shards, operation, fresh);
      env.before_change = nullptr;
      ASSERT_TRUE(done) << where << ": " << done.error().message;
      for (const SimDisk &m : moments) cuts.cut(m, old, fresh, operation, false, where);
      cuts.cut(env.disk(), old, fresh, operation, true, where + ", acknowledged");
      shards.reset();
      cuts.cut(env.disk(), old, fresh, operation, true, where + ", closed");
      if (HasFailure()) return;
    }
  std::printf("transactions on shards: %zu distinct disks after a cut\n", states);
}

// A recovery that is cut itself is gone on with by the next.
TEST(ShardCuts, EveryCutOfARecoveryLeavesAllShardsOldOrAllNew) {
  size_t recoveries = 0;
  for (const size_t chosen : {size_t{0}, size_t{6}, size_t{8}}) {
    const Operation &operation = operations[chosen];
    SimEnv env = shards_disk(disks[0]);
    auto shards = open_shards(env);
    const Whole old = first_whole();
    Whole fresh = old;
    std::vector<SimDisk> moments;
    env.before_change = [&] { moments.push_back(env.disk()); };
    ASSERT_TRUE(run(*shards, operation, fresh));
    env.before_change = nullptr;
    for (size_t m = 0; m < moments.size(); m += 2) {
      const auto changes = pending_changes(moments[m]);
      SimEnv crashed(after_cut(moments[m], changes, std::vector<uint32_t>(changes.size(), 1)));
      std::vector<SimDisk> inner;
      crashed.before_change = [&] { inner.push_back(crashed.disk()); };
      static_cast<void>(store::recover_all(crashed, index_path, {}, {}));
      crashed.before_change = nullptr;
      Cuts cuts;
      for (const SimDisk &disk : inner) {
        ++recoveries;
        cuts.cut(disk, old, fresh, operation, false, text(operation.name, ", recovery cut at moment ", m));
      }
      if (HasFailure()) return;
    }
  }
  std::printf("recoveries of shards that were cut: %zu\n", recoveries);
}

TEST(ShardFaults, EveryFailingCallFailsCleanly) {
  struct Fault {
    int error;
    bool sticky;
  };
  size_t trials = 0;
  for (const size_t chosen : {size_t{0}, size_t{6}, size_t{8}})
    for (const Fault &fault : {Fault{-EIO, false}, {-EIO, true}, {-ENOSPC, false}, {FaultEnv::short_io, false}})
      for (size_t n = 0;; ++n, ++trials) {
        const Operation &operation = operations[chosen];
        SimEnv disk = shards_disk(disks[0]);
        FaultEnv env(disk);
        auto shards = open_shards(env);
        ASSERT_TRUE(shards);
        size_t calls = 0;
        bool hit = false;
        env.before = [&](Call call) {
          if (!can_fail(call)) return 0;
          const size_t k = calls++;
          if (k != n && !(fault.sticky && k > n)) return 0;
          hit = true;
          if ((call == Call::fsync || call == Call::fdatasync) && fault.error < 0) {
            disk.sync_fault = [&disk, error = fault.error] { return disk.sync_fault = nullptr, error; };
            return 0;
          }
          return fault.error;
        };
        const Whole old = first_whole();
        Whole fresh = old;
        auto answer = run(*shards, operation, fresh);
        env.before = nullptr;
        disk.sync_fault = nullptr;
        if (!answer) {  // staging may have stopped half-way; the whole of it is what a commit would have done
          SimEnv other = shards_disk(disks[0]);
          auto whole = open_shards(other);
          fresh = old;
          ASSERT_TRUE(run(*whole, operation, fresh));
        }
        const std::string where = text(operation.name, ", call ", n, ", errno ", -fault.error, fault.sticky ? " for good: " : ": ", answer ? "ok" : answer.error().message);
        const bool open_outcome = !answer && answer.error().status == Status::needs_recovery;
        if (!answer) {
          EXPECT_NE(answer.error().status, Status::internal) << where;
          EXPECT_NE(answer.error().message, "") << where;
          if (!open_outcome) {
            EXPECT_EQ(classify(disk, old, fresh), "old") << where;
          }
        }
        const SimDisk crashed = disk.disk();
        shards.reset();
        EXPECT_EQ(disk.open_files(), 0u) << where;
        const auto changes = pending_changes(crashed);
        for (const uint32_t keep : {0u, 1u}) {
          const SimDisk left = after_cut(crashed, changes, std::vector<uint32_t>(changes.size(), keep));
          const std::string found = after_recovery(left, old, fresh, static_cast<By>(n % 3), n % 3);
          EXPECT_TRUE(answer ? found == "new" : open_outcome ? found == "old" || found == "new" : found == "old") << where << ", then a cut keeping " << keep << ": " << found;
        }
        if (!hit || HasFailure()) break;
      }
  std::printf("failing calls of transactions on shards: %zu trials\n", trials);
}

}  // namespace
}  // namespace st::testing
