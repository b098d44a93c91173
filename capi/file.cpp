// Open, close and the catalogue.
#include "boundary.h"
#include "engine/open.h"

namespace st::capi {
namespace {

Failure too_small_for_names(size_t need, size_t room) {
  return fail(Status::buffer_size, "st_names needs a buffer of ", need, " bytes but was given ", room);
}

}  // namespace

Result<store::OpenOptions> open_options_of(const st_open_options *given) {
  ST_TRY(auto o, read_options(given));
  if (o.flags & ~ST_OPEN_READ_WRITE)
    return fail(Status::unsupported, "st_open was given a flag that libst ", st_version(), " does not know");
  if (o.map > ST_MAP_COPY_ON_WRITE)
    return fail(Status::unsupported, "st_open_options.map is ", o.map, ", which libst ", st_version(),
                " does not know; it takes ST_MAP_AUTO, _SHARED, _PRIVATE, _NONE or _COPY_ON_WRITE");
  if (o.prefetch > ST_PREFETCH_PARALLEL || o.direct > ST_DIRECT_ON)
    return fail(Status::unsupported, "st_open_options.prefetch is ", o.prefetch, " and .direct is ", o.direct,
                "; they take what libst ", st_version(), " knows of ST_PREFETCH_... and ST_DIRECT_...");
  if (o.worker_index >= std::max(o.worker_count, 1u))
    return fail(Status::invalid_argument, "st_open_options.worker_index is ", o.worker_index, " of ",
                std::max(o.worker_count, 1u), " workers; it counts from 0");
  store::OpenOptions options;
  options.bulk = {static_cast<read::Prefetch>(o.prefetch), static_cast<read::Direct>(o.direct), o.io_threads,
                  o.block_size, std::max(o.worker_count, 1u)};
  options.worker_index = o.worker_index;
  options.worker_count = std::max(o.worker_count, 1u);
  options.memory_limit = o.memory_limit;
  options.writable = o.flags & ST_OPEN_READ_WRITE;
  options.map = static_cast<read::MapMode>(o.map);
  ST_TRY(options.lock_timeout_ms, timeout_of(o.lock_timeout_ms));
  options.progress = progress_of(o.progress, o.progress_user);
  ST_TRY(options.deltas, paths_of("st_open_options.deltas", o.deltas, o.delta_count));
  if (o.log)
    options.log = [fn = o.log, user = o.log_user](LogLevel level, const std::string &message) {
      fn(user, static_cast<uint32_t>(std::min(level, LogLevel::warning)), message.c_str());
    };
  return options;
}

}  // namespace st::capi

using namespace st;
using namespace st::capi;

st_status st_open(const char *path, const st_open_options *opts, st_file **out) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_open", path, out));
    ST_TRY(auto options, open_options_of(opts));
    return hand_out(store::open_path(os::Env::posix(), path, std::move(options)), out);
  });
}

st_status st_open_memory(const void *bytes, size_t size, st_file **out) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_open_memory", bytes, out));
    return hand_out(store::open_memory(os::Env::posix(), static_cast<const std::byte *>(bytes), size), out);
  });
}

st_status st_reopen(const st_file *file, uint32_t flags, st_file **out) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_reopen", file, out));
    if (flags & ~ST_REOPEN_COPY_ON_WRITE)
      return fail(Status::unsupported, "st_reopen was given a flag that libst ", st_version(), " does not know");
    const auto how = flags & ST_REOPEN_COPY_ON_WRITE ? store::Again::copy_on_write : store::Again::the_same;
    return hand_out(file->model->reopen_shown(how), out);
  });
}

st_status st_snapshot(st_file *file, st_file **out) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_snapshot", file, out));
    auto made = file->pin ? std::make_shared<store::Pinned>(*file->pin)
                          : std::make_shared<store::Pinned>(file->model, file->model->catalogue());
    *out = new st_file(made);
    return {};
  });
}

st_status st_mapping_keep(st_file *file, st_mapping **out, const void **data, size_t *size) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_mapping_keep", file, out));
    if (!file->single)
      return fail(Status::unsupported, "the mappings of several files cannot be kept as one; keep the handle");
    const store::Catalogue state = file->model->catalogue();
    ST_TRY(auto content, state.snapshot()->content_here());
    if (!content->mapping())
      return fail(Status::unsupported, "this file is not mapped (", content->reason(), "); keep the handle");
    std::unique_ptr<st_mapping> kept(new st_mapping{content->mapping()});
    if (data) *data = kept->mapping->data();
    if (size) *size = kept->mapping->size();
    *out = kept.release();
    return {};
  });
}

void st_mapping_free(st_mapping *mapping) {
  delete mapping;
}

void st_release(st_file *file) {
  if (file) file->model->release();
}

void st_close(st_file *file) {
  if (!file) return;
  for (st_txn *txn : file->transactions) {
    txn->end();
    txn->file = nullptr;
  }
  file->model->close();
  delete file;
}

void st_interrupt(st_file *file) {
  if (file) file->model->interrupt();
}

size_t st_count(const st_file *file) {
  return file ? file->model->catalogue().size() : 0;
}

st_status st_at(st_file *file, size_t first, size_t n, st_tensor *out) {
  if (file && file->single && n > 0 && out) {
    const store::Snapshot &snapshot = shown(*file);
    const Index &index = snapshot.header.index;
    if (first < index.size() && n <= index.size() - first) {
      for (size_t i = 0; i < n; ++i) describe(snapshot, index.at(first + i), nullptr, out + i);
      return ST_OK;
    }
  }
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_at", file));
    if (n == 0) return {};
    ST_TRY(require("st_at", out));
    const store::Catalogue catalogue = file->model->lend();
    const size_t count = catalogue.size();
    if (first > count || n > count - first)
      return fail(Status::out_of_range, "tensors ", first, " to ", first, " + ", n, " were asked for, of ", count);
    // A shard that is missing is met on the way. So nothing is described before all are found.
    ST_TRY(const auto places, catalogue.range(first, n));
    for (size_t i = 0; i < n; ++i) describe(places[i], nullptr, out + i);
    return {};
  });
}

st_status st_names(st_file *file, char *dst, size_t *size) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_names", file, size));
    const store::Catalogue catalogue = file->model->catalogue();
    const store::Snapshot *one = catalogue.snapshot();
    if (const auto all = one ? one->header.index.names() : std::nullopt) {
      const size_t room = std::exchange(*size, all->size());
      if (dst && room < all->size()) return too_small_for_names(all->size(), room);
      if (dst) std::memcpy(dst, all->data(), all->size());
      return {};
    }
    std::vector<store::Place> places;
    if (!one) {
      ST_TRY(places, catalogue.all());
    }
    const auto name = [&](size_t i) { return one ? one->header.index.at(i).name : places[i].tensor().name; };
    const size_t count = catalogue.size();
    size_t need = 0;
    for (size_t i = 0; i < count; ++i) need += name(i).size() + 1;
    const size_t room = std::exchange(*size, need);
    if (!dst) return {};
    if (room < need) return too_small_for_names(need, room);
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(dst, name(i).data(), name(i).size() + 1);
      dst += name(i).size() + 1;
    }
    return {};
  });
}

st_status st_find(st_file *file, const char *name, size_t name_len, size_t *out) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_find", file, name, out));
    const store::Catalogue catalogue = file->model->catalogue();
    ST_TRY(auto place, catalogue.find(name_of(name, name_len)));
    *out = place.global;
    return {};
  });
}

st_status st_describe(st_file *file, const char *name, size_t name_len, st_tensor *out) {
  if (file && file->single && name && out) {
    const store::Snapshot &snapshot = shown(*file);
    if (const auto i = snapshot.header.index.find(name_of(name, name_len))) {
      describe(snapshot, snapshot.header.index.at(*i), nullptr, out);
      return ST_OK;
    }
  }
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_describe", file, name, out));
    ST_TRY(auto place, file->model->lend().find(name_of(name, name_len)));
    describe(place, nullptr, out);
    return {};
  });
}

st_status st_get_at(st_file *file, size_t i, st_tensor *out) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_get_at", file, out));
    ST_TRY(auto place, file->model->lend().at(i));
    return describe_with_view(place, out);
  });
}

size_t st_metadata_count(const st_file *file) {
  return file ? file->model->catalogue().metadata_size() : 0;
}

st_status st_metadata_at(st_file *file, size_t i, const char **key, size_t *key_len, const char **value,
                         size_t *value_len) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_metadata_at", file));
    const store::Catalogue catalogue = file->model->lend();
    if (i >= catalogue.metadata_size())
      return fail(Status::out_of_range, "metadata ", i, " was asked for, of ", catalogue.metadata_size());
    const auto [k, v] = catalogue.metadata_at(i);
    if (key) *key = k.data();
    if (key_len) *key_len = k.size();
    if (value) *value = v.data();
    if (value_len) *value_len = v.size();
    return {};
  });
}

st_status st_metadata_get(st_file *file, const char *key, size_t key_len, const char **value, size_t *value_len) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_metadata_get", file, key));
    const auto found = file->model->lend().metadata_find(name_of(key, key_len));
    if (!found) {
      const std::string index = file->model->index_path();
      const std::string of = file->single    ? " of " + file->single->shown_name()
                             : index.empty() ? std::string()
                                             : " of " + in_quotes(index);
      return fail(Status::not_found, "the metadata", of, " has no key ", in_quotes(name_of(key, key_len)),
                  "; list the keys to see what there is");
    }
    if (value) *value = found->data();
    if (value_len) *value_len = found->size();
    return {};
  });
}
