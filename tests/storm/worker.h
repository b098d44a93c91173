// A writer of a storm, whatever the scene: its handle and its dice, and what it
// makes of an answer.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "scene.h"
#include "tensor_file.h"

namespace st::testing {

class Worker {
 protected:
  Worker(Ledger &ledger, uint32_t worker, uint64_t seed) : ledger_(ledger), worker_(worker), random_(seed) {}

  // The first of the writers makes new files only, among all the others' patches.
  bool publishes() const { return worker_ == 0; }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  bool one_in(uint32_t n) { return below(n) == 0; }
  int32_t patience() {
    switch (below(3)) {
      case 0: return ST_TIMEOUT_NONE;
      case 1: return static_cast<int32_t>(1 + below(20));
      default: return ST_TIMEOUT_FOREVER;
    }
  }

  // Is another handle due?
  bool needs_handle() { return !file_ || std::exchange(failed_, false) || one_in(20); }

  // A handle to go on with; none if somebody was in the way.
  void reopen(const std::string &path, std::initializer_list<st_status> also = {}) {
    count_recoveries();
    st_file *next = nullptr;
    if (file_ && one_in(2)) {
      ledger_.doing(worker_, "st_reopen");
      allow("st_reopen", st_reopen(file_.get(), 0, &next), also);
    } else {
      ledger_.doing(worker_, "st_close");
      file_.reset();
      ledger_.doing(worker_, "st_open");
      const st_open_options options = open_options(ST_OPEN_READ_WRITE, patience());
      allow("st_open", st_open(path.c_str(), &options, &next), also);
    }
    file_.reset(next);
    counted_ = 0;
    if (file_) ++ledger_.writer_opens;
    count_recoveries();
  }

  // With what was staged of it. Now and then again, if somebody was in the way.
  void commit(st_txn *txn, uint64_t version, uint32_t set, std::initializer_list<st_status> also = {}) {
    ledger_.doing(worker_, "st_txn_commit");
    ledger_.intend(worker_, version, set);
    st_status status = ST_E_BUSY;
    for (uint32_t tries = 1 + below(4); status == ST_E_BUSY && tries > 0; --tries)
      status = allow("st_txn_commit", st_txn_commit(txn), also);
    ledger_.doing(worker_, "st_txn_free");
    st_txn_free(txn);
    settle(version, status);
  }

  // A delta on the file at `path`, by a handle if there is one; the way back goes to `reverse`, if there is a path.
  // True if it is applied.
  bool apply_delta(st_file *file, const std::string &path, const std::string &delta, const std::string &reverse,
                   uint64_t version, uint32_t set, std::optional<uint64_t> brings_back, uint32_t flags = 0) {
    auto options = sized<st_delta_apply_options>();
    options.flags = flags;
    options.lock_timeout_ms = patience();
    options.reverse = reverse.empty() ? nullptr : reverse.c_str();
    const char *const call = file ? "st_apply_delta" : "st_delta_apply";
    ledger_.doing(worker_, call);
    ledger_.intend(worker_, version, set, brings_back);
    const st_status status = allow(call,
                                   file ? st_apply_delta(file, delta.c_str(), &options, nullptr)
                                        : st_delta_apply(path.c_str(), delta.c_str(), &options, nullptr),
                                   {ST_E_DELTA_BASE, ST_E_FILE_CHANGED});
    settle(version, status);
    ledger_.deltas += status == ST_OK;
    return status == ST_OK;
  }

  void settle(uint64_t version, st_status status) {
    if (status == ST_OK && publishes()) ++ledger_.publishes;
    if (status == ST_OK) return ledger_.acknowledge(version);
    if (status == ST_E_BUSY) ++ledger_.busy;
    if (status == ST_E_NEEDS_RECOVERY) return ledger_.bury(worker_);  // as if it had died there
    ledger_.refuse(version);
  }

  // ST_OK, ST_E_BUSY where somebody else was at it, or what else may come of this call: all the rest is wrong.
  st_status allow(const char *call, st_status status, std::initializer_list<st_status> also = {}) {
    if (status == ST_OK || status == ST_E_BUSY || std::find(also.begin(), also.end(), status) != also.end())
      return status;
    if (ledger_.may_fail_with(status)) {
      ++ledger_.failures;
      failed_ = true;
      ::usleep(1000);  // others may get more out of the processor
      return status;
    }
    ledger_.complain("a writer: " + said(call, status));
    ::_exit(1);
  }

  void count_recoveries() {
    auto stats = sized<st_stats>();
    if (!file_ || st_file_stats(file_.get(), &stats) != ST_OK) return;
    ledger_.recoveries += stats.recoveries - counted_;
    counted_ = stats.recoveries;
  }

  Ledger &ledger_;
  const uint32_t worker_;
  std::mt19937_64 random_;
  FileHandle file_;

 private:
  uint64_t counted_ = 0;
  bool failed_ = false;
};

}  // namespace st::testing
