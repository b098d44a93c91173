#include "read/warm.h"

#include <sys/mman.h>

#include "read/requests.h"

namespace st::read {
namespace {

// Does reading this file fill the page cache that its mapping shows? Not where
// a FUSE daemon asked for direct I/O: there a shared mapping is refused, and a
// private one fetches its own pages.
bool reads_fill_the_cache(const os::File &file, const Content &content) {
  if (content.map() == MapMode::shared) return true;
  void *address = nullptr;
  if (file.env().mmap(1, PROT_READ, MAP_SHARED, file.fd(), &address) < 0) return false;
  file.env().munmap(address, 1);
  return true;
}

}  // namespace

Result<BulkDone> warm(const os::File &file, const Content &content, std::vector<Piece> pieces, const Strategy &strategy,
                      const Control &control) {
  for (Piece &piece : pieces) piece.to = nullptr;
  Strategy cached = strategy;
  cached.direct = Direct::off;
  if (reads_fill_the_cache(file, content)) return read_pieces(file, std::move(pieces), cached, 0, control);

  const Plan plan = plan_requests(std::move(pieces), strategy.block, strategy.gap, SIZE_MAX);
  BulkDone done;
  uint64_t wanted = 0;
  for (const Request &r : plan.requests) {
    if (auto go = control.check(wanted, plan.wanted); !go) return Failure(std::move(go.error()));
    if (auto populated = content.mapping().populate(r.offset, r.length); !populated) {
      // The kernel has one errno for a file that ends before and for a disk that fails.
      auto now = file.stat();
      if (now && static_cast<uint64_t>(now->st_size) >= r.offset + r.length &&
          populated.error().status == Status::file_changed)
        return Failure(file.error(EIO, "read").at_offset(r.offset));
      return Failure(std::move(populated.error()).at_offset(r.offset));
    }
    done.bytes += r.length;
    ++done.requests;
    for (size_t i = 0; i < r.count; ++i) wanted += plan.pieces[r.first + i].length;
  }
  if (auto go = control.check(plan.wanted, plan.wanted); !go) return Failure(std::move(go.error()));
  return done;
}

}  // namespace st::read
