#include "file_scene.h"

#include <filesystem>
#include <iostream>
#include <map>

#include "diagnosis.h"
#include "worker.h"

namespace fs = std::filesystem;

namespace st::testing {
namespace {

uint32_t group(uint32_t g) {
  return ((1u << FileScene::group_size) - 1) << (FileScene::group_size * g);
}

// Storage that failed may go on to do so for a while.
FileHandle open_in_the_end(const Ledger &ledger, const std::string &path, const st_open_options &options,
                           st_status *status) {
  constexpr uint32_t pause_us = 10000, attempts = 6000;
  for (uint32_t i = 0;; ++i) {
    FileHandle file = open_file(path, options, status);
    if (file || i == attempts || !ledger.may_fail_with(*status)) return file;
    ::usleep(pause_us);
  }
}

class FileWriter : Worker {
 public:
  FileWriter(const FileScene &scene, Ledger &ledger, uint32_t worker, uint64_t seed)
      : Worker(ledger, worker, seed),
        layout_(scene.layout()),
        path_(scene.path_of(worker)),
        work_(scene.work_folder(worker)) {}

  void step() {
    if (needs_handle()) reopen(path_, {ST_E_FILE_CHANGED});
    if (!file_) return;
    if (publishes()) return transact(one_in(2) ? some_free() : a_group(below(FileScene::trained)));
    if (trains()) return train(group(FileScene::trained), true);
    switch (below(9)) {
      case 0:
      case 1:
      case 2: update_one(); break;
      case 3: abandon(); break;
      case 4:
      case 5: transact(some_free()); break;
      case 6: one_in(3) ? train(some_free(), false) : train(a_group(FileScene::trained), true); break;
      default: transact(a_group(below(FileScene::trained))); break;
    }
    count_recoveries();
  }

 private:
  // Most of its time goes into applying deltas.
  bool trains() const { return worker_ == 1 && !ledger_.rough; }
  // This one, most often.
  uint32_t a_group(uint32_t likely) { return group(one_in(16) ? below(FileScene::groups_count) : likely); }
  uint32_t a_free_tensor() { return FileScene::first_free + below(FileScene::tensors - FileScene::first_free); }
  uint32_t some_free() {
    uint32_t set = 0;
    for (uint32_t n = 1 + below(4); n > 0; --n) set |= 1u << a_free_tensor();
    return set;
  }

  // One tensor, without a transaction to be seen.
  void update_one() {
    const uint32_t tensor = a_free_tensor();
    const uint64_t version = ledger_.take_version();
    const Bytes bytes = layout_.value(tensor, version);
    const st_tensor value = layout_.described(tensor, bytes.data());
    ledger_.doing(worker_, "st_update");
    ledger_.intend(worker_, version, 1u << tensor);
    settle(version, allow("st_update", st_update(file_.get(), layout_.name(tensor), ST_NTS, &value)));
  }

  // All tensors of `set` in one transaction. Some are staged twice.
  void transact(uint32_t set) {
    const uint64_t version = ledger_.take_version();
    if (st_txn *txn = begin(set, version)) commit(txn, version, set);
    if (one_in(6)) {
      ledger_.doing(worker_, "st_sync");
      allow("st_sync", st_sync(file_.get()));
    }
  }

  // Some steps of training, each by a delta: of every tensor of `set` few words change. A group, which is of one
  // version, may go back.
  void train(uint32_t set, bool may_go_back) {
    if (ledger_.rough) return;  // the files that a delta is made of might be damaged
    ledger_.doing(worker_, "making deltas");
    fs::remove_all(work_);  // with what a dead writer left
    fs::create_directory(work_);
    allow("st_refresh", st_refresh(file_.get()), {ST_E_FILE_CHANGED});
    std::map<uint32_t, Bytes> values;
    std::map<uint32_t, Value> seen;
    for (uint32_t t = 0; t < FileScene::tensors; ++t) {
      if (!(set >> t & 1)) continue;
      Bytes &bytes = values[t];
      bytes.resize(layout_.size(t));
      const st_status status = st_read(file_.get(), layout_.name(t), ST_NTS, bytes.data(), bytes.size(), nullptr);
      if (ledger_.is_forgotten(status) || allow("st_read", status) != ST_OK) return;
      // Read without a lock, a tensor may be torn, and the tensors may be of several versions. Then no delta fits.
      const auto value = value_of(bytes, t);
      if (!value) return;
      seen[t] = *value;
    }
    std::vector<uint64_t> versions = {seen.begin()->second.version};
    const bool was_whole = !may_go_back || std::all_of(seen.begin(), seen.end(), [&](const auto &tensor) {
      return tensor.second.version == versions.front();
    });
    const std::string from = work_ + "/from.safetensors", to = work_ + "/to.safetensors";
    layout_.write(from, values);
    const uint32_t steps = one_in(2) ? 1 : 3;
    while (versions.size() <= steps) {
      const uint64_t version = ledger_.take_version();
      for (auto &[t, bytes] : values) fill(bytes, t, Value{version, seen[t].ground});
      layout_.write(to, values);
      const std::string delta = forth(versions.size());
      if (allow("st_delta_create", st_delta_create(from.c_str(), to.c_str(), delta.c_str(), nullptr)) != ST_OK) return;
      fs::rename(to, from);
      versions.push_back(version);
    }
    // Forth, and if it may, back and forth: what was made once serves for many changes.
    size_t at = 0, furthest = 0;
    const bool by_handle = one_in(2);
    for (uint32_t changes = may_go_back ? 1 + below(40) : steps; changes > 0; --changes) {
      const bool goes_back = may_go_back && at > 0 && (at == steps || one_in(2));
      const bool is_new = !goes_back && at == furthest;
      const std::string delta = goes_back ? back(at) : forth(at + 1), reverse = is_new ? back(at + 1) : std::string();
      at = goes_back ? at - 1 : at + 1;
      const uint64_t version = is_new ? versions[at] : ledger_.take_version();
      const auto brings_back = is_new ? std::nullopt : std::optional(versions[at]);
      const uint32_t flags = (one_in(20) ? ST_TXN_PUBLISH : 0) | (by_handle && one_in(2) ? ST_TXN_JOURNAL_ONLY : 0);
      if (!apply_delta(by_handle ? file_.get() : nullptr, path_, delta, reverse, version, set, brings_back, flags))
        return;
      furthest = std::max(furthest, at);
      if (!was_whole) return ledger_.complain("a delta fitted a group of several versions"), ::_exit(1);
    }
  }
  std::string forth(size_t step) const { return work_ + "/delta-" + std::to_string(step) + ".safetensors"; }
  std::string back(size_t step) const { return work_ + "/back-" + std::to_string(step) + ".safetensors"; }

  // Staged, and thought better of: nobody may ever see this version.
  void abandon() {
    ledger_.doing(worker_, "an aborted transaction");
    if (st_txn *txn = begin(some_free(), ledger_.take_version())) st_txn_free(txn);
  }

  st_txn *begin(uint32_t set, uint64_t version) {
    ledger_.doing(worker_, "staging");
    const bool copies = one_in(2);
    auto options = sized<st_txn_options>();
    options.flags = (copies ? ST_TXN_COPY : 0) | (publishes() || one_in(20) ? ST_TXN_PUBLISH : 0) |
                    (one_in(3) ? ST_TXN_JOURNAL_ONLY : 0);
    options.lock_timeout_ms = patience();
    st_txn *txn = nullptr;
    if (allow("st_txn_begin", st_txn_begin(file_.get(), &options, &txn)) != ST_OK) return nullptr;
    borrowed_.clear();
    std::vector<uint32_t> order;
    for (uint32_t t = 0; t < FileScene::tensors; ++t)
      if (set >> t & 1) order.push_back(t);
    std::shuffle(order.begin(), order.end(), random_);
    for (const uint32_t t : order) {
      if (one_in(8)) stage(txn, t, ledger_.take_version(), copies);
      if (one_in(4))
        stage_slices(txn, t, version);
      else
        stage(txn, t, version, copies);
    }
    return txn;
  }

  void stage(st_txn *txn, uint32_t tensor, uint64_t version, bool copies) {
    Bytes bytes = layout_.value(tensor, version);
    const st_tensor value = layout_.described(tensor, bytes.data());
    allow("st_txn_update", st_txn_update(txn, layout_.name(tensor), ST_NTS, &value));
    if (copies) std::fill(bytes.begin(), bytes.end(), std::byte{0xEE});
    borrowed_.push_back(std::move(bytes));  // moving a vector leaves its bytes where they are
  }

  // All of a tensor by two slices: of a small one each other byte, else what lies before some place and behind it.
  void stage_slices(st_txn *txn, uint32_t tensor, uint64_t version) {
    const Bytes all = layout_.value(tensor, version);
    const auto size = static_cast<int64_t>(all.size()), at = static_cast<int64_t>(below(layout_.size(tensor)));
    const bool small = size < 5000;
    for (const st_range part :
         {small ? st_range{0, size, 2} : st_range{at, size, 1}, small ? st_range{1, size, 2} : st_range{0, at, 1}}) {
      Bytes bytes;
      for (int64_t i = part.start; i < part.stop; i += part.step) bytes.push_back(all[static_cast<size_t>(i)]);
      const uint64_t count = bytes.size();
      st_tensor value = layout_.described(tensor, bytes.data());
      value.shape = &count;
      value.nbytes = count;
      allow("st_txn_update_slice",
            st_txn_update_slice(txn, layout_.name(tensor), ST_NTS, &part, 1, nullptr, 0, &value));
    }
  }

  const Layout &layout_;
  const std::string path_, work_;
  std::vector<Bytes> borrowed_;
};

}  // namespace

// Three groups, then free ones: less than a sector, a page, more than the
// journal buffers (256 KiB), more than it moves at once (1 MiB).
FileScene::FileScene(const std::string &folder, const std::string &elsewhere)
    : path_(folder + "/model.safetensors"),
      elsewhere_((elsewhere.empty() ? folder : elsewhere) + "/model.safetensors"),
      layout_({4099, 65537,   509,  300007, 8,   511,    4096,   20011,   8191, 300007,
               509,  1048583, 4099, 65537,  509, 300007, 131071, 1048583, 4096, 12289}) {}

std::vector<uint32_t> FileScene::groups() const {
  std::vector<uint32_t> all;
  for (uint32_t g = 0; g < groups_count; ++g) all.push_back(group(g));
  return all;
}

void FileScene::write_for_ever(Ledger &ledger, uint32_t worker, uint64_t seed) const {
  for (FileWriter writer(*this, ledger, worker, seed);;) writer.step();
}

void FileScene::read_for_ever(Ledger &ledger, uint32_t worker, uint64_t seed) const {
  std::mt19937_64 random(seed);
  Bytes bytes(size_t{2} << 20);  // more than the largest tensor
  for (;;) {
    ledger.doing(worker, "st_open for reading");
    st_status status;
    const FileHandle file =
        open_file(path_of(worker), open_options(0, random() % 2 ? ST_TIMEOUT_FOREVER : ST_TIMEOUT_NONE), &status);
    if (!file && status != ST_E_BUSY && !ledger.may_fail_with(status))
      ledger.complain("a reader: " + said("st_open", status)), ::_exit(1);
    for (int i = 0; file && i < 4; ++i) {
      ledger.doing(worker, "st_read");
      status = st_read(file.get(), layout_.name(static_cast<uint32_t>(random() % tensors)), ST_NTS, bytes.data(),
                       bytes.size(), nullptr);
      if (status != ST_OK && !ledger.is_forgotten(status) && !ledger.may_fail_with(status))
        ledger.complain("a reader: " + said("st_read", status)), ::_exit(1);
      ledger.reads += status == ST_OK;
    }
    ledger.doing(worker, "a pause");
    ::usleep(2000);  // leaves the processor to the writers
  }
}

std::vector<uint64_t> FileScene::judge(Ledger &ledger, OpenAs how) const {
  const auto host = static_cast<uint32_t>(how);
  const std::string &path = path_of(host);
  const std::string journals = journals_beside(path);
  if (how == OpenAs::recoverer)
    if (const st_status status = recover_in_the_end(path); status != ST_OK)
      ledger.complain("when all writers were dead, " + said("st_recover", status));
  const bool writes = how == OpenAs::writer || how == OpenAs::lone;
  st_status status;
  const FileHandle file =
      open_in_the_end(ledger, path, open_options(writes ? ST_OPEN_READ_WRITE : 0, ST_TIMEOUT_FOREVER), &status);
  if (!file) {
    ledger.complain("when all writers were dead, " + said("st_open", status));
    return {};
  }
  // A reader that only opens may see old pages of its host: core/os/README.md, "What another host sees".
  if (has_other_hosts())
    if (status = st_refresh(file.get()); status != ST_OK)
      ledger.complain("when all writers were dead, " + said("st_refresh", status));
  auto stats = sized<st_stats>();
  st_file_stats(file.get(), &stats);
  ledger.recoveries += stats.recoveries;
  std::vector<uint64_t> seen;
  for (uint32_t t = 0; t < tensors; ++t) {
    const auto version = read_version(file.get(), layout_, t);
    if (!version) {
      ledger.complain("when all writers were dead, tensor " + std::to_string(t) + " is no whole value");
      std::cerr << diagnosis(file.get(), ledger,
                             {layout_, t, layout_.offset(t), name_of(how), path, path_of(host + 1), journals});
    }
    seen.push_back(version.value_or(0));
  }
  return seen;
}

// The last one to open and close it leaves nothing.
Scene::Tidied FileScene::tidy() const {
  if (!open_file(path_, open_options(ST_OPEN_READ_WRITE)))
    return {std::string("a last st_open: ") + st_last_error(), {}};
  const std::string journals = path_ + ".st-journal";
  return {{}, fs::exists(journals) ? journals : std::string()};
}

}  // namespace st::testing
