#include "write/stream.h"

#include <algorithm>

#include "write/units.h"

namespace st::write {

Result<void> write_stream(const os::File &to, const void *bytes, uint64_t n, uint64_t offset,
                          const std::function<Result<void>(uint64_t done)> &tell) {
  constexpr uint64_t piece = uint64_t{4} << 20;
  const auto *from = static_cast<const std::byte *>(bytes);
  for (uint64_t done = 0, started = 0; done < n;) {
    const uint64_t take = std::min(piece, n - done);
    if (auto put = to.write(from + done, take, offset + done); !put) return put;
    done += take;
    if (done - started >= write_out_bytes) {
      to.env().sync_range(to.fd(), offset + started, done - started);
      started = done;
    }
    if (auto go = tell(take); !go) return go;
  }
  return {};
}

}  // namespace st::write
