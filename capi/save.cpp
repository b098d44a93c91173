// Saving: a file at once, or tensor by tensor.
#include <algorithm>

#include "boundary.h"

using namespace st;
using namespace st::capi;

struct st_writer {
  std::unique_ptr<st::write::Writer> writer;  // nullptr once it has ended
};

namespace st::capi {

Result<write::SaveOptions> translate(const st_save_options *given) {
  ST_TRY(auto o, read_options(given));
  if (o.flags != 0 || o.reserved0 != 0)
    return fail(Status::unsupported, "st_save_options has a flag that libst ", st_version(), " does not know");
  if (o.layout > ST_LAYOUT_STOCK)
    return fail(Status::unsupported, "st_save_options.layout is ", o.layout, ", which libst ", st_version(),
                " does not know; it takes ST_LAYOUT_KEEP, _CANONICAL or _STOCK");
  write::SaveOptions options;
  ST_TRY(options.lock_timeout_ms, timeout_of(o.lock_timeout_ms));
  options.layout = static_cast<write::Layout>(o.layout);
  options.alignment = o.alignment;
  options.reserve = o.header_reserve;
  options.progress = progress_of(o.progress, o.progress_user);
  return options;
}

}  // namespace st::capi

namespace {

static_assert(static_cast<uint32_t>(write::Layout::keep) == ST_LAYOUT_KEEP &&
              static_cast<uint32_t>(write::Layout::canonical) == ST_LAYOUT_CANONICAL &&
              static_cast<uint32_t>(write::Layout::stock) == ST_LAYOUT_STOCK);

// It has a name.
Result<write::NewTensor> translate(const st_tensor &t, bool with_data) {
  const std::string_view name = name_of(t.name, t.name_len);
  if (auto fits = check_reserved(t); !fits) return Failure(std::move(fits.error()).about_tensor(name));
  auto refuse = [&](Status status, const auto &...parts) {
    return Failure(error(status, "tensor ", in_quotes(name), " ", parts...).about_tensor(name));
  };
  if (t.rank > 0 && !t.shape) return refuse(Status::invalid_argument, "has rank ", t.rank, " but no shape");
  if (!is_dtype(t.dtype)) return refuse(Status::dtype, "has dtype ", t.dtype, ", which is none");
  if (with_data && t.nbytes > 0 && !t.data)
    return refuse(Status::invalid_argument, "has ", t.nbytes, " bytes but no data");
  if (with_data && !has_addresses(t.nbytes))
    return refuse(Status::invalid_argument, "has ", t.nbytes, " bytes in memory, more than this machine has addresses");
  write::NewTensor tensor{std::string(name), static_cast<Dtype>(t.dtype), {}, t.nbytes, with_data ? t.data : nullptr};
  if (t.rank > 0) tensor.shape.assign(t.shape, t.shape + t.rank);
  return tensor;
}

Result<write::Writer *> going_on(const char *call, st_writer *writer) {
  ST_TRY(require(call, writer));
  if (!writer->writer)
    return fail(Status::txn_failed, call, " was given a writer that has ended; free it and open another");
  return writer->writer.get();
}

struct Input {
  std::vector<write::NewTensor> tensors;
  write::NewMetadata metadata;
};

Result<Input> translate(const char *call, const st_tensor *tensors, size_t n, const st_metadata *meta, size_t m,
                        bool with_data) {
  if ((n > 0 && !tensors) || (m > 0 && !meta))
    return fail(Status::invalid_argument, call, " was given NULL where that is not allowed; see st.h");
  ST_TRY(check_count<st_tensor>(call, "tensors", n));
  ST_TRY(check_count<st_metadata>(call, "pairs of metadata", m));
  Input input;
  input.tensors.reserve(std::min(n, size_t{1} << 16));
  for (size_t i = 0; i < n; ++i) {
    if (!tensors[i].name)
      return fail(Status::invalid_argument, "tensor ", i, " of those to be saved has no name; the first is tensor 0");
    ST_TRY(auto t, translate(tensors[i], with_data));
    input.tensors.push_back(std::move(t));
  }
  for (size_t i = 0; i < m; ++i) {
    if (!meta[i].key || (!meta[i].value && meta[i].value_len > 0))
      return fail(Status::invalid_argument, "metadata ", i, " has no key, or no value");
    input.metadata.emplace_back(name_of(meta[i].key, meta[i].key_len),
                                meta[i].value ? name_of(meta[i].value, meta[i].value_len) : "");
  }
  return input;
}

}  // namespace

st_status st_save(const char *path, const st_tensor *tensors, size_t n, const st_metadata *meta, size_t m,
                  const st_save_options *opts) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_save", path));
    ST_TRY(auto options, translate(opts));
    options.align = true;
    ST_TRY(auto input, translate("st_save", tensors, n, meta, m, true));
    return write::save(os::Env::posix(), path, std::move(input.tensors), std::move(input.metadata), std::move(options));
  });
}

st_status st_writer_open(const char *path, const st_tensor *declared, size_t n, const st_metadata *meta, size_t m,
                         const st_save_options *opts, st_writer **out) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_writer_open", path, out));
    ST_TRY(auto options, translate(opts));
    options.align = true;
    ST_TRY(auto input, translate("st_writer_open", declared, n, meta, m, false));
    ST_TRY(auto opened, write::Writer::open(os::Env::posix(), path, std::move(input.tensors), std::move(input.metadata),
                                            std::move(options)));
    auto writer = std::make_unique<st_writer>();
    writer->writer = std::move(opened);
    *out = writer.release();
    return {};
  });
}

st_status st_writer_write(st_writer *writer, const char *name, size_t name_len, const void *data, uint64_t nbytes) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_writer_write", name));
    if (nbytes > 0) ST_TRY(require("st_writer_write", data));
    if (!has_addresses(nbytes))
      return fail(Status::invalid_argument, "st_writer_write was given ", nbytes,
                  " bytes, more than this machine has addresses");
    ST_TRY(auto going, going_on("st_writer_write", writer));
    return going->add(name_of(name, name_len), data, nbytes);
  });
}

st_status st_writer_put(st_writer *writer, const st_tensor *tensor) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_writer_put", tensor));
    ST_TRY(auto going, going_on("st_writer_put", writer));
    if (!tensor->name) return fail(Status::invalid_argument, "the tensor that st_writer_put was given has no name");
    ST_TRY(auto t, translate(*tensor, true));
    return going->put(std::move(t));
  });
}

st_status st_writer_finish(st_writer *writer) {
  const st_status status = boundary([&]() -> Result<void> {
    ST_TRY(auto going, going_on("st_writer_finish", writer));
    return going->finish();
  });
  const bool goes_on = status == ST_E_BUSY || status == ST_E_INCOMPLETE ||
                       (status == ST_E_IO && writer->writer && !writer->writer->has_ended());
  if (writer && !goes_on) writer->writer.reset();
  return status;
}

void st_writer_free(st_writer *writer) {
  delete writer;
}
