#include "ledger.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace st::testing {

static_assert(std::atomic<uint64_t>::is_always_lock_free, "a lock would die with its holder");

const char Ledger::anchor[] = "nothing yet";

size_t Ledger::bytes() {
  return sizeof(Ledger) + most_versions * sizeof(Entry);
}

Ledger &Ledger::make(void *memory) {
  return *new (memory) Ledger();
}

Ledger::Entry &Ledger::entry(uint64_t version) {
  if (version >= most_versions) std::fprintf(stderr, "the ledger is full\n"), std::_Exit(1);
  return entries()[version];
}

void Ledger::intend(uint32_t worker, uint64_t version, uint32_t tensors, std::optional<uint64_t> brings_back) {
  Entry &e = entry(version);
  e.shows = brings_back.value_or(version);
  e.tensors = tensors;
  e.worker = worker;
  e.start = clock_.fetch_add(1);
  workers_[worker].version = version;
  e.state = intended;
}

void Ledger::acknowledge(uint64_t version) {
  Entry &e = entry(version);
  e.end = clock_.fetch_add(1);
  e.state = acknowledged;
  ++commits;
}

void Ledger::refuse(uint64_t version) {
  entry(version).state = refused;
}

void Ledger::bury(uint32_t worker) {
  Worker &w = workers_[worker];
  const uint64_t version = w.version.exchange(0);
  if (version == 0) return;
  Entry &e = entry(version);
  if (e.state != intended) return;
  e.end = clock_.fetch_add(1);
  e.at = w.doing.load();
  e.state = buried;
}

void Ledger::complain(const std::string &what) {
  uint32_t nobody = 0;
  if (!complained_.compare_exchange_strong(nobody, 1)) return;
  std::strncpy(complaint_, what.c_str(), sizeof complaint_ - 1);
  complained_ = 2;
}

std::vector<Transaction> Ledger::since_start() const {
  std::vector<Transaction> log;
  for (uint64_t t = 0; t < seen_count_; ++t) log.push_back({seen_[t], 1u << t, 0, 0, true});
  for (uint64_t v = first_version_; v < next_version_; ++v) {
    const Entry &e = entries()[v];
    if (e.state == acknowledged || e.state == buried)
      log.push_back({e.shows, e.tensors, e.start, e.end, e.state == acknowledged});
  }
  return log;
}

void Ledger::start_over(const std::vector<uint64_t> &seen) {
  seen_count_ = seen.size();
  std::copy(seen.begin(), seen.end(), seen_);
  first_version_ = next_version_;
}

std::string Ledger::described(uint32_t worker) const {
  const Worker &w = workers_[worker];
  return std::string(text_at(w.doing)) + ", version " + std::to_string(w.version);
}

std::string Ledger::last_of(uint32_t tensor) const {
  constexpr size_t most = 8;
  std::string text;
  size_t told = 0;
  for (uint64_t v = next_version_; v-- > first_version_ && told < most;) {
    const Entry &e = entries()[v];
    if (e.state == unused || !(e.tensors >> tensor & 1)) continue;
    ++told;
    text += "  " + std::to_string(e.start) + " to " + std::to_string(e.end) + ": worker " + std::to_string(e.worker) +
            ", version " + std::to_string(v);
    if (e.shows != v) text += ", brings back " + std::to_string(e.shows);
    text += e.state == acknowledged ? ", acknowledged"
            : e.state == refused    ? ", refused"
            : e.state == buried     ? std::string(", killed at ") + text_at(e.at)
                                    : ", under way";
    text += "\n";
  }
  return text + "  before these the chapter began" +
         (tensor < seen_count_ ? " with " + std::to_string(seen_[tensor]) : "") + "\n";
}

}  // namespace st::testing
