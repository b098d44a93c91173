#include "journal/manifest.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/hash.h"

namespace st::write {

Result<Verdict> Manifest::each(const Take &take) const {
  const uint64_t n = record_.ranges, each = record_.range_bytes();
  if (n > journal_bytes_ / each || record_.manifest > journal_bytes_ || n * each > journal_bytes_ - record_.manifest)
    return Verdict::bad("its manifest lies outside of it");
  constexpr uint64_t window = 1024;
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(std::min(window, n) * each);
  RangeRules rules(record_.identity, end_of_references_);
  Hasher hasher;
  for (uint64_t done = 0; done < n; done += window) {
    const std::span<std::byte> bytes(buffer.get(), std::min(window, n - done) * each);
    ST_TRY(journal_.read(bytes.data(), bytes.size(), record_.manifest + done * each));
    hasher.add(bytes.data(), bytes.size());
    for (const RangeRecord &range : decode_ranges(bytes, record_.is_sparse())) {
      if (const Verdict sound = rules.judge(range); !sound.is_good())
        return Verdict::bad(text("its manifest is damaged: ", sound.why()));
      auto taken = take(range);
      if (!taken || !taken->is_good()) return taken;
    }
  }
  if (hasher.digest() != record_.manifest_hash) return Verdict::bad("its manifest is damaged");
  return Verdict::good();
}

}  // namespace st::write
