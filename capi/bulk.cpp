// Bulk reads.
#include <deque>
#include <span>

#include "boundary.h"

using namespace st;
using namespace st::capi;

namespace {

static_assert(static_cast<uint32_t>(read::Prefetch::parallel) == ST_PREFETCH_PARALLEL &&
              static_cast<uint32_t>(read::Direct::on) == ST_DIRECT_ON);

Result<std::vector<store::Place>> places_of(const char *call, const store::Catalogue &catalogue, const size_t *indices,
                                            size_t n, const Progress &progress) {
  ST_TRY(check_count<size_t>(call, "indices", n));
  store::Wanted wanted(catalogue);
  for (const size_t i : std::span(indices, n))
    if (!wanted.add(i)) break;  // nor is more of a wrong count looked at

  ST_TRY(wanted.open(progress));
  std::vector<store::Place> places;
  // A wrong count meets an index that is none, long before memory for all of them is needed.
  places.reserve(std::min(n, catalogue.size()));
  for (const size_t i : std::span(indices, n)) {
    ST_TRY(auto place, catalogue.at(i));
    places.push_back(place);
  }
  return places;
}

Result<st_bulk_options> read_options(const char *call, const st_bulk_options *given, uint32_t flags) {
  auto o = st::capi::read_options(given);
  if (o && o->flags & ~flags)
    return fail(Status::unsupported, call, " was given a flag that it does not know in libst ", st_version());
  return o;
}

}  // namespace

st_status st_read_many(st_file *file, const st_read_request *reqs, size_t n, const st_bulk_options *opts) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_read_many", file));
    ST_TRY(auto o, read_options("st_read_many", opts, ST_BULK_FRESH_MEMORY));
    if (n == 0) return {};
    ST_TRY(require("st_read_many", reqs));
    ST_TRY(check_count<st_read_request>("st_read_many", "requests", n));
    const store::Catalogue catalogue = file->model->catalogue();
    store::Wanted wanted(catalogue);
    for (const st_read_request &r : std::span(reqs, n))
      if (!(r.name ? wanted.add(name_of(r.name, r.name_len)) : wanted.add(r.index))) break;
    const Progress told = progress_of(o.progress, o.progress_user);
    ST_TRY(wanted.open(told));
    const bool fresh = o.flags & ST_BULK_FRESH_MEMORY;
    std::deque<SlicePlan> slices;  // which stay where they are
    std::vector<store::PlacedRequest> requests;
    for (const st_read_request &r : std::span(reqs, n)) {
      if (r.reserved != 0)
        return fail(Status::unsupported, "st_read_request.reserved is ", r.reserved, ", and libst ", st_version(),
                    " does not know what that means; it is zero");
      ST_TRY(auto place, r.name ? catalogue.find(name_of(r.name, r.name_len)) : catalogue.at(r.index));
      store::PlacedRequest request{place, nullptr, static_cast<std::byte *>(r.dst), fresh};
      uint64_t need = place.tensor().nbytes;
      if (r.range_count > 0) {
        ST_TRY(require("st_read_many", r.ranges));
        ST_TRY(auto slice, plan(place, r.ranges, r.range_count));
        need = slice.nbytes();
        slices.push_back(std::move(slice));
        request.slice = &slices.back();
      }
      ST_TRY(check_room("st_read_many", place.tensor().name, need, r.dst, r.dst_size));
      requests.push_back(request);
    }
    return file->model->read_many(requests, told);
  });
}

st_status st_prefetch(st_file *file, const size_t *indices, size_t n, const st_bulk_options *opts) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_prefetch", file));
    ST_TRY(auto o, read_options("st_prefetch", opts, 0));
    const store::Catalogue catalogue = file->model->catalogue();
    const Progress told = progress_of(o.progress, o.progress_user);
    if (!indices && n == 0) return file->model->prefetch(catalogue, std::nullopt, told);
    ST_TRY(require("st_prefetch", indices));
    ST_TRY(auto places, places_of("st_prefetch", catalogue, indices, n, told));
    return file->model->prefetch(catalogue, std::move(places), told);
  });
}

st_status st_load(st_file *file, const size_t *indices, size_t n, const st_bulk_options *opts) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_load", file));
    ST_TRY(auto o, read_options("st_load", opts, ST_BULK_HUGE_PAGES | ST_BULK_DIRECT));
    const store::Catalogue catalogue = file->model->lend();
    const Progress told = progress_of(o.progress, o.progress_user);
    std::optional<std::vector<store::Place>> wanted;
    if (indices || n > 0) {
      ST_TRY(require("st_load", indices));
      ST_TRY(wanted, places_of("st_load", catalogue, indices, n, told));
    }
    return file->model->load(catalogue, std::move(wanted), o.flags & ST_BULK_HUGE_PAGES, o.flags & ST_BULK_DIRECT,
                             told);
  });
}
