#include "shard_scene.h"

#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <set>
#include <utility>

#include "diagnosis.h"

namespace fs = std::filesystem;

namespace st::testing {
namespace {

std::vector<std::string> names_in(st_file *file, st_status *status) {
  size_t size = 0;
  *status = st_names(file, nullptr, &size);
  std::string all(size, '\0');
  if (*status == ST_OK || *status == ST_E_BUFFER_SIZE) *status = st_names(file, all.data(), &size);
  std::vector<std::string> names;
  for (size_t at = 0; *status == ST_OK && at < all.size(); at += names.back().size() + 1) names.emplace_back(&all[at]);
  return names;
}

uint64_t number(std::string_view digits) {
  uint64_t n = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), n);
  return n;
}

// The cell of a slot's tensor, or nothing.
std::optional<uint32_t> cell_of(const std::string &name) {
  for (uint32_t cell = ShardScene::first_slot; cell < ShardScene::first_key; ++cell)
    if (name.starts_with(ShardScene::slot_prefix(cell))) return cell;
  return std::nullopt;
}

// Reads tensors, whichever they are. Empty, or what was wrong.
std::string why_not_read(st_file *file, std::mt19937_64 &random, uint64_t *reads) {
  st_status status;
  const auto names = names_in(file, &status);
  for (int i = 0; status == ST_OK && i < 6; ++i) {
    const std::string &name = names[random() % names.size()];
    st_tensor found = {};
    status = st_get(file, name.c_str(), ST_NTS, &found);
    if (status != ST_OK) break;
    Bytes bytes(found.nbytes);
    status = st_read(file, name.c_str(), ST_NTS, bytes.data(), bytes.size(), nullptr);
    const auto cell = cell_of(name);
    if (status == ST_OK && cell && !version_of(bytes, *cell)) return "slot " + name + " is no whole value";
    ++*reads;
  }
  return status == ST_OK || status == ST_E_BUSY || status == ST_E_FILE_CHANGED ? "" : said("reading", status);
}

}  // namespace

ShardScene::Host::Host(const std::string &at)
    : folder(at), model(folder + "/model"), path(model + "/model.safetensors.index.json") {
  for (uint32_t s = 0; s < ShardScene::shards; ++s)
    paths[s] = model + "/model-0000" + std::to_string(s + 1) + "-of-00004.safetensors";
}

ShardScene::ShardScene(const std::string &folder, const std::string &elsewhere)
    : hosts_{Host(folder), Host(elsewhere.empty() ? folder : elsewhere)},
      layout_({4099, 65537, 509, 30007, 8, 511, 4096, 20011, 4099, 65537, 509, 30007, 131071, 262147, 4096, 12289}) {}

Bytes ShardScene::slot_value(uint32_t cell, uint64_t version) {
  Bytes bytes(8 + version * 7919 % 9001);
  fill(bytes, cell, version);
  return bytes;
}

std::optional<std::string> ShardScene::slot_name(st_file *file, uint32_t cell) {
  st_status status;
  std::optional<std::string> found;
  for (const std::string &name : names_in(file, &status))
    if (name.starts_with(slot_prefix(cell)) && std::exchange(found, name)) return std::nullopt;
  return found;
}

void ShardScene::make() const {
  fs::create_directory(hosts_[0].model);
  std::string weight_map;
  uint64_t total = 0;
  for (uint32_t s = 0; s < shards; ++s) {
    std::vector<Bytes> values;
    std::vector<std::string> names;
    for (uint32_t t = s; t < tensors; t += shards)
      names.push_back(layout_.name(t)), values.push_back(layout_.value(t, 0));
    if (s < slots) names.push_back(slot_prefix(first_slot + s) + "0"), values.push_back(slot_value(first_slot + s, 0));
    std::vector<uint64_t> sizes;
    for (const Bytes &v : values) sizes.push_back(v.size());
    std::vector<st_tensor> described(names.size());
    for (size_t i = 0; i < names.size(); ++i) {
      described[i].name = names[i].c_str(), described[i].name_len = names[i].size();
      described[i].dtype = ST_DTYPE_U8, described[i].rank = 1, described[i].shape = &sizes[i];
      described[i].nbytes = sizes[i], described[i].data = values[i].data();
      total += sizes[i];
      weight_map += (weight_map.empty() ? "\"" : ", \"") + names[i] + "\": \"" +
                    fs::path(shard_of_host(0, s)).filename().string() + "\"";
    }
    const st_metadata format = {"format", 6, "pt", 2};
    if (const st_status status =
            st_save(shard_of_host(0, s).c_str(), described.data(), described.size(), &format, 1, nullptr))
      std::fprintf(stderr, "%s\n", said("st_save", status).c_str()), std::exit(1);
  }
  std::ofstream index(path());
  index << R"({"metadata": {"total_size": )" << total;
  for (uint32_t c = first_key; c < first_key + keys; ++c) index << ", \"" << key(c) << "\": \"0\"";
  index << R"(}, "weight_map": {)" << weight_map << "}}";
}

void ShardScene::read_for_ever(Ledger &ledger, uint32_t worker, uint64_t seed) const {
  std::mt19937_64 random(seed);
  for (;;) {
    const std::string &file_path =
        random() % 2 ? path_of(worker) : shard_of_host(worker, static_cast<uint32_t>(random() % shards));
    ledger.doing(worker, "st_open for reading");
    st_status status;
    const FileHandle file = open_file(file_path, open_options(0, random() % 2 ? ST_TIMEOUT_FOREVER : 0), &status);
    std::string wrong;
    if (!file && status != ST_E_BUSY) wrong = said("st_open of " + file_path, status);
    ledger.doing(worker, "reading");
    uint64_t reads = 0;
    if (file) wrong = why_not_read(file.get(), random, &reads);
    ledger.reads += reads;
    if (!wrong.empty()) ledger.complain("a reader: " + wrong), ::_exit(1);
    ledger.doing(worker, "a pause");
    ::usleep(2000);  // leaves the processor to the writers
  }
}

std::vector<uint64_t> ShardScene::judge(Ledger &ledger, OpenAs how) const {
  const auto here = static_cast<uint32_t>(how);
  auto wrong = [&](const std::string &what) { ledger.complain("when all writers were dead, " + what); };
  if (how == OpenAs::recoverer)
    if (const st_status status = recover_in_the_end(path_of(here)); status != ST_OK) wrong(said("st_recover", status));
  std::array<std::string, shards> journals;
  for (uint32_t s = 0; s < shards; ++s) journals[s] = journals_beside(shard_of_host(here, s));
  // Shards alone; what they show is judged through the index, once each of them was finished so.
  st_status status;
  for (uint32_t s = 0; how == OpenAs::lone && s < shards; ++s)
    if (!open_file(shard_of_host(here, s), open_options(s % 2 ? ST_OPEN_READ_WRITE : 0, ST_TIMEOUT_FOREVER), &status))
      wrong(said("st_open of a shard alone", status));
  const FileHandle file = open_file(
      path_of(here), open_options(how == OpenAs::writer ? ST_OPEN_READ_WRITE : 0, ST_TIMEOUT_FOREVER), &status);
  if (!file) return wrong(said("st_open", status)), std::vector<uint64_t>();
  // A reader that only opens may see old pages of its host: core/os/README.md, "What another host sees".
  if (hosts_[0].folder != hosts_[1].folder)
    if (status = st_refresh(file.get()); status != ST_OK) wrong(said("st_refresh", status));
  std::vector<uint64_t> seen;
  for (uint32_t t = 0; t < tensors; ++t) {
    const auto version = read_version(file.get(), layout_, t);
    st_tensor found = {};
    if (!version) {
      wrong("tensor " + std::to_string(t) + " is no whole value");
      const uint32_t s = shard_of(t);
      std::cerr << diagnosis(
          file.get(), ledger,
          {layout_, t, std::nullopt, name_of(how), shard_of_host(here, s), shard_of_host(here + 1, s), journals[s]});
    }
    if (st_get(file.get(), layout_.name(t), ST_NTS, &found) != ST_OK || found.shard != shard_of(t))
      wrong("tensor " + std::to_string(t) + " is not in its shard");
    seen.push_back(version.value_or(0));
  }
  for (uint32_t cell = first_slot; cell < first_key; ++cell) {
    const auto name = slot_name(file.get(), cell);
    if (!name) return wrong("slot " + std::to_string(cell) + " has not just one tensor"), seen;
    seen.push_back(number(std::string_view(*name).substr(slot_prefix(cell).size())));
    st_tensor found = {};
    if (st_get(file.get(), name->c_str(), ST_NTS, &found) != ST_OK ||
        !version_of({static_cast<const std::byte *>(found.data), found.nbytes}, cell))
      wrong("slot " + *name + " is no whole value");
  }
  for (uint32_t cell = first_key; cell < first_key + keys; ++cell) {
    const char *value = "";
    size_t length = 0;
    if (st_metadata_get(file.get(), key(cell).c_str(), ST_NTS, &value, &length) != ST_OK)
      wrong("a key is gone from the index");
    seen.push_back(number({value, length}));
  }
  uint64_t total = 0;
  for (size_t i = 0; i < st_count(file.get()); ++i)
    if (st_tensor t; st_at(file.get(), i, 1, &t) == ST_OK) total += t.nbytes;
  const char *told = "";
  size_t length = 0;
  if (st_metadata_get(file.get(), "total_size", ST_NTS, &told, &length) != ST_OK || number({told, length}) != total)
    wrong("total_size is " + std::string(told, length) + ", and there are " + std::to_string(total) + " bytes");
  if (st_count(file.get()) != tensors + slots) wrong(std::to_string(st_count(file.get())) + " tensors are there");
  return seen;
}

Scene::Tidied ShardScene::tidy() const {
  if (const st_status status = recover_in_the_end(path()); status != ST_OK)
    return {"when all was done, " + said("st_recover", status), {}};
  std::set<std::string> expected(hosts_[0].paths.begin(), hosts_[0].paths.end());
  expected.insert(path());
  for (const auto &entry : fs::directory_iterator(hosts_[0].model))
    if (!expected.contains(entry.path().generic_string())) return {{}, entry.path().generic_string()};
  return {};
}

}  // namespace st::testing
