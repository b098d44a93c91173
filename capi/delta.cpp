// Deltas: made, applied, folded, and what one says of itself.
#include "boundary.h"
#include "engine/deltas.h"

using namespace st;
using namespace st::capi;

st_status st_delta_create(const char *from, const char *to, const char *delta, const st_delta_create_options *opts) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_delta_create", from, to, delta));
    auto o = read_options(opts);
    if (!o) return Failure(std::move(o.error()));
    if (o->reserved0 != 0)
      return fail(Status::unsupported, "st_delta_create was given an option that libst ", st_version(),
                  " does not know");
    const auto timeout = timeout_of(o->lock_timeout_ms);
    if (!timeout) return Failure(timeout.error());
    return store::diff(os::Env::posix(), from, to, delta,
                       {o->alignment, *timeout, progress_of(o->progress, o->progress_user)});
  });
}

st_status st_delta_apply(const char *base, const char *delta, const st_delta_apply_options *opts, st_plan *done) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_delta_apply", base, delta));
    auto o = read_options(opts);
    if (!o) return Failure(std::move(o.error()));
    if (o->flags & ~(ST_TXN_PUBLISH | ST_TXN_BREAK_LINKS) || o->reserved0 != 0)
      return fail(Status::unsupported, "st_delta_apply was given a flag that libst ", st_version(), " does not know");
    if (done) ST_CAPI_TRY(check_result(done));
    const auto timeout = timeout_of(o->lock_timeout_ms);
    if (!timeout) return Failure(timeout.error());
    store::DeltaPatchOptions options;
    if (o->reverse) options.reverse = o->reverse;
    options.publish = o->flags & ST_TXN_PUBLISH;
    options.break_links = o->flags & ST_TXN_BREAK_LINKS;
    options.lock_timeout_ms = *timeout;
    options.progress = progress_of(o->progress, o->progress_user);
    auto patched = store::patch(os::Env::posix(), base, delta, std::move(options));
    if (!patched) return Failure(std::move(patched.error()));
    return done ? write_result(done, translate(patched->plan)) : Result<void>();
  });
}

st_status st_delta_merge(const char *base, const char *const *deltas, size_t n, const char *to,
                         const st_save_options *opts) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_delta_merge", base, to));
    auto options = translate(opts);
    if (!options) return Failure(std::move(options.error()));
    auto paths = paths_of("the list of deltas", deltas, n);
    if (!paths) return Failure(std::move(paths.error()));
    return store::merge(os::Env::posix(), base, *paths, to, *options);
  });
}

st_status st_delta_describe(const char *delta, st_delta_info *out) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_delta_describe", delta, out));
    store::OpenOptions open;
    open.map = read::MapMode::none;
    auto file = store::open_delta(os::Env::posix(), delta, std::move(open));
    if (!file) return Failure(std::move(file.error()));
    const DeltaNotes &notes = file->notes;
    st_delta_info info{};
    for (const DeltaTensor &t : notes.tensors) ++(t.old ? info.changed : info.added);
    info.deleted = notes.deleted.size();
    info.metadata_set = notes.set.size();
    info.metadata_removed = notes.removed.size();
    info.data_bytes = file->index().data_bytes();
    copy_text(info.base, spell_hash(notes.base));
    copy_text(info.result, spell_hash(notes.result));
    return write_result(out, info);
  });
}
