// Views, copies and slices.
#include "boundary.h"

using namespace st;
using namespace st::capi;

namespace st::capi {

Result<SlicePlan> plan(const store::Place &place, const st_range *ranges, size_t n) {
  const TensorView t = place.tensor();
  auto made = SlicePlan::make(t.dtype, t.shape, ranges_of(ranges, n));
  if (!made) return Failure(naming_tensor(t.name, std::move(made.error())));
  return made;
}

Result<void> check_room(std::string_view call, std::string_view tensor, uint64_t need, const void *dst,
                        size_t dst_size) {
  if (need > dst_size)
    return Failure(error(Status::buffer_size, call, " needs a buffer of ", need, " bytes for tensor ",
                         in_quotes(tensor), " but was given ", dst_size)
                       .about_tensor(tensor));
  if (!dst && need > 0)
    return Failure(error(Status::invalid_argument, call, " was given NULL to read tensor ", in_quotes(tensor), " into")
                       .about_tensor(tensor));
  return {};
}

}  // namespace st::capi

// Most calls need nothing that could fail.
st_status st_get(st_file *file, const char *name, size_t name_len, st_tensor *out) {
  if (file && file->single && name && out) {
    const store::Snapshot &snapshot = shown(*file);
    if (const auto i = snapshot.header.index.find(name_of(name, name_len))) {
      const TensorView t = snapshot.header.index.at(*i);
      if (const std::byte *data = file->single->try_view(snapshot, *i, t)) {
        describe(snapshot, t, data, out);
        return ST_OK;
      }
    }
  }
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_get", file, name, out));
    ST_TRY(auto place, file->model->lend().find(name_of(name, name_len)));
    return describe_with_view(place, out);
  });
}

namespace {

// Lent, if names and shapes of it are given out.
store::Catalogue to_read(st_file *file, const st_tensor *read) {
  return read ? file->model->lend() : file->model->catalogue();
}

// What was read, or would be if there were room.
void tell(const store::Place &place, st_tensor *read) {
  if (read) describe(place, nullptr, read);
}

}  // namespace

st_status st_read(st_file *file, const char *name, size_t name_len, void *dst, size_t dst_size, st_tensor *read) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_read", file, name));
    const store::Catalogue catalogue = to_read(file, read);
    ST_TRY(auto place, catalogue.find(name_of(name, name_len)));
    if (auto room = check_room("st_read", place.tensor().name, place.tensor().nbytes, dst, dst_size); !room) {
      if (room.error().status == Status::buffer_size) tell(place, read);
      return room;
    }
    ST_TRY(place.member->read(*place.snapshot, place.index, dst));
    tell(place, read);
    return {};
  });
}

st_status st_slice_shape(st_file *file, const char *name, size_t name_len, const st_range *ranges, size_t n,
                         uint64_t *shape, size_t capacity, size_t *rank, uint64_t *nbytes) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_slice_shape", file, name));
    if (n > 0) ST_TRY(require("st_slice_shape", ranges));
    const store::Catalogue catalogue = file->model->catalogue();
    ST_TRY(auto place, catalogue.find(name_of(name, name_len)));
    ST_TRY(auto made, plan(place, ranges, n));
    if (rank) *rank = made.shape().size();
    if (nbytes) *nbytes = made.nbytes();
    if (!shape) return {};
    if (capacity < made.shape().size())
      return Failure(error(Status::buffer_size, "st_slice_shape needs room for ", made.shape().size(),
                           " numbers but was given room for ", capacity)
                         .about_tensor(place.tensor().name));
    std::copy(made.shape().begin(), made.shape().end(), shape);
    return {};
  });
}

st_status st_read_slice(st_file *file, const char *name, size_t name_len, const st_range *ranges, size_t n, void *dst,
                        size_t dst_size, st_tensor *read) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_read_slice", file, name));
    if (n > 0) ST_TRY(require("st_read_slice", ranges));
    const store::Catalogue catalogue = to_read(file, read);
    ST_TRY(auto place, catalogue.find(name_of(name, name_len)));
    ST_TRY(auto made, plan(place, ranges, n));
    if (auto room = check_room("st_read_slice", place.tensor().name, made.nbytes(), dst, dst_size); !room) {
      if (room.error().status == Status::buffer_size) tell(place, read);
      return room;
    }
    ST_TRY(place.member->read_slice(*place.snapshot, place.index, made, dst));
    tell(place, read);
    return {};
  });
}
