// What can be proved from outside about blind writes to many tensors.
//
// The writers keep a log on a clock that all of them share. A transaction takes a
// stamp before its commit is called (`start`). It takes another (`end`) when the commit
// has returned ST_OK, or its writer was seen to be dead. Its place in the serial order lies
// between the two. For a dead writer too: whatever its journal held, nobody may commit
// to the same tensors later without recovering it first. So it takes effect before
// anything that starts after its end, or never.
//
// Once all is quiet the values are seen. A transaction took effect if it was
// acknowledged, or if any tensor shows it. All that the promises (atomic,
// serial, durable) then demand is that there is an order of those that
// took effect in which
//
//   time:    a comes before b if a ended before b started;
//   values:  each tensor shows the last transaction that touches it.
//
// Both rules are edges of a graph, and there is such an order just if it has no
// cycle. A lost update, a value from the past, and half a transaction that
// overlaps with no other are each a cycle of it. Half a transaction next to
// others that ran at the same time need not be: nobody can know from this log
// which came last. So the storm also has groups of tensors that only ever change together.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace st::testing {

struct Transaction {
  // What its tensors then hold. Several may have the same version: then each but
  // the first brings it back, after another that was acknowledged had replaced it
  // in all of its tensors; so the one that started last is the one that is seen.
  uint64_t version = 0;
  uint32_t tensors = 0;  // bit t: touches tensor t
  uint64_t start = 0, end = 0;
  bool acknowledged = false;  // else its writer died meanwhile
};

// `seen[t]` is the version that tensor t shows. Empty if there is an order,
// else what is wrong, in words.
std::string why_not_serial(std::span<const Transaction> log, std::span<const uint64_t> seen);

}  // namespace st::testing
