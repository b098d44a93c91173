// Verification of a base with deltas on it.
#include <optional>

#include "base/interrupt.h"
#include "base/joined_progress.h"
#include "delta/delta_chain.h"
#include "delta/stepped.h"
#include "engine/deltas.h"
#include "engine/locate.h"
#include "engine/open.h"
#include "engine/verify.h"
#include "model/held_still.h"
#include "os/remote_source.h"
#include "shards/shards.h"

namespace st::store {
namespace {

Report naming(const std::string &path, const Report &report) {
  if (!report) return {};
  return [&path, &report](const Finding &f) {
    return report({f.severity, f.status, f.offset, text(in_quotes(path), ": ", f.message)});
  };
}

Result<uint64_t> bytes_of_url(os::Env &env, const std::string &url, const Control &control) {
  OpenOptions open;
  open.map = read::MapMode::none;
  open.progress = control.progress();
  ST_TRY(const auto model, open_path(env, url, open));
  ST_TRY(const auto whole, ModelView::of(*model));
  return whole.data_bytes();
}

Result<uint64_t> bytes_of_index(os::Env &env, const std::string &path, const Control &control) {
  const auto [in, base] = os::split_path(path);
  ST_TRY(auto folder, os::Directory::find(env, in));
  ST_TRY(const auto at, os::Location::find_in(folder, base));
  ST_TRY(const auto read, Shards::read_index(at, {default_lock_timeout_ms, &control, nullptr}));
  uint64_t bytes = 0;
  for (const std::string &shard : read.index().shards()) bytes += size_at(os::Location::find_in(folder, shard));
  return bytes;
}

// For the progress, so nothing is opened that would recover.
Result<uint64_t> count_bytes(os::Env &env, const std::string &path, const Control &control) {
  if (os::is_url(path)) return bytes_of_url(env, path, control);
  ST_TRY(const auto located, locate(env, path));
  if (located.is_index) return bytes_of_index(env, located.path, control);
  return size_at(os::Location::find(env, located.path));
}

// None if nobody is told of them; or of what cannot be looked at: it is verified next.
Result<uint64_t> bytes_at(os::Env &env, const std::string &path, const Control &control) {
  if (!control.progress()) return 0;
  auto bytes = count_bytes(env, path, control);
  return bytes || was_stopped(bytes.error()) ? bytes : 0;
}

// What is read once more here was found sound, file by file. How much that is, is known when all are open: but it
// counts as so many `bytes` of the whole call.
Result<void> check_chain(os::Env &env, const std::string &base, const std::vector<std::string> &paths, uint64_t bytes,
                         const Control &control) {
  OpenOptions open;
  open.map = read::MapMode::none;
  open.progress = control.progress();
  const InterruptScope waits([&] { return control.check(0, 0); });
  std::unique_ptr<Model> below;
  std::optional<ModelView> whole;
  ST_TRY(HeldStill().repeat(base, [&]() -> Result<bool> {  // shards may be committed meanwhile
    whole.reset();
    ST_TRY(below, open_path(env, base, open));
    ST_TRY(auto now, ModelView::of(*below));
    whole.emplace(std::move(now));
    return true;
  }));
  ST_TRY(const auto deltas, open_deltas(env, paths, open));
  uint64_t done = 0, total = 0;
  for (const DeltaFile &delta : deltas) total += delta.index().data_bytes();
  ST_TRY(auto chained, chain(*whole, deltas));
  const std::vector<OldTensor> to_hash = chained.old_without_steps();
  for (const OldTensor &old : to_hash) total += whole->at(old.index).tensor().nbytes;
  for (const ListedTensor &t : chained.listing.tensors) total += t.steps.empty() ? 0 : t.nbytes;
  const auto tell = [&](uint64_t more) {
    done += more;
    if (done >= total) return control.check(bytes, bytes);
    const double share = static_cast<double>(done) / static_cast<double>(total);
    return control.check(static_cast<uint64_t>(share * static_cast<double>(bytes)), bytes);
  };
  for (const DeltaFile &delta : deltas) ST_TRY(delta.check_bytes(tell));
  ST_TRY(check_old(*whole, to_hash, [&](auto &, auto piece) { return tell(piece.size()); }));
  StepRoom room;
  const auto take = [&](const SteppedBlock &block) { return tell(block.bytes.size()); };
  for (const ListedTensor &t : chained.listing.tensors) {
    if (t.steps.empty()) continue;
    const SteppedTensor stepped = stepped_tensor(*whole, deltas, t);
    TensorHasher old;
    ST_TRY(step_to_the_end(stepped, room, take, &old));
    // The steps lead to the right bytes, but an apply asks for these hashes first.
    const StepsAt &first = stepped.steps.front();
    const DeltaTensor &noted = first.delta->notes.tensors[first.index];
    if (old.digest() != noted.old) return Failure(wrong_base(t.name, stepped.path, old.digest().all, noted.bytes));
  }
  return {};
}

}  // namespace

Result<void> verify_layers(os::Env &env, const std::string &base, const std::vector<std::string> &deltas,
                           const Control &control, const Report &report) {
  std::vector<std::string> paths{base};
  paths.insert(paths.end(), deltas.begin(), deltas.end());
  std::vector<uint64_t> sizes;
  uint64_t bytes = 0;
  for (const std::string &path : paths) {
    ST_TRY(const auto size, bytes_at(env, path, control));
    bytes += sizes.emplace_back(size);
  }
  JoinedProgress joined(control.progress(), 2 * bytes);
  const Control part = control.with(joined.of_part());
  for (size_t i = 0; i < paths.size(); ++i) {
    joined.begin_part(sizes[i]);
    ST_TRY(verify(env, paths[i], part, naming(paths[i], report)));
  }
  joined.begin_part(bytes);
  auto fits = check_chain(env, base, deltas, bytes, part);
  if (fits) joined.end();
  if (!report || (!fits && was_stopped(fits.error()))) return fits;
  const Finding finding =
      fits ? Finding{Severity::info, Status::ok, no_offset, "the deltas fit each other and the base"}
           : Finding{Severity::error, fits.error().status, fits.error().offset, fits.error().message};
  if (!report(finding)) return fail(Status::cancelled, "the report callback stopped the verification");
  return fits;
}

}  // namespace st::store
