#include "cluster_scene.h"

#include <array>
#include <map>

#include "engine/recover_all.h"
#include "file/writer.h"
#include "layout_workload.h"
#include "test_files.h"
#include "workload.h"

namespace st::testing {
namespace {

constexpr std::array<const char *, ClusterScene::tensors> names = {"a", "b", "c", "d"};
constexpr std::array<uint64_t, ClusterScene::tensors> sizes = {5000, 900, 6000, 5000};

const std::string &value(size_t tensor, uint64_t version) {
  static std::map<std::pair<size_t, uint64_t>, std::string> made;
  std::string &bytes = made[{tensor, version}];
  if (bytes.empty()) bytes = pattern(sizes[tensor], static_cast<unsigned>(version * names.size() + tensor));
  return bytes;
}

std::string in_words(const std::vector<uint64_t> &versions) {
  std::string words;
  for (const uint64_t version : versions)
    words += " " + (version == ClusterScene::torn ? std::string("torn") : std::to_string(version));
  return words;
}

}  // namespace

ClusterScene::ClusterScene() : server(empty_disk(disks[2])) {
  std::vector<TestTensor> all;
  for (size_t t = 0; t < tensors; ++t) all.push_back({names[t], Dtype::U8, {sizes[t]}, value(t, 0)});
  server.add_file(model_path, file_of(all));
  log_.push_back({0, everything, 0, 0, true});
}

Result<std::unique_ptr<store::DataFile>> ClusterScene::open(os::Env &host) {
  return store::DataFile::open(host, model_path, {.writable = true, .lock_timeout_ms = 0});
}

// `change` makes a version of these tensors; what came of it is in the log.
template <class Change>
Result<void> ClusterScene::as_one(uint32_t set, Change change) {
  const uint64_t version = next_version_++, start = ++clock_;
  Result<void> done = change(version);
  // What was refused is never seen.
  if (done || done.error().status == Status::needs_recovery)
    log_.push_back({version, set, start, ++clock_, static_cast<bool>(done)});
  return done;
}

Result<void> ClusterScene::change(store::DataFile &file, uint32_t set, bool publish, int32_t timeout_ms) {
  return as_one(set, [&](uint64_t version) -> Result<void> {
    ST_TRY(auto begun, store::Transaction::begin(file, {.lock_timeout_ms = timeout_ms, .publish = publish}));
    for (size_t t = 0; t < tensors; ++t)
      if (set >> t & 1)
        ST_TRY(begun->update(names[t],
                             {static_cast<uint32_t>(Dtype::U8), {&sizes[t], 1}, value(t, version).data(), sizes[t]}));
    return begun->commit();
  });
}

Result<void> ClusterScene::save(os::Env &host) {
  return as_one(everything, [&](uint64_t version) -> Result<void> {
    std::vector<write::NewTensor> all;
    for (size_t t = 0; t < tensors; ++t)
      all.push_back({names[t], Dtype::U8, {sizes[t]}, sizes[t], value(t, version).data()});
    ST_TRY(auto writer, write::Writer::open(host, model_path, std::move(all), {}, {.lock_timeout_ms = 0}));
    ST_TRY(writer->put_declared());
    return writer->finish();
  });
}

std::vector<uint64_t> ClusterScene::seen(const store::DataFile &file) const {
  std::vector<uint64_t> versions;
  const store::Snapshot &state = file.snapshot();
  for (size_t t = 0; t < tensors; ++t) {
    std::string bytes(sizes[t], '\0');
    uint64_t version = torn;
    if (file.read(state, state.header.index.find(names[t]).value(), bytes.data()))
      for (uint64_t v = 0; v < next_version_ && version == torn; ++v)
        if (bytes == value(t, v)) version = v;
    versions.push_back(version);
  }
  return versions;
}

bool ClusterScene::has_record() const {
  const std::string folder = model_path + ".st-journal";
  for (const std::string &name : server.names(folder))
    if (const std::string bytes = server.contents(folder + "/" + name); !bytes.empty() && bytes[0] != 0) return true;
  return false;
}

std::string ClusterScene::why_wrong(SimEnv &disk, std::vector<uint64_t> *found) const {
  ClusterHost judge(disk);
  const std::string folder = model_path.substr(0, model_path.rfind('/'));
  {
    auto recovered = store::recover_all(judge, model_path, {}, {});
    if (!recovered) return "it does not recover: " + recovered.error().message;
    if (recovered->aside > 0) return recovered->why_aside;
    auto file = open(judge);
    if (!file) return "it does not open: " + file.error().message;
    *found = seen(**file);
  }
  for (const std::string &name : disk.names(folder))
    if (folder + "/" + name != model_path) return name + " is left";
  return why_not_allowed(*found);
}

std::string ClusterScene::why_not_allowed(const std::vector<uint64_t> &found) const {
  if (found[0] != found[2]) return "half of a transaction:" + in_words(found);
  return why_not_serial(log_, found);
}

std::string ClusterScene::why_wrong_now() {
  ClusterHost judge(server);
  auto file = open(judge);
  if (!file) return "it does not open: " + file.error().message;
  return why_not_allowed(seen(**file));
}

// What another change builds on stays: also a publish whose writer has died before its name was durable.
std::string ClusterScene::why_not_kept(std::vector<uint64_t> found) {
  {
    ClusterHost last(server);
    auto file = open(last);
    if (!file) return "it does not open: " + file.error().message;
    found[1] = next_version_;
    if (const auto done = change(**file, neighbour); !done) return "the last change: " + done.error().message;
  }
  SimEnv cut(after_cut(server.disk(), false));
  std::vector<uint64_t> kept;
  if (std::string wrong = why_wrong(cut, &kept); !wrong.empty()) return wrong + ", after the last change and a cut";
  if (found == kept) return {};
  return "a cut takes back what the last change was built on:" + in_words(found) + ", then" + in_words(kept);
}

std::string ClusterScene::why_wrong() {
  std::vector<uint64_t> found, after_a_cut;
  for (Transaction &t : log_) t.acknowledged |= shown_.erase(t.version) > 0;
  if (!shown_.empty()) return "version " + std::to_string(*shown_.begin()) + " was refused, but had been seen";
  for (const std::string &name : server.names(model_path + ".st-journal"))
    if (name.ends_with(".bad")) return "a journal was moved aside";
  if (std::string wrong = why_wrong(server, &found); !wrong.empty()) return wrong;
  SimEnv cut(after_cut(server.disk(), false));
  if (std::string wrong = why_wrong(cut, &after_a_cut); !wrong.empty()) return wrong + ", after a cut";
  if (found != after_a_cut && server.is_name_durable(model_path))
    return "a cut takes back what was seen:" + in_words(found) + ", then" + in_words(after_a_cut);
  return why_not_kept(found);
}

}  // namespace st::testing
