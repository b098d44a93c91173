// Deltas: made, applied, folded, and what one says of itself.
#include "boundary.h"
#include "store/delta_file.h"
#include "store/delta_patch.h"
#include "store/diff.h"
#include "store/merge.h"

using namespace st;
using namespace st::capi;

void st_diff_options_init(st_diff_options *out, size_t size) {
  init_struct(out, size, st_diff_options ST_DIFF_OPTIONS_INIT);
}

void st_patch_options_init(st_patch_options *out, size_t size) {
  init_struct(out, size, st_patch_options ST_PATCH_OPTIONS_INIT);
}

void st_delta_info_init(st_delta_info *out, size_t size) {
  init_struct(out, size, st_delta_info ST_DELTA_INFO_INIT);
}

st_status st_diff(const char *from, const char *to, const char *delta, const st_diff_options *opts) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_diff", from, to, delta));
    auto o = read_options(opts, st_diff_options ST_DIFF_OPTIONS_INIT);
    if (!o) return Failure(std::move(o.error()));
    if (o->reserved0 != 0)
      return fail(Status::unsupported, "st_diff was given an option that libst ", st_version(), " does not know");
    return store::diff(os::Env::posix(), from, to, delta,
                       {o->alignment, o->lock_timeout_ms, progress_of(o->progress, o->progress_user)});
  });
}

st_status st_patch(const char *base, const char *delta, const st_patch_options *opts) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_patch", base, delta));
    auto o = read_options(opts, st_patch_options ST_PATCH_OPTIONS_INIT);
    if (!o) return Failure(std::move(o.error()));
    if (o->flags & ~(ST_COMMIT_PUBLISH | ST_TXN_BREAK_LINKS) || o->reserved0 != 0)
      return fail(Status::unsupported, "st_patch was given a flag that libst ", st_version(), " does not know");
    if (o->plan && o->plan->struct_size < sizeof(uint32_t)) return write_result(o->plan, st_plan ST_PLAN_INIT);
    store::DeltaPatchOptions options;
    if (o->reverse) options.reverse = o->reverse;
    options.publish = o->flags & ST_COMMIT_PUBLISH;
    options.break_links = o->flags & ST_TXN_BREAK_LINKS;
    options.lock_timeout_ms = o->lock_timeout_ms;
    options.progress = progress_of(o->progress, o->progress_user);
    auto done = store::patch(os::Env::posix(), base, delta, std::move(options));
    if (!done) return Failure(std::move(done.error()));
    return o->plan ? write_result(o->plan, translate(done->plan)) : Result<void>();
  });
}

st_status st_merge(const char *base, const char *const *deltas, size_t n, const char *to, const st_save_options *opts) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_merge", base, to));
    auto options = translate(opts);
    if (!options) return Failure(std::move(options.error()));
    auto paths = paths_of("the list of deltas", deltas, n);
    if (!paths) return Failure(std::move(paths.error()));
    return store::merge(os::Env::posix(), base, *paths, to, *options);
  });
}

st_status st_get_delta_info(const char *delta, st_delta_info *out) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_get_delta_info", delta, out));
    store::OpenOptions open;
    open.map = read::MapMode::none;
    auto file = store::DeltaFile::open(os::Env::posix(), delta, std::move(open));
    if (!file) return Failure(std::move(file.error()));
    const DeltaNotes &notes = file->notes;
    st_delta_info info = ST_DELTA_INFO_INIT;
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
