// Recovery and verification.
#include "boundary.h"
#include "engine/recover_all.h"
#include "engine/verify.h"

using namespace st;
using namespace st::capi;

namespace {

bool told(st_report_fn report, void *user, uint32_t level, Status status, uint64_t offset, const std::string &message) {
  if (!report) return true;
  const st_report r{
      static_cast<uint32_t>(sizeof(st_report)), level, static_cast<st_status>(status), 0, offset, message.c_str(), 0};
  return Callback::goes_on([&] { return report(user, &r); });
}

}  // namespace

st_status st_verify(const char *path, const st_verify_options *opts) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_verify", path));
    ST_TRY(auto o, read_options(opts));
    if (o.reserved0 != 0)
      return fail(Status::unsupported, "st_verify was given an option that libst ", st_version(), " does not know");
    const Control control(progress_of(o.progress, o.progress_user), nullptr);
    ST_TRY(auto deltas, paths_of("st_verify_options.deltas", o.deltas, o.delta_count));
    const store::Report report = [&](const store::Finding &f) {
      return told(o.report, o.report_user, static_cast<uint32_t>(f.severity), f.status, f.offset, f.message);
    };
    if (deltas.empty()) return store::verify(os::Env::posix(), path, control, report);
    return store::verify_layers(os::Env::posix(), path, deltas, control, report);
  });
}

st_status st_recover(const char *path, const st_recover_options *opts) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_recover", path));
    ST_TRY(auto o, read_options(opts));
    ST_TRY(const auto timeout, timeout_of(o.lock_timeout_ms));
    const Control control(progress_of(o.progress, o.progress_user), nullptr);
    const write::Findings findings = [&](const write::Finding &f) {
      return told(o.report, o.report_user, static_cast<uint32_t>(f.level), f.status, no_offset, f.message);
    };
    ST_TRY(auto done, store::recover_all(os::Env::posix(), path, {timeout, &control, nullptr}, findings));
    if (done.aside > 0) return fail(Status::journal, done.why_aside);
    return {};
  });
}
