#include "hostile_folder.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/hash.h"
#include "chosen_cut.h"
#include "engine/recover_all.h"
#include "folder_watch.h"
#include "format/header.h"
#include "journal/roll_forward.h"
#include "journal/super_recover.h"
#include "located.h"
#include "newfile/temporary_file.h"
#include "require.h"
#include "shards_workload.h"

namespace st::fuzz {
namespace {

using testing::index_path;
using testing::shard_names;
using testing::shards_folder;
using testing::SimDisk;
using testing::SimEnv;
using write::CommitRecord;
using write::SuperManifest;
using write::SuperParticipant;

using Files = std::map<std::string, std::string>;  // name in the folder, bytes

const std::string index_name = "m.safetensors.index.json";
const std::string journal_suffix = ".st-journal";
const os::LockWait at_once{0, nullptr, nullptr};

// All disks on the way of some commits.
const std::vector<SimDisk> &moments() {
  static const std::vector<SimDisk> all = [] {
    std::vector<SimDisk> disks;
    for (const testing::ShardOperation &operation : testing::shard_operations()) {
      SimEnv env = testing::shards_disk(testing::disks[0]);
      const std::string shard = env.contents(shards_folder + "/" + shard_names[0]);
      env.add_file("/outside.safetensors", shard);
      env.add_file(shards_folder + "/another.safetensors", shard);
      auto opened = open_writable(env);
      REQUIRE(opened, said(opened));
      testing::Model whole = testing::first_whole();
      env.before_change = [&] { disks.push_back(env.disk()); };
      const auto done = testing::run(**opened, operation, whole);
      REQUIRE(done, said(done));
      env.before_change = nullptr;
    }
    return disks;
  }();
  return all;
}

std::string in_folder(const std::string &name) {
  return shards_folder + "/" + name;
}

bool is_folder(const std::string &name) {
  return name.ends_with(journal_suffix);
}

// What a reader might look at: all but temporaries and journal folders.
Files visible(const SimEnv &env) {
  Files files;
  for (const std::string &name : env.names(shards_folder))
    if (!name.starts_with(".") && !is_folder(name)) files[name] = env.contents(in_folder(name));
  return files;
}

std::span<const std::byte> bytes_of(const std::string &s) {
  return {reinterpret_cast<const std::byte *>(s.data()), s.size()};
}

// A journal taken apart, if it is committed and its manifest lies in it.
struct Journal {
  std::string path, bytes;
  CommitRecord record;
  std::string manifest;
};
std::vector<Journal> committed_journals(const SimEnv &env, const std::string &of) {
  std::vector<Journal> found;
  const std::string folder = in_folder(of) + journal_suffix;
  for (const std::string &name : env.names(folder)) {
    Journal j{folder + "/" + name, env.contents(folder + "/" + name), {}, {}};
    std::string block = j.bytes.substr(0, write::header_bytes);
    block.resize(write::header_bytes);
    if (write::decode(bytes_of(block), &j.record) != write::JournalState::committed) continue;
    const uint64_t unit = j.record.is_super() ? 1 : j.record.range_bytes();
    if (j.record.manifest > j.bytes.size() || j.record.ranges > (j.bytes.size() - j.record.manifest) / unit) continue;
    j.manifest = j.bytes.substr(j.record.manifest, j.record.ranges * unit);
    found.push_back(std::move(j));
  }
  return found;
}

std::optional<SuperManifest> list_of(const Journal &j) {
  if (!j.record.is_super() || hash64(j.manifest.data(), j.manifest.size()) != j.record.manifest_hash)
    return std::nullopt;
  return write::decode_super(bytes_of(j.manifest));
}

// Puts the parts together again, with good hashes.
void put_back(SimEnv &env, Journal &j) {
  j.record.ranges = j.manifest.size() / (j.record.is_super() ? 1 : j.record.range_bytes());
  j.record.manifest_hash = hash64(j.manifest.data(), j.manifest.size());
  j.bytes.resize(std::min<size_t>(j.bytes.size(), j.record.manifest));
  j.bytes += j.manifest;
  const auto block = write::encode(j.record);
  j.bytes.replace(0, block.size(), reinterpret_cast<const char *>(block.data()), block.size());
  env.add_file(j.path, j.bytes, 0600);
}

class Damage {
 public:
  Damage(FuzzedDataProvider &in, SimEnv &env) : in_(in), env_(env) {}
  void one() {
    switch (in_.ConsumeIntegralInRange(0, 9)) {
      case 0:
      case 1:
      case 2:
      case 3: super_fields(); break;
      case 4: record_fields(); break;
      case 5: flip(any_journal()); break;
      case 6: flip(in_folder(any_file())); break;
      case 7: copy(); break;
      case 8: remove(); break;
      case 9: env_.add_file(index_path, in_.ConsumeRandomLengthString(300)); break;
    }
  }

 private:
  std::string any_file() {
    const auto names = env_.names(shards_folder);
    const std::string name = names[in_.ConsumeIntegralInRange<size_t>(0, names.size() - 1)];
    return is_folder(name) ? index_name : name;
  }
  std::string any_journal() {
    const std::string folder =
        in_folder(in_.ConsumeBool() ? index_name : shard_names[in_.ConsumeIntegralInRange(0, 2)]);
    const auto names = env_.names(folder + journal_suffix);
    if (names.empty()) return index_path;
    return folder + journal_suffix + "/" + names[in_.ConsumeIntegralInRange<size_t>(0, names.size() - 1)];
  }
  // Names that a list has, could have, and must not have.
  std::string any_name(const std::string &file) {
    const std::string prefix = write::temporary_prefix(file, write::undecided_infix);
    const std::string names[] = {"",
                                 ".",
                                 "..",
                                 "../outside.safetensors",
                                 "/outside.safetensors",
                                 "another.safetensors",
                                 index_name,
                                 index_name + journal_suffix,
                                 prefix,
                                 prefix + "/../../outside.safetensors",
                                 prefix + std::string("\0x", 2),
                                 prefix + "0123456789abcdef",
                                 std::string(256, 'x'),
                                 std::string(70000, 'y')};
    return in_.ConsumeBool() ? any_file() : in_.PickValueInArray(names);
  }

  void super_fields() {
    for (Journal &j : committed_journals(env_, index_name)) {
      auto list = list_of(j);
      if (!list) continue;
      switch (in_.ConsumeIntegralInRange(0, 7)) {
        case 0:
          if (!list->parts.empty()) list->parts.pop_back();
          break;
        case 1: list->parts.push_back(list->parts.empty() ? list->index : list->parts.back()); break;
        case 2: std::reverse(list->parts.begin(), list->parts.end()); break;
        default: {
          const size_t n = in_.ConsumeIntegralInRange<size_t>(0, list->parts.size());
          change(n == list->parts.size() ? list->index : list->parts[n]);
          if (in_.ConsumeBool())
            std::sort(list->parts.begin(), list->parts.end(),
                      [](const SuperParticipant &a, const SuperParticipant &b) { return a.file < b.file; });
        }
      }
      const auto manifest = write::encode(*list);
      j.manifest.assign(reinterpret_cast<const char *>(manifest.data()), manifest.size());
      if (in_.ConsumeIntegralInRange(0, 7) == 1)
        j.manifest.resize(in_.ConsumeIntegralInRange<size_t>(0, j.manifest.size()));
      put_back(env_, j);
    }
  }
  void change(SuperParticipant &e) {
    std::string *names[] = {&e.file, &e.journal, &e.first, &e.second};
    write::Form *forms[] = {&e.old, &e.first_form, &e.second_form};
    const int what = in_.ConsumeIntegralInRange(0, 9);
    if (what < 5) {
      *names[what % 4] = any_name(e.file);
    } else if (what < 7) {
      std::swap(*names[in_.ConsumeIntegralInRange(0, 3)], *names[in_.ConsumeIntegralInRange(0, 3)]);
    } else if (what == 7) {
      std::swap(*forms[in_.ConsumeIntegralInRange(0, 2)], *forms[in_.ConsumeIntegralInRange(0, 2)]);
    } else if (what == 8) {  // as it would be of that file
      write::Form &form = *forms[in_.ConsumeIntegralInRange(0, 2)];
      const std::string name = in_folder(any_file());
      auto file = os::File::open(env_, AT_FDCWD, name, O_RDONLY, 0, name);
      if (auto made = file ? write::form_of_index(*file) : Result<write::Form>(Failure(file.error()))) form = *made;
    } else {
      write::Form &form = *forms[in_.ConsumeIntegralInRange(0, 2)];
      (in_.ConsumeBool() ? form.size : form.hash) = in_.ConsumeIntegral<uint64_t>();
    }
  }

  void record_fields() {
    auto journals =
        committed_journals(env_, in_.ConsumeBool() ? index_name : shard_names[in_.ConsumeIntegralInRange(0, 2)]);
    if (journals.empty()) return;
    Journal &j = journals[in_.ConsumeIntegralInRange<size_t>(0, journals.size() - 1)];
    CommitRecord &r = j.record;
    const uint64_t values[] = {0,         1, 2, 4, 511, 4096, j.bytes.size(), uint64_t{64} << 20, uint64_t{1} << 63,
                               UINT64_MAX};
    uint64_t *fields[] = {&r.transaction,
                          &r.identity.inode,
                          &r.identity.size,
                          &r.identity.data_offset,
                          &r.identity.header_hash,
                          &r.manifest,
                          &r.ranges,
                          &r.manifest_hash,
                          &r.flags};
    const int field = in_.ConsumeIntegralInRange(0, 9);
    if (field == 9) {
      const std::string name = any_name(index_name);
      if (name.size() <= 255) r.super_of = name;
    } else {
      *fields[field] = in_.ConsumeBool() ? in_.PickValueInArray(values) : in_.ConsumeIntegral<uint64_t>();
    }
    const auto block = write::encode(r);
    j.bytes.replace(0, block.size(), reinterpret_cast<const char *>(block.data()), block.size());
    env_.add_file(j.path, j.bytes, 0600);
  }

  void flip(const std::string &path) {
    std::string bytes = env_.contents(path);
    if (bytes.empty()) return;
    bytes[in_.ConsumeIntegralInRange<size_t>(0, bytes.size() - 1)] ^= in_.ConsumeIntegralInRange<char>(1, 127);
    if (in_.ConsumeIntegralInRange(0, 7) == 1) bytes.resize(in_.ConsumeIntegralInRange<size_t>(0, bytes.size()));
    env_.add_file(path, bytes, path.find(journal_suffix) == std::string::npos ? 0644 : 0600);
  }
  void copy() {
    const std::string from = any_file(), to = any_file();
    env_.add_file(in_folder(to), env_.contents(in_folder(from)));
  }
  void remove() {
    const std::string path = in_.ConsumeBool() ? in_folder(any_file()) : any_journal();
    if (path != index_path) env_.remove(path);
  }

  FuzzedDataProvider &in_;
  SimEnv &env_;
};

// All is on the disk: what is pending is not what this is about.
SimDisk settled(const SimDisk &disk) {
  return testing::after_cut(disk, true);
}

struct Scene {
  SimDisk disk;
  bool damaged = false;
  Files before;
  // By a trusted super-journal: new files that may take the place of each.
  std::map<std::string, std::vector<std::string>> may_become;
  // By a trusted journal of the file itself: pieces that may be written.
  std::map<std::string, std::vector<std::pair<uint64_t, uint64_t>>> may_change;
};

Scene make_scene(FuzzedDataProvider &in) {
  Scene scene;
  const SimDisk &moment = moments()[in.ConsumeIntegralInRange<size_t>(0, moments().size() - 1)];
  SimDisk disk = settled(moment);
  if (in.ConsumeIntegralInRange(0, 3) == 1) {
    disk = after_chosen_cut(moment, in);
  }
  SimEnv env(disk);
  for (int n = in.ConsumeIntegralInRange(0, 3); n > 0; --n) {
    Damage(in, env).one();
    scene.damaged = true;
  }
  scene.disk = settled(env.disk());
  scene.before = visible(env);
  for (const auto &[name, bytes] : scene.before)
    for (const Journal &j : committed_journals(env, name)) {
      if (const auto list = list_of(j)) {
        std::vector<SuperParticipant> entries = list->parts;
        entries.push_back(list->index);
        for (const SuperParticipant &e : entries)
          for (const std::string &temporary : {e.first, e.second})
            if (!temporary.empty()) scene.may_become[e.file].push_back(env.contents(in_folder(temporary)));
      } else if (!j.record.is_super()) {
        for (const write::RangeRecord &r : write::decode_ranges(bytes_of(j.manifest), j.record.is_sparse()))
          if (r.length <= UINT64_MAX - r.offset) scene.may_change[name].emplace_back(r.offset, r.offset + r.length);
      }
    }
  return scene;
}

bool is_allowed(const Scene &scene, const std::string &name, const std::string &was, const std::string &is) {
  if (was.size() != is.size()) return false;
  const auto pieces = scene.may_change.find(name);
  for (size_t i = 0; i < is.size(); ++i) {
    if (is[i] == was[i]) continue;
    if (pieces == scene.may_change.end()) return false;
    if (std::none_of(pieces->second.begin(), pieces->second.end(),
                     [&](const auto &p) { return p.first <= i && i < p.second; }))
      return false;
  }
  return true;
}

void check_files(const SimEnv &env, const Scene &scene, std::string_view after) {
  const Files now = visible(env);
  for (const auto &[name, bytes] : scene.before) REQUIRE(now.contains(name), in_quotes(name), " is gone after ", after);
  for (const auto &[name, bytes] : now) {
    const auto was = scene.before.find(name);
    bool allowed = was != scene.before.end() && is_allowed(scene, name, was->second, bytes);
    if (const auto become = scene.may_become.find(name); !allowed && become != scene.may_become.end())
      for (const std::string &fresh : become->second) allowed = allowed || is_allowed(scene, name, fresh, bytes);
    REQUIRE(allowed, in_quotes(name), " holds what nobody was to write there, after ", after);
  }
  REQUIRE(env.contents("/outside.safetensors") == testing::SimEnv(scene.disk).contents("/outside.safetensors"),
          "a file beyond the folder changed after ", after);
  REQUIRE(env.open_files() == 0, env.open_files(), " descriptors are left open after ", after);
}

// The power goes before a change that recovery makes; what is left is recovered to the same end.
void check_cut(FuzzedDataProvider &in, const Scene &scene, const Files &end, uint64_t changes) {
  const uint64_t when = in.ConsumeIntegralInRange<uint64_t>(0, changes - 1);
  SimDisk at_cut;
  uint64_t seen = 0;
  FolderWatch env(scene.disk, shards_folder);
  env.before_change = [&] {
    if (seen++ == when) at_cut = env.disk();
  };
  static_cast<void>(write::recover_super(located(env, index_path), at_once, {}));
  FolderWatch after(after_chosen_cut(at_cut, in), shards_folder);
  const auto again = write::recover_super(located(after, index_path), at_once, {});
  REQUIRE(again, said(again));
  REQUIRE(visible(after) == end, "a power cut before change ", when, " of ", changes, " leads elsewhere");
}

}  // namespace

Result<std::unique_ptr<store::Shards>> open_writable(os::Env &env) {
  store::OpenOptions options;
  options.writable = true;
  options.lock_timeout_ms = 0;
  return store::Shards::open(env, index_path, options);
}

void read_all(const store::Shards &shards) {
  const store::Catalogue catalogue = shards.catalogue();
  for (size_t i = 0; i < catalogue.size(); ++i) {
    const auto place = catalogue.at(i);
    if (!place) continue;
    const TensorView t = place->tensor();
    const auto found = catalogue.find(t.name);
    REQUIRE(found && found->global == i, "tensor ", i, " is not found: ", said(found));
    std::string bytes(t.nbytes, '\0');
    const auto got = place->member->read(*place->snapshot, place->index, bytes.data());
    REQUIRE(got, said(got));
  }
}

void change_something(store::Shards &shards) {
  store::TransactionOptions options;
  options.lock_timeout_ms = 0;
  auto begun = shards.begin(options);
  if (!begun) return;
  const store::Catalogue catalogue = shards.catalogue();
  const auto first = catalogue.size() == 0 ? Result<store::Place>(Failure(Error())) : catalogue.at(0);
  const uint64_t three = 3;
  if (!(*begun)->put("new", {static_cast<uint32_t>(Dtype::U8), {&three, 1}, "abc", 3})) return;
  const std::string gone(first ? first->tensor().name : "");
  const bool removes = first && gone != "new" && (*begun)->remove(gone);
  const auto done = (*begun)->commit();
  if (!done) {
    REQUIRE(done.error().status != Status::internal, said(done));
    return;
  }
  const auto found = shards.catalogue().find("new");
  std::string bytes(3, '\0');
  REQUIRE(found && found->member->read(*found->snapshot, found->index, bytes.data()) && bytes == "abc", said(found));
  if (removes) REQUIRE(!shards.catalogue().find(gone), in_quotes(gone), " is still there");
}

void check_hostile_folder(FuzzedDataProvider &in) {
  const Scene scene = make_scene(in);
  {  // The index first, as its handle does.
    FolderWatch env(scene.disk, shards_folder);
    uint64_t changes = 0;
    env.before_change = [&] { ++changes; };
    const auto first = write::recover_super(located(env, index_path), at_once, {});
    check_files(env, scene, "a recovery");
    if (!scene.damaged) REQUIRE(first && first->aside == 0, said(first), first ? first->why_aside : "");
    if (!first) {  // a file of the transaction is no safetensors file any more: for somebody to look at
      const Status s = first.error().status;
      REQUIRE(s != Status::busy && s != Status::internal, said(first));
    }
    if (!first || first->applied == 0)
      REQUIRE(visible(env) == scene.before, "nothing was applied, and something changed");
    const uint64_t by_first = changes;
    changes = 0;
    const auto second = write::recover_super(located(env, index_path), at_once, {});
    REQUIRE(second.has_value() == first.has_value() && changes == 0, changes, " changes by a second recovery, ",
            said(second));
    if (first && by_first > 0) check_cut(in, scene, visible(env), by_first);
    static_cast<void>(store::recover_all(env, index_path, at_once, {}));
    check_files(env, scene, "recovering all");
    {
      const auto opened = open_writable(env);
      if (!scene.damaged) REQUIRE(opened, said(opened));
      if (opened) read_all(**opened);
    }
    check_files(env, scene, "opening");
  }
  // One shard by its own path.
  FolderWatch env(scene.disk, shards_folder);
  store::OpenOptions options;
  options.writable = in.ConsumeBool();
  options.lock_timeout_ms = 0;
  {
    const auto opened = store::DataFile::open(env, in_folder(shard_names[in.ConsumeIntegralInRange(0, 2)]), options);
    if (!scene.damaged) REQUIRE(opened, said(opened));
  }
  check_files(env, scene, "opening a shard");
  {
    const auto opened = open_writable(env);
    if (opened) {
      read_all(**opened);
      change_something(**opened);
    }
  }
  REQUIRE(env.open_files() == 0, env.open_files(), " descriptors are left open");
}

}  // namespace st::fuzz
