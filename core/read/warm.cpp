#include "read/warm.h"

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "read/thread_pool.h"
#include "read/requests.h"

namespace st::read {
namespace {

// Does reading this file fill the page cache that its mapping shows? Not where it is read past that; nor where
// a FUSE daemon asked for direct I/O: there a shared mapping is refused, and a
// private one fetches its own pages.
bool reads_fill_the_cache(const os::File &file, const Content &content) {
  if (file.reads_past_cache()) return false;
  if (content.map() == MapMode::shared) return true;
  void *address = nullptr;
  if (file.env().mmap(1, PROT_READ, MAP_SHARED, file.fd(), &address) < 0) return false;
  file.env().munmap(address, 1);
  return true;
}

enum class Pages { as_they_are, own };

Result<void> bring_in(const os::File &file, const Content &content, Pages pages, const Request &r) {
  const os::Mapping &mapping = *content.mapping();
  auto populated = pages == Pages::own ? mapping.own(file, r.offset, r.length) : mapping.populate(r.offset, r.length);
  if (populated) return {};
  // The kernel has one errno for a file that ends before and for a disk that fails.
  auto now = file.stat();
  if (now && static_cast<uint64_t>(now->st_size) >= r.offset + r.length &&
      populated.error().status == Status::file_changed)
    return Failure(file.error(EIO, "read").at_offset(r.offset));
  return Failure(std::move(populated.error()).at_offset(r.offset));
}

// Into the mapping: a later look then waits for no page fault, either.
Result<BulkDone> populate(const os::File &file, const Content &content, Pages pages, const Plan &plan, size_t threads,
                          const Control &control) {
  std::atomic<size_t> next = 0;
  std::atomic<uint64_t> bytes = 0, requests = 0, wanted = 0;
  ThreadPool pool(file.env());
  const auto look = [&] { return control.check(wanted, plan.wanted); };
  const auto work = [&](size_t, bool calling) -> Result<void> {
    for (size_t i; !pool.stopped() && (i = next++) < plan.requests.size();) {
      if (calling || control.interrupted()) ST_TRY(look());
      const Request &r = plan.requests[i];
      ST_TRY(bring_in(file, content, pages, r));
      bytes += r.length;
      ++requests;
      wanted += wanted_of(plan, r);
      if (!calling) pool.tell();
    }
    return {};
  };
  if (!plan.requests.empty()) ST_TRY(pool.run(std::min(threads, plan.requests.size()), work, look));
  ST_TRY(control.check(plan.wanted, plan.wanted));
  return BulkDone{bytes, requests};
}

}  // namespace

Result<BulkDone> warm(const os::File &file, const Content &content, std::vector<Piece> pieces, const Strategy &strategy,
                      const Control &control) {
  for (Piece &piece : pieces) piece.to = nullptr;
  const bool of_its_own = content.map() == MapMode::copy_on_write;  // all that is wanted will be touched
  if (!of_its_own && reads_fill_the_cache(file, content)) {
    Strategy cached = strategy;
    cached.direct = Direct::off;
    return read_pieces(file, std::move(pieces), cached, 0, control);
  }
  const Plan plan = plan_requests(std::move(pieces), strategy.block, strategy.gap, SIZE_MAX);
  const bool by_one = !of_its_own && !file.reads_past_cache();  // daemon
  return populate(file, content, Pages::as_they_are, plan, by_one ? 1 : strategy.threads, control);
}

Result<BulkDone> own(const os::File &file, const Content &content, std::vector<Piece> pieces, const Strategy &strategy,
                     const Control &control) {
  const Plan plan = plan_requests(std::move(pieces), strategy.block, 0, SIZE_MAX);
  return populate(file, content, Pages::own, plan, strategy.threads, control);
}

}  // namespace st::read
