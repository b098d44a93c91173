// Verification of a base with deltas on it.
#include "delta/delta_chain.h"
#include "delta/stepped.h"
#include "engine/deltas.h"
#include "engine/open.h"
#include "engine/verify.h"

namespace st::store {
namespace {

Report naming(const std::string &path, const Report &report) {
  if (!report) return {};
  return [&path, &report](const Finding &f) {
    return report({f.severity, f.status, f.offset, text(in_quotes(path), ": ", f.message)});
  };
}

// What is read once more here was found sound, file by file.
Result<void> check_chain(os::Env &env, const std::string &base, const std::vector<std::string> &paths,
                         const Control &control) {
  OpenOptions open;
  open.map = read::MapMode::none;
  ST_TRY(auto below, open_path(env, base, open));
  const auto whole = ModelView::of(*below);
  if (!whole) return Failure(Error(whole.error()));
  ST_TRY(const auto deltas, open_deltas(env, paths, open));
  uint64_t done = 0, total = 0;
  for (const DeltaFile &delta : deltas) total += delta.index().data_bytes();
  ST_TRY(auto chained, chain(*whole, deltas));
  const std::vector<OldTensor> to_hash = chained.old_without_steps();
  for (const OldTensor &old : to_hash) total += whole->at(old.index).tensor().nbytes;
  for (const ListedTensor &t : chained.listing.tensors) total += t.steps.empty() ? 0 : t.nbytes;
  const auto tell = [&](uint64_t more) { return control.check(done += more, total); };
  for (const DeltaFile &delta : deltas) ST_TRY(delta.check_bytes(tell));
  ST_TRY(check_old(*whole, to_hash, [&](auto &, auto piece) { return tell(piece.size()); }));
  StepRoom room;
  const auto take = [&](const SteppedBlock &block) { return tell(block.bytes.size()); };
  for (const ListedTensor &t : chained.listing.tensors)
    if (!t.steps.empty()) ST_TRY(step_to_the_end(stepped_tensor(*whole, deltas, t), room, take));
  return {};
}

}  // namespace

Result<void> verify_layers(os::Env &env, const std::string &base, const std::vector<std::string> &deltas,
                           const Control &control, const Report &report) {
  ST_TRY(verify(env, base, control, naming(base, report)));
  for (const std::string &path : deltas) ST_TRY(verify(env, path, control, naming(path, report)));
  auto fits = check_chain(env, base, deltas, control);
  const bool stopped =
      !fits && (fits.error().status == Status::cancelled || fits.error().status == Status::interrupted);
  if (stopped || !report) return fits;
  const Finding finding =
      fits ? Finding{Severity::info, Status::ok, no_offset, "the deltas fit each other and the base"}
           : Finding{Severity::error, fits.error().status, fits.error().offset, fits.error().message};
  if (!report(finding)) return fail(Status::cancelled, "the report callback stopped the verification");
  return fits;
}

}  // namespace st::store
