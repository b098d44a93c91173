#include "engine/deltas.h"

#include <algorithm>

#include "delta/merge.h"
#include "engine/open.h"
#include "format/shard_index.h"
#include "model/held_still.h"

namespace st::store {
namespace {

// With its patience, and its progress.
template <class Options>
OpenOptions open_for(const Options &call) {
  OpenOptions open;
  open.lock_timeout_ms = call.lock_timeout_ms;
  open.progress = call.progress;
  return open;
}

template <class Options>
OpenOptions for_reading(const Options &call) {
  OpenOptions reading = open_for(call);
  reading.map = read::MapMode::none;
  return reading;
}

constexpr std::string_view delta_is_one_file = "a delta is one file; give the path of a .safetensors file";

// An open of such a name looks for shards.
Result<void> must_not_be_an_index(const std::string &path, std::string_view what_it_is) {
  if (!is_index_name(path)) return {};
  return fail(Status::invalid_argument, in_quotes(path), " is the name of an index, but ", what_it_is);
}

// Until `still` lets go, the delta is what its hashes name once they were checked: its bytes are read once more after
// that. Its lock comes before those of the base.
Result<DeltaFile> open_held(os::Env &env, const std::string &path, const OpenOptions &open, const Control &control,
                            HeldStill &still) {
  std::optional<DeltaFile> delta;
  ST_TRY(still.repeat(path, [&]() -> Result<bool> {
    ST_TRY(auto opened, open_delta(env, path, open));
    delta.emplace(std::move(opened));
    return still.hold(ModelView(*delta->file), {open.lock_timeout_ms, &control, nullptr});
  }));
  return std::move(*delta);
}

}  // namespace

Result<DeltaFile> open_delta(os::Env &env, const std::string &path, OpenOptions options) {
  ST_TRY(auto file, open_file(env, path, std::move(options)));
  return DeltaFile::of(std::move(file));
}

Result<std::vector<DeltaFile>> open_deltas(os::Env &env, const std::vector<std::string> &paths, OpenOptions options) {
  options.descriptors = std::make_shared<os::Descriptors>(env);
  os::Folders folders;
  std::vector<DeltaFile> deltas;
  for (const std::string &path : paths) {
    ST_TRY(auto file, open_file(env, path, options, &folders));
    ST_TRY(auto delta, DeltaFile::of(std::move(file)));
    deltas.push_back(std::move(delta));
  }
  return deltas;
}

Result<void> diff(os::Env &env, const std::string &from, const std::string &to, const std::string &delta,
                  const DiffOptions &options) {
  ST_TRY(must_not_be_an_index(delta, delta_is_one_file));
  const OpenOptions reading = for_reading(options);
  const Control control(options.progress, nullptr);
  std::unique_ptr<Model> before, after;
  HeldStill still;
  ST_TRY(still.repeat(to, [&]() -> Result<bool> {
    ST_TRY(before, open_path(env, from, reading));
    ST_TRY(after, open_path(env, to, reading));
    ST_TRY(auto a, ModelView::of(*before));
    ST_TRY(auto b, ModelView::of(*after));
    const ModelView *const both[] = {&a, &b};
    return still.hold(both, {options.lock_timeout_ms, &control, nullptr});
  }));
  return diff(env, *before, *after, delta, options, [&] { still.let_go(); });
}

Result<DeltaPatched> patch(os::Env &env, const std::string &base, const std::string &delta, DeltaPatchOptions options) {
  ST_TRY(must_not_be_an_index(options.reverse, delta_is_one_file));
  OpenOptions open = open_for(options);
  const Control control(options.progress, nullptr);
  HeldStill still;
  ST_TRY(auto changes, open_held(env, delta, open, control, still));
  open.writable = true;
  open.map = read::MapMode::none;
  ST_TRY(auto opened, open_path(env, base, open));
  return patch(env, *opened, std::move(changes), std::move(options));
}

Result<DeltaPatched> patch(os::Env &env, Model &base, const std::string &delta, DeltaPatchOptions options) {
  ST_TRY(must_not_be_an_index(options.reverse, delta_is_one_file));
  ST_TRY(base.begin({}));  // what may not be changed waits for nothing
  const Control control(options.progress, &base.account().interrupts);
  HeldStill still;
  ST_TRY(auto changes, open_held(env, delta, open_for(options), control, still));
  return patch(env, base, std::move(changes), std::move(options));
}

Result<void> merge(os::Env &env, const std::string &base, const std::vector<std::string> &deltas, const std::string &to,
                   const write::SaveOptions &options) {
  ST_TRY(must_not_be_an_index(
      to, "deltas are merged into one file; give the path of a .safetensors file, and cut that into shards"));
  const OpenOptions reading = for_reading(options);
  const Control control(options.progress, nullptr);
  const os::LockWait wait{options.lock_timeout_ms, &control, nullptr};
  std::unique_ptr<Model> below;
  std::vector<DeltaFile> layers;
  HeldStill still;
  ST_TRY(still.repeat(base, [&]() -> Result<bool> {
    layers.clear();
    ST_TRY(layers, open_deltas(env, deltas, reading));
    std::vector<ModelView> views;
    views.reserve(layers.size());
    for (const DeltaFile &layer : layers) views.emplace_back(*layer.file);
    std::vector<const ModelView *> all(views.size());
    std::transform(views.begin(), views.end(), all.begin(), [](const ModelView &view) { return &view; });
    ST_TRY(auto deltas_held, still.hold(all, wait));
    if (!deltas_held) return false;
    ST_TRY(below, open_path(env, base, reading));
    ST_TRY(auto whole, ModelView::of(*below));
    return still.hold(whole, wait);
  }));
  return merge(env, *below, layers, to, options, [&] { still.let_go(); });
}

}  // namespace st::store
