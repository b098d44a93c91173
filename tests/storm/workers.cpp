#include "workers.h"

#include <unistd.h>

#include <algorithm>
#include <random>

namespace st::testing {

Layout Field::make_layout() {
  // Two groups, then free ones: less than a sector, a page, more than the
  // journal buffers (256 KiB), more than it moves at once (1 MiB).
  return Layout(
      {4099, 65537, 509, 300007, 8, 511, 4096, 20011, 4099, 65537, 509, 300007, 131071, 1048583, 4096, 12289});
}

namespace {

std::string said(const char *call, st_status status) {
  return std::string(call) + ": " + st_status_name(status) + ": " + st_last_error();
}

class Writer {
 public:
  Writer(const Field &field, Ledger &ledger, uint32_t worker, uint64_t seed)
      : field_(field), ledger_(ledger), worker_(worker), random_(seed) {}

  void step() {
    if (!file_ || one_in(20)) reopen();
    if (!file_) return;
    switch (below(8)) {
      case 0:
      case 1:
      case 2: update_one(); break;
      case 3: abandon(); break;
      case 4:
      case 5: transact(some_free()); break;
      default: transact(a_group()); break;
    }
    count_recoveries();
  }

 private:
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  bool one_in(uint32_t n) { return below(n) == 0; }
  int32_t patience() {
    switch (below(3)) {
      case 0: return 0;
      case 1: return static_cast<int32_t>(1 + below(20));
      default: return ST_TIMEOUT_FOREVER;
    }
  }
  uint32_t a_free_tensor() { return Field::first_free + below(Field::tensors - Field::first_free); }
  uint32_t some_free() {
    uint32_t set = 0;
    for (uint32_t n = 1 + below(4); n > 0; --n) set |= 1u << a_free_tensor();
    return set;
  }
  uint32_t a_group() { return ((1u << Field::group_size) - 1) << (Field::group_size * below(Field::groups)); }

  void reopen() {
    count_recoveries();
    st_file *next = nullptr;
    if (file_ && one_in(2)) {
      ledger_.doing(worker_, "st_reopen");
      allow("st_reopen", st_reopen(file_.get(), &next));
    } else {
      ledger_.doing(worker_, "st_close");
      file_.reset();
      ledger_.doing(worker_, "st_open");
      const st_open_options options = open_options(ST_OPEN_READ_WRITE, patience());
      allow("st_open", st_open(field_.path.c_str(), &options, &next));
    }
    file_.reset(next);
    counted_ = 0;
    if (file_) ++ledger_.writer_opens;
    count_recoveries();
  }

  // One tensor, without a transaction to be seen.
  void update_one() {
    const uint32_t tensor = a_free_tensor();
    const uint64_t version = ledger_.take_version();
    const Bytes bytes = field_.layout.value(tensor, version);
    const st_tensor value = field_.layout.described(tensor, bytes.data());
    ledger_.doing(worker_, "st_update");
    ledger_.intend(worker_, version, 1u << tensor);
    settle(version, allow("st_update", st_update(file_.get(), field_.layout.name(tensor), &value)));
  }

  // All tensors of `set` in one transaction. Some are staged twice.
  void transact(uint32_t set) {
    const uint64_t version = ledger_.take_version();
    st_txn *txn = begin(set, version);
    if (!txn) return;
    ledger_.doing(worker_, "st_commit");
    ledger_.intend(worker_, version, set);
    for (uint32_t tries = below(4);; --tries) {
      const st_status status = allow("st_commit", st_commit(txn));
      if (status != ST_E_BUSY) return settle(version, status);
      if (tries == 0) break;
    }
    ledger_.doing(worker_, "st_abort");
    st_abort(txn);
    settle(version, ST_E_BUSY);
  }

  // Staged, and thought better of: nobody may ever see this version.
  void abandon() {
    ledger_.doing(worker_, "an aborted transaction");
    if (st_txn *txn = begin(some_free(), ledger_.take_version())) st_abort(txn);
  }

  st_txn *begin(uint32_t set, uint64_t version) {
    ledger_.doing(worker_, "staging");
    const bool copies = one_in(2);
    st_txn_options options = ST_TXN_OPTIONS_INIT;
    options.flags = copies ? ST_TXN_COPY : 0;
    options.lock_timeout_ms = patience();
    st_txn *txn = nullptr;
    if (allow("st_begin", st_begin(file_.get(), &options, &txn)) != ST_OK) return nullptr;
    borrowed_.clear();
    std::vector<uint32_t> order;
    for (uint32_t t = 0; t < Field::tensors; ++t)
      if (set >> t & 1) order.push_back(t);
    std::shuffle(order.begin(), order.end(), random_);
    for (const uint32_t t : order) {
      if (one_in(8)) stage(txn, t, ledger_.take_version(), copies);
      stage(txn, t, version, copies);
    }
    return txn;
  }

  void stage(st_txn *txn, uint32_t tensor, uint64_t version, bool copies) {
    Bytes bytes = field_.layout.value(tensor, version);
    const st_tensor value = field_.layout.described(tensor, bytes.data());
    allow("st_txn_update", st_txn_update(txn, field_.layout.name(tensor), &value));
    if (copies) std::fill(bytes.begin(), bytes.end(), std::byte{0xEE});
    borrowed_.push_back(std::move(bytes));  // moving a vector leaves its bytes where they are
  }

  void settle(uint64_t version, st_status status) {
    if (status == ST_OK) return ledger_.acknowledge(version);
    if (status == ST_E_BUSY) ++ledger_.busy;
    ledger_.refuse(version);
  }

  // ST_OK, or ST_E_BUSY where somebody else was at it: nothing else can happen here.
  st_status allow(const char *call, st_status status) {
    if (status == ST_OK || status == ST_E_BUSY) return status;
    ledger_.complain("a writer: " + said(call, status));
    ::_exit(1);
  }

  void count_recoveries() {
    st_stats stats = ST_STATS_INIT;
    if (!file_ || st_get_stats(file_.get(), &stats) != ST_OK) return;
    ledger_.recoveries += stats.recoveries - counted_;
    counted_ = stats.recoveries;
  }

  const Field &field_;
  Ledger &ledger_;
  const uint32_t worker_;
  std::mt19937_64 random_;
  FileHandle file_;
  uint64_t counted_ = 0;
  std::vector<Bytes> borrowed_;
};

}  // namespace

void write_for_ever(const Field &field, Ledger &ledger, uint32_t worker, uint64_t seed) {
  for (Writer writer(field, ledger, worker, seed);;) writer.step();
}

void read_for_ever(const Field &field, Ledger &ledger, uint32_t worker, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(size_t{2} << 20);  // more than the largest tensor
  for (;;) {
    ledger.doing(worker, "st_open for reading");
    st_status status;
    const FileHandle file = open_file(field.path, open_options(0, random() % 2 ? ST_TIMEOUT_FOREVER : 0), &status);
    if (!file && status != ST_E_BUSY) ledger.complain("a reader: " + said("st_open", status)), ::_exit(1);
    for (int i = 0; file && i < 4; ++i) {
      ledger.doing(worker, "st_read");
      status = st_read(file.get(), field.layout.name(static_cast<uint32_t>(random() % Field::tensors)), bytes.data(),
                       bytes.size());
      if (status != ST_OK) ledger.complain("a reader: " + said("st_read", status)), ::_exit(1);
      ++ledger.reads;
    }
    ledger.doing(worker, "a pause");
    ::usleep(2000);  // leaves the processor to the writers
  }
}

std::vector<uint64_t> judge(const Field &field, Ledger &ledger, OpenAs how) {
  if (how == OpenAs::recoverer)
    if (const st_status status = st_recover(field.path.c_str()); status != ST_OK)
      ledger.complain("when all writers were dead, " + said("st_recover", status));
  st_status status;
  const FileHandle file =
      open_file(field.path, open_options(how == OpenAs::writer ? ST_OPEN_READ_WRITE : 0, ST_TIMEOUT_FOREVER), &status);
  if (!file) {
    ledger.complain("when all writers were dead, " + said("st_open", status));
    return {};
  }
  st_stats stats = ST_STATS_INIT;
  st_get_stats(file.get(), &stats);
  ledger.recoveries += stats.recoveries;
  std::vector<uint64_t> seen;
  for (uint32_t t = 0; t < Field::tensors; ++t) {
    const auto version = read_version(file.get(), field.layout, t);
    if (!version) ledger.complain("when all writers were dead, tensor " + std::to_string(t) + " is no whole value");
    seen.push_back(version.value_or(0));
  }
  return seen;
}

}  // namespace st::testing
