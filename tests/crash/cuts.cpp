#include "cuts.h"

namespace st::testing {

std::vector<SimDisk> Cuts::of(const SimDisk &disk, uint64_t expectation) {
  std::vector<SimDisk> left;
  const auto changes = pending_changes(disk);
  const bool every = changes.size() <= all_of_;
  std::vector<uint32_t> keep(changes.size());
  for (uint32_t i = 0; i < (every ? 1u << changes.size() : samples_); ++i) {
    for (size_t k = 0; k < keep.size(); ++k)
      keep[k] = every               ? i >> k & 1
                : random_() % 3 < 2 ? static_cast<uint32_t>(random_() % 2)
                                    : static_cast<uint32_t>(2 + random_() % 1000);
    SimDisk one = after_cut(disk, changes, keep);
    if (known_.insert(fingerprint(one) * 4 + expectation).second) left.push_back(std::move(one));
  }
  return left;
}

}  // namespace st::testing
