// What a writer does to shards.
#include <bit>
#include <deque>
#include <filesystem>
#include <utility>

#include "shard_scene.h"
#include "worker.h"

namespace fs = std::filesystem;

namespace st::testing {
namespace {

constexpr uint32_t all_tensors = (1u << ShardScene::tensors) - 1;
constexpr uint32_t bound = ShardScene::in_place | ShardScene::anew;
// The index was replaced since the handle read it: begin again.
constexpr auto changed = {static_cast<st_status>(ST_E_FILE_CHANGED)};

class ShardWriter : Worker {
 public:
  ShardWriter(const ShardScene &scene, Ledger &ledger, uint32_t worker, uint64_t seed)
      : Worker(ledger, worker, seed),
        scene_(scene),
        layout_(scene.layout()),
        path_(scene.path_of(worker)),
        work_(scene.work_folder(worker)) {}

  void step() {
    if (needs_handle()) reopen(path_, changed);
    if (!file_) return;
    if (publishes()) return transact(one_in(2) ? some_free(scene_.cells()) : ShardScene::anew);
    switch (below(12)) {
      case 0:
      case 1: transact(1u << a_free(ShardScene::tensors)); break;
      case 2: transact(some_free(ShardScene::tensors)); break;
      case 3:
      case 4: transact(some_free(scene_.cells())); break;
      case 5:
      case 6: transact(ShardScene::in_place); break;
      case 7:
      case 8: transact(ShardScene::anew); break;
      case 9: patch(one_in(2) ? ShardScene::in_place : ShardScene::anew); break;
      case 10: update_alone(); break;
      default: one_in(2) ? abandon() : recover(); break;
    }
    count_recoveries();
  }

 private:
  // Cells below `end` that belong to no group.
  uint32_t a_free(uint32_t end) {
    for (;;)
      if (const uint32_t cell = below(end); !(bound >> cell & 1)) return cell;
  }
  uint32_t some_free(uint32_t end) {
    uint32_t set = 0;
    for (uint32_t n = 1 + below(4); n > 0; --n) set |= 1u << a_free(end);
    return set;
  }

  void refresh() {
    ledger_.doing(worker_, "st_refresh");
    allow("st_refresh", st_refresh(file_.get()), changed);
  }

  // All cells of `set` in one transaction. A change of tensors alone can always be followed to new files.
  void transact(uint32_t set) {
    const uint64_t version = ledger_.take_version();
    st_txn *txn = begin(file_.get(), set, version);
    if (!txn) return refresh();
    if (set & ~all_tensors)
      commit(txn, version, set, changed);
    else
      commit(txn, version, set);
    if (one_in(4)) refresh();
  }

  // Staged, and thought better of: nobody may ever see this version.
  void abandon() {
    st_txn *txn = begin(file_.get(), some_free(scene_.cells()), ledger_.take_version());
    ledger_.doing(worker_, "st_txn_free");
    st_txn_free(txn);
  }

  // One or two tensors of a shard that is opened by its own path.
  void update_alone() {
    const uint32_t first = a_free(ShardScene::tensors), s = ShardScene::shard_of(first);
    ledger_.doing(worker_, "st_open of a shard");
    st_file *opened = nullptr;
    const st_open_options options = open_options(ST_OPEN_READ_WRITE, patience());
    allow("st_open of a shard", st_open(scene_.shard_of_host(worker_, s).c_str(), &options, &opened));
    const FileHandle alone(opened);
    if (!alone) return;
    uint32_t set = 1u << first;
    if (const uint32_t second = a_free(ShardScene::tensors); ShardScene::shard_of(second) == s) set |= 1u << second;
    const uint64_t version = ledger_.take_version();
    if (st_txn *txn = begin(alone.get(), set, version)) commit(txn, version, set);
  }

  void recover() {
    ledger_.doing(worker_, "st_recover");
    auto options = sized<st_recover_options>();
    options.lock_timeout_ms = patience();
    const std::string &path = one_in(2) ? path_ : scene_.shard_of_host(worker_, below(ShardScene::shards));
    allow("st_recover", st_recover(path.c_str(), &options));
  }

  // A delta between two copies of ours; on the checkpoint; and back and forth. What was made once serves for many
  // changes.
  void patch(uint32_t group) {
    const std::string from = work_ + "/from.safetensors", to = work_ + "/to.safetensors",
                      delta = work_ + "/delta.safetensors", reverse = work_ + "/reverse.safetensors";
    ledger_.doing(worker_, "st_join");
    fs::remove_all(work_);  // with the journals of a dead writer, which are of other copies
    fs::create_directory(work_);
    if (allow("st_join", st_join(path_.c_str(), from.c_str(), nullptr), changed) != ST_OK) return;
    const uint64_t version = ledger_.take_version();
    uint64_t before = 0;
    {
      ledger_.doing(worker_, "making a delta");
      fs::copy_file(from, to, fs::copy_options::overwrite_existing);
      const FileHandle copy = open_file(to, open_options(ST_OPEN_READ_WRITE));
      if (!copy) return ledger_.complain(std::string("a writer: a copy: ") + st_last_error()), ::_exit(1);
      // Read without a lock, it may be torn; then the delta will not fit.
      const auto seen = read_version(copy.get(), layout_, static_cast<uint32_t>(std::countr_zero(group)));
      if (!seen) return;
      before = *seen;
      trains_ = one_in(2);
      st_txn *txn = begin(copy.get(), group, version);
      trains_ = false;
      if (!txn) return;
      allow("st_txn_commit of a copy", testing::commit(txn));
    }
    allow("st_delta_create", st_delta_create(from.c_str(), to.c_str(), delta.c_str(), nullptr));
    if (!apply_delta(nullptr, path_, delta, reverse, version, group, {})) return;
    bool back = true;
    for (uint32_t changes = below(20); changes > 0; --changes, back = !back) {
      const std::string &with = back ? reverse : delta;
      if (!apply_delta(nullptr, path_, with, {}, ledger_.take_version(), group, back ? before : version)) return;
    }
  }

  // Everything of `set` staged, in any order; null if the handle is too old for that.
  st_txn *begin(st_file *file, uint32_t set, uint64_t version) {
    ledger_.doing(worker_, "staging");
    auto options = sized<st_txn_options>();
    options.flags = (one_in(2) ? ST_TXN_COPY : 0) | (publishes() || one_in(8) ? ST_TXN_PUBLISH : 0);
    options.lock_timeout_ms = patience();
    st_txn *txn = nullptr;
    if (allow("st_txn_begin", st_txn_begin(file, &options, &txn)) != ST_OK) return nullptr;
    copies_ = options.flags & ST_TXN_COPY;
    borrowed_.clear();
    std::vector<uint32_t> order;
    for (uint32_t cell = 0; cell < scene_.cells(); ++cell)
      if (set >> cell & 1) order.push_back(cell);
    std::shuffle(order.begin(), order.end(), random_);
    for (const uint32_t cell : order)
      if (stage(file, txn, cell, version) != ST_OK) return st_txn_free(txn), nullptr;
    return txn;
  }

  st_status stage(st_file *file, st_txn *txn, uint32_t cell, uint64_t version) {
    if (cell >= ShardScene::first_key)
      return allow(
          "st_txn_set_metadata",
          st_txn_set_metadata(txn, ShardScene::key(cell).c_str(), ST_NTS, std::to_string(version).c_str(), ST_NTS),
          changed);
    if (cell >= ShardScene::first_slot) return stage_slot(file, txn, cell, version);
    const Bytes &bytes = lend(trains_ ? trained(file, cell, version) : layout_.value(cell, version));
    const st_tensor value = layout_.described(cell, bytes.data());
    const st_status status = allow("st_txn_update", st_txn_update(txn, layout_.name(cell), ST_NTS, &value), changed);
    return take_back(), status;
  }

  // What a step of training makes of what the file has: few words are others.
  Bytes trained(st_file *file, uint32_t cell, uint64_t version) const {
    Bytes bytes = layout_.value(cell, version);
    if (const auto seen = read_value(file, layout_, cell)) fill(bytes, cell, Value{version, seen->ground});
    return bytes;
  }

  // The slot's tensor gets another name, in one of the ways that there are.
  st_status stage_slot(st_file *file, st_txn *txn, uint32_t cell, uint64_t version) {
    const auto old = ShardScene::slot_name(file, cell);
    if (!old) return ST_E_FILE_CHANGED;
    const std::string name = ShardScene::slot_prefix(cell) + std::to_string(version);
    auto put = [&] {
      const Bytes &bytes = lend(ShardScene::slot_value(cell, version));
      const uint64_t size = bytes.size();
      st_tensor value = {};
      value.dtype = ST_DTYPE_U8, value.rank = 1, value.shape = &size, value.nbytes = size, value.data = bytes.data();
      const st_status status = allow("st_txn_put", st_txn_put(txn, name.c_str(), ST_NTS, &value), changed);
      return take_back(), status;
    };
    auto remove = [&] { return allow("st_txn_delete", st_txn_delete(txn, old->c_str(), ST_NTS), changed); };
    auto rename = [&] {
      return allow("st_txn_rename", st_txn_rename(txn, old->c_str(), ST_NTS, name.c_str(), ST_NTS), changed);
    };
    auto both = [](st_status first, auto second) { return first == ST_OK ? second() : first; };
    switch (below(4)) {
      case 0: return both(put(), remove);
      case 1: return both(remove(), put);
      case 2: return both(rename(), put);
      default: return rename();
    }
  }

  // Bytes that live as long as the transaction, or with ST_TXN_COPY no longer than the call.
  const Bytes &lend(Bytes bytes) { return borrowed_.emplace_back(std::move(bytes)); }
  void take_back() {
    if (copies_) std::fill(borrowed_.back().begin(), borrowed_.back().end(), std::byte{0xEE});
  }

  const ShardScene &scene_;
  const Layout &layout_;
  const std::string path_, work_;
  bool copies_ = false;
  bool trains_ = false;
  std::deque<Bytes> borrowed_;
};

}  // namespace

void ShardScene::write_for_ever(Ledger &ledger, uint32_t worker, uint64_t seed) const {
  for (ShardWriter writer(*this, ledger, worker, seed);;) writer.step();
}

}  // namespace st::testing
