#include "serial_order.h"

#include <vector>

namespace st::testing {
namespace {

std::string described(const Transaction &t) {
  return "version " + std::to_string(t.version) + " (" + std::to_string(t.start) + " to " + std::to_string(t.end) +
         ", " + (t.acknowledged ? "acknowledged" : "its writer died") + ")";
}

}  // namespace

// Every edge of the second kind ends in a transaction that is seen, and edges of
// time are transitive. So a cycle shows among the few that are seen. There is a path
// of one or two edges from the one at tensor i to the one at j in two cases: it
// touches j itself, or it ended before something that took effect on j started.
std::string why_not_serial(std::span<const Transaction> log, std::span<const uint64_t> seen) {
  const size_t n = seen.size();
  std::vector<const Transaction *> shown(n, nullptr);
  for (const Transaction &t : log)
    for (size_t i = 0; i < n; ++i)
      if (t.version == seen[i] && (t.tensors >> i & 1) && (!shown[i] || t.start > shown[i]->start)) shown[i] = &t;
  for (size_t i = 0; i < n; ++i)
    if (!shown[i])
      return "tensor " + std::to_string(i) + " shows version " + std::to_string(seen[i]) +
             ", which nobody meant for it";

  auto took_effect = [&](const Transaction &t) {
    if (t.acknowledged) return true;
    for (const Transaction *s : shown)
      if (s == &t) return true;
    return false;
  };
  // For each tensor, what started last of those that came to it before the one seen.
  std::vector<const Transaction *> latest(n, nullptr);
  for (const Transaction &t : log)
    if (took_effect(t))
      for (size_t j = 0; j < n; ++j)
        if ((t.tensors >> j & 1) && shown[j] != &t && (!latest[j] || t.start > latest[j]->start)) latest[j] = &t;

  // A node for each that is seen, named by the first tensor that shows it.
  std::vector<size_t> node(n);
  for (size_t i = 0; i < n; ++i)
    for (node[i] = 0; shown[node[i]] != shown[i];) ++node[i];
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n));
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j) {
      const bool overtaken = latest[j] && shown[i]->end < latest[j]->start;
      if (overtaken && node[i] == node[j])
        return "tensor " + std::to_string(j) + " shows " + described(*shown[j]) + ", but later there was " +
               described(*latest[j]);
      const bool touches = shown[i]->tensors >> j & 1, earlier = shown[i]->end < shown[j]->start;
      if (overtaken || (node[i] != node[j] && (touches || earlier))) before[node[i]][node[j]] = true;
    }
  for (size_t k = 0; k < n; ++k)
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j)
        if (before[i][k] && before[k][j]) before[i][j] = true;
  for (size_t i = 0; i < n; ++i)
    if (before[i][i])
      return "tensor " + std::to_string(i) + " shows " + described(*shown[i]) +
             ", which other tensors say was followed by another: half a transaction, or a value from the past";
  return {};
}

}  // namespace st::testing
