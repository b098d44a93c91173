// The log of a storm, in memory that its processes share and that survives
// each of them: each writer's plan, its time, and its outcome. Written so that a
// SIGKILL between any two instructions leaves it true.
#pragma once

#include <st/st.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "serial_order.h"

namespace st::testing {

class Ledger {
 public:
  static constexpr uint32_t most_workers = 64;

  // In memory that its processes share, zeroes at first; they may have it at different addresses. Only the first makes
  // it.
  static size_t bytes();
  static Ledger &make(void *memory);
  static Ledger &at(void *memory) { return *static_cast<Ledger *>(memory); }

  // ---- a worker's side
  // A version that nobody has used. Promises nothing yet.
  uint64_t take_version() { return next_version_.fetch_add(1); }
  // From here on `version` may show at `tensors`: to be called before the commit.
  // A transaction that takes another back shows what that replaced, `brings_back`.
  void intend(uint32_t worker, uint64_t version, uint32_t tensors, std::optional<uint64_t> brings_back = {});
  void acknowledge(uint64_t version);  // the commit answered ST_OK
  void refuse(uint64_t version);       // it answered that nothing changed, and was given up
  // Says what is wrong; only the first complaint of a storm is kept.
  void complain(const std::string &what);

  // What a worker is at, for a dump if the storm stops.
  void doing(uint32_t worker, const char *what) {
    workers_[worker].doing.store(address(what) - address(anchor), std::memory_order_relaxed);
  }

  // Set before there are workers: the storage fails now and then, and calls may say so.
  std::atomic<bool> rough = false;
  // Is that an answer of storage that fails? Each but ST_E_NEEDS_RECOVERY says that nothing was changed.
  bool may_fail_with(st_status status) const {
    return rough && (status == ST_E_IO || status == ST_E_NEEDS_RECOVERY || status == ST_E_POISONED ||
                     status == ST_E_FILE_CHANGED || status == ST_E_TXN_FAILED);
  }

  // Set before there are workers: the storage forgets a file that was replaced. FUSE does if its server goes by names,
  // and NFS 3, whose server knows of no open files.
  std::atomic<bool> forgets_replaced = false;
  // Does a read through a handle that was not refreshed since say so?
  bool is_forgotten(st_status status) const { return forgets_replaced && status == ST_E_FILE_CHANGED; }

  std::atomic<uint64_t> failures = 0;
  std::atomic<uint64_t> commits = 0, publishes = 0, deltas = 0, busy = 0, recoveries = 0, writer_opens = 0, reads = 0;

  // ---- the parent's side, when the worker is dead or everybody is
  void bury(uint32_t worker);  // what it had under way ended here
  // Everything since the last call to start_over, with the values of then as its first transactions.
  std::vector<Transaction> since_start() const;
  // Another chapter, which begins with these versions at the tensors.
  void start_over(const std::vector<uint64_t> &seen);
  bool has_complaint() const { return complained_.load() == 2; }
  std::string complaint() const { return complaint_; }
  std::string described(uint32_t worker) const;
  // The last that came to a tensor, for a judge that does not understand what it holds.
  std::string last_of(uint32_t tensor) const;

 private:
  enum State : uint32_t { unused, intended, acknowledged, refused, buried };
  struct Entry {
    std::atomic<uint64_t> start, end, shows;
    std::atomic<uintptr_t> at;  // what its worker was at when it was buried, as in Worker
    std::atomic<uint32_t> tensors, state, worker;
  };
  struct Worker {
    std::atomic<uint64_t> version;  // under way; 0: none
    std::atomic<uintptr_t> doing;   // a literal of the program, as all of its processes have it: from `anchor` on
  };
  static constexpr uint64_t most_versions = uint64_t{1} << 24;

  static const char anchor[];
  static uintptr_t address(const char *text) { return reinterpret_cast<uintptr_t>(text); }
  static const char *text_at(uintptr_t from_anchor) {
    return reinterpret_cast<const char *>(address(anchor) + from_anchor);
  }

  Ledger() = default;
  Entry *entries() {
    return reinterpret_cast<Entry *>(this + 1);
  }  // most_versions, in pages that cost nothing until touched
  const Entry *entries() const { return reinterpret_cast<const Entry *>(this + 1); }
  Entry &entry(uint64_t version);

  std::atomic<uint64_t> clock_ = 1, next_version_ = 1;
  std::atomic<uint32_t> complained_ = 0;  // 1: being written, 2: done
  char complaint_[2000] = {};
  uint64_t first_version_ = 1;
  uint64_t seen_count_ = 0, seen_[32] = {};
  Worker workers_[most_workers] = {};
};

}  // namespace st::testing
