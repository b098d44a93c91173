// A file on the server of a simulated cluster, what hosts do to it, and what must be true of it in the end.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cluster_host.h"
#include "file/transaction.h"
#include "serial_order.h"

namespace st::testing {

class ClusterScene {
 public:
  static constexpr size_t tensors = 4;
  // Tensors `a` and `c` only change together; `b` lies between, in a page with both. `d`, the last, has no page with
  // `b`.
  enum Tensors : uint32_t { pair = 0b0101, neighbour = 0b0010, last = 0b1000, others = 0b1010, everything = 0b1111 };

  ClusterScene();
  SimEnv server;

  static Result<std::unique_ptr<store::DataFile>> open(os::Env &host);
  // One transaction, which gives these tensors a new version; and what came of it.
  Result<void> change(store::DataFile &file, uint32_t set, bool publish = false, int32_t timeout_ms = 0);
  // The same of all tensors, by a file that is written anew.
  Result<void> save(os::Env &host);

  // The version of each tensor, as this host has it; `torn` is none.
  std::vector<uint64_t> seen(const store::DataFile &file) const;
  static constexpr uint64_t torn = UINT64_MAX;
  // Is there a journal with a record?
  bool has_record() const;
  // A host without a living writer beside it has seen this: whatever its writer is told, it is there from now on.
  void must_stay(const std::vector<uint64_t> &versions) { shown_.insert(versions.begin(), versions.end()); }

  // While hosts have the file open, but none is at work. Empty: all is well.
  std::string why_wrong_now();
  // When all hosts are gone. Another one opens the file, and the power of the server is cut. Empty: all is well.
  std::string why_wrong();

 private:
  template <class Change>
  Result<void> as_one(uint32_t set, Change change);
  std::string why_wrong(SimEnv &disk, std::vector<uint64_t> *found) const;
  std::string why_not_allowed(const std::vector<uint64_t> &found) const;
  std::string why_not_kept(std::vector<uint64_t> found);

  std::vector<Transaction> log_;
  std::set<uint64_t> shown_;
  uint64_t clock_ = 0, next_version_ = 1;
};

}  // namespace st::testing
