#include "delta/delta_hash.h"

#include <algorithm>

namespace st::store {

void TensorHasher::add(std::span<const std::byte> bytes) {
  all_.add(bytes.data(), bytes.size());
  if (fed_ < delta_head_bytes) head_.add(bytes.data(), std::min<uint64_t>(bytes.size(), delta_head_bytes - fed_));
  fed_ += bytes.size();
}

Result<OldBytes> hash_tensor(TensorWindow &window, const Snapshot &file, const TensorView &t,
                             const std::function<Result<void>(std::span<const std::byte>)> &take) {
  TensorHasher hasher;
  for (uint64_t done = 0; done < t.nbytes;) {
    auto piece = window.at(file, t, done, t.nbytes - done);
    if (!piece) return Failure(std::move(piece.error()).about_tensor(t.name));
    hasher.add(*piece);
    done += piece->size();
    if (auto go = take(*piece); !go) return Failure(std::move(go.error()).about_tensor(t.name));
  }
  return hasher.digest();
}

}  // namespace st::store
