// Deltas: made, applied, folded, and what one says of itself.
#include "boundary.h"
#include "engine/deltas.h"

using namespace st;
using namespace st::capi;

st_status st_delta_create(const char *from, const char *to, const char *delta, const st_delta_create_options *opts) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_delta_create", from, to, delta));
    ST_TRY(auto o, read_options(opts));
    if (o.reserved0 != 0)
      return fail(Status::unsupported, "st_delta_create was given an option that libst ", st_version(),
                  " does not know");
    ST_TRY(const auto timeout, timeout_of(o.lock_timeout_ms));
    return store::diff(os::Env::posix(), from, to, delta,
                       {o.alignment, timeout, progress_of(o.progress, o.progress_user)});
  });
}

namespace {

Result<store::DeltaPatchOptions> patch_options(const char *call, const st_delta_apply_options *opts, uint32_t known,
                                               int32_t default_timeout_ms) {
  ST_TRY(auto o, st::capi::read_options(opts));
  if (o.flags & ~known & ST_TXN_JOURNAL_ONLY)
    return fail(
        Status::unsupported, call,
        " does not take ST_TXN_JOURNAL_ONLY: it opens and closes the file; st_apply_delta takes it, of an open file");
  if (o.flags & ~known || o.reserved0 != 0)
    return fail(Status::unsupported, call, " was given a flag that libst ", st_version(), " does not know");
  store::DeltaPatchOptions options;
  ST_TRY(options.lock_timeout_ms, timeout_of(o.lock_timeout_ms, default_timeout_ms));
  if (o.reverse && !*o.reverse)
    return fail(Status::no_file, call, " was given an empty path for the reverse delta; NULL is for none");
  if (o.reverse) options.reverse = o.reverse;
  options.publish = o.flags & ST_TXN_PUBLISH;
  options.break_links = o.flags & ST_TXN_BREAK_LINKS;
  options.journal_only = o.flags & ST_TXN_JOURNAL_ONLY;
  options.progress = progress_of(o.progress, o.progress_user);
  return options;
}

}  // namespace

st_status st_delta_apply(const char *base, const char *delta, const st_delta_apply_options *opts, st_plan *done) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_delta_apply", base, delta));
    ST_TRY(auto options,
           patch_options("st_delta_apply", opts, ST_TXN_PUBLISH | ST_TXN_BREAK_LINKS, default_lock_timeout_ms));
    if (done) ST_TRY(check_result(done));
    ST_TRY(auto patched, store::patch(os::Env::posix(), base, delta, std::move(options)));
    return done ? write_result(done, translate(patched.plan)) : Result<void>();
  });
}

st_status st_apply_delta(st_file *file, const char *delta, const st_delta_apply_options *opts, st_plan *done) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_apply_delta", file, delta));
    const store::OpenOptions &of_file = file->model->options();
    constexpr uint32_t known = ST_TXN_PUBLISH | ST_TXN_BREAK_LINKS | ST_TXN_JOURNAL_ONLY;
    ST_TRY(auto options, patch_options("st_apply_delta", opts, known, of_file.lock_timeout_ms));
    if (done) ST_TRY(check_result(done));
    if (!options.progress) options.progress = of_file.progress;
    ST_TRY(auto patched, store::patch(os::Env::posix(), *file->model, delta, std::move(options)));
    return done ? write_result(done, translate(patched.plan)) : Result<void>();
  });
}

st_status st_delta_merge(const char *base, const char *const *deltas, size_t n, const char *to,
                         const st_save_options *opts) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_delta_merge", base, to));
    ST_TRY(auto options, translate(opts));
    ST_TRY(auto paths, paths_of("the list of deltas", deltas, n));
    return store::merge(os::Env::posix(), base, paths, to, options);
  });
}

st_status st_delta_describe(const char *delta, st_delta_info *out) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_delta_describe", delta, out));
    store::OpenOptions open;
    open.map = read::MapMode::none;
    ST_TRY(auto file, store::open_delta(os::Env::posix(), delta, std::move(open)));
    const DeltaNotes &notes = file.notes;
    st_delta_info info{};
    for (const DeltaTensor &t : notes.tensors) ++(t.old ? info.changed : info.added);
    info.deleted = notes.deleted.size();
    info.metadata_set = notes.set.size();
    info.metadata_removed = notes.removed.size();
    info.data_bytes = file.index().data_bytes();
    copy_text(info.base, spell_hash(notes.base));
    copy_text(info.result, spell_hash(notes.result));
    info.file_size = file.snapshot->file_size();
    return write_result(out, info);
  });
}
