// Bulk reads.
#include <deque>
#include <numeric>
#include <span>

#include "boundary.h"

using namespace st;
using namespace st::capi;

namespace {

static_assert(static_cast<uint32_t>(read::Prefetch::parallel) == ST_PREFETCH_PARALLEL &&
              static_cast<uint32_t>(read::Direct::on) == ST_DIRECT_ON);

Result<std::vector<size_t>> check_all(const store::Snapshot &snapshot, const uint64_t *indices, size_t n) {
  std::vector<size_t> tensors(indices, indices + n);
  for (size_t i : tensors) ST_CAPI_TRY(check_index(snapshot, i));
  return tensors;
}

}  // namespace

st_status st_read_many(st_file *file, const st_read_request *reqs, size_t n, st_progress_fn progress, void *user) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_read_many", file));
    if (n == 0) return {};
    ST_CAPI_TRY(require("st_read_many", reqs));
    const store::Snapshot &snapshot = file->checkpoint->snapshot();
    std::deque<SlicePlan> slices;  // which stay where they are
    std::vector<store::BulkRequest> requests;
    for (const st_read_request &r : std::span(reqs, n)) {
      size_t i = static_cast<size_t>(r.index);
      if (r.name) {
        auto found = find(snapshot, r.name, r.name_len);
        if (!found) return Failure(std::move(found.error()));
        i = *found;
      } else {
        ST_CAPI_TRY(check_index(snapshot, r.index));
      }
      store::BulkRequest request{i, nullptr, static_cast<std::byte *>(r.dst)};
      uint64_t need = snapshot.header.index.at(i).nbytes;
      if (r.range_count > 0) {
        ST_CAPI_TRY(require("st_read_many", r.ranges));
        auto slice = plan(snapshot, i, r.ranges, r.range_count);
        if (!slice) return Failure(std::move(slice.error()));
        need = slice->nbytes();
        slices.push_back(std::move(*slice));
        request.slice = &slices.back();
      }
      if (auto room = check_room("st_read_many", need, r.dst, r.dst_size); !room)
        return Failure(std::move(room.error()).about_tensor(snapshot.header.index.at(i).name));
      requests.push_back(request);
    }
    return file->checkpoint->read_many(snapshot, requests, progress_of(progress, user));
  });
}

st_status st_prefetch(st_file *file, const char *const *names, size_t n) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_prefetch", file));
    const store::Snapshot &snapshot = file->checkpoint->snapshot();
    if (!names && n == 0) return file->checkpoint->prefetch(snapshot, file->checkpoint->own_part(snapshot), {});
    ST_CAPI_TRY(require("st_prefetch", names));
    std::vector<size_t> tensors;
    for (size_t i = 0; i < n; ++i) {
      ST_CAPI_TRY(require("st_prefetch", names[i]));
      auto found = find(snapshot, names[i], std::strlen(names[i]));
      if (!found) return Failure(std::move(found.error()));
      tensors.push_back(*found);
    }
    return file->checkpoint->prefetch(snapshot, std::move(tensors), {});
  });
}

st_status st_prefetch_at(st_file *file, const uint64_t *indices, size_t n, st_progress_fn progress, void *user) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_prefetch_at", file));
    const store::Snapshot &snapshot = file->checkpoint->snapshot();
    const Progress told = progress_of(progress, user);
    if (!indices && n == 0) return file->checkpoint->prefetch(snapshot, file->checkpoint->own_part(snapshot), told);
    ST_CAPI_TRY(require("st_prefetch_at", indices));
    auto tensors = check_all(snapshot, indices, n);
    if (!tensors) return Failure(std::move(tensors.error()));
    return file->checkpoint->prefetch(snapshot, std::move(*tensors), told);
  });
}

void st_load_options_init(st_load_options *out, size_t size) {
  init_struct(out, size, st_load_options ST_LOAD_OPTIONS_INIT);
}

st_status st_load(st_file *file, const uint64_t *indices, size_t n, const st_load_options *opts) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_load", file));
    auto o = read_options(opts, st_load_options ST_LOAD_OPTIONS_INIT);
    if (!o) return Failure(std::move(o.error()));
    if (o->flags & ~(ST_LOAD_HUGE_PAGES | ST_LOAD_DIRECT))
      return fail(Status::unsupported, "st_load was given a flag that libst ", st_version(), " does not know");
    const store::Snapshot &snapshot = file->checkpoint->snapshot();
    std::vector<size_t> tensors(snapshot.header.index.size());
    std::iota(tensors.begin(), tensors.end(), size_t{0});
    if (indices || n > 0) {
      ST_CAPI_TRY(require("st_load", indices));
      auto checked = check_all(snapshot, indices, n);
      if (!checked) return Failure(std::move(checked.error()));
      tensors = std::move(*checked);
    }
    return file->checkpoint->load(snapshot, std::move(tensors), o->flags & ST_LOAD_HUGE_PAGES,
                                  o->flags & ST_LOAD_DIRECT, progress_of(o->progress, o->progress_user));
  });
}
