#include "engine/reshape.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/interrupt.h"
#include "base/later_log.h"
#include "engine/open.h"
#include "engine/shard_folder.h"
#include "format/shard_index.h"
#include "model/copy_out.h"
#include "model/held_still.h"
#include "model/mode_of_copy.h"
#include "model/model_view.h"
#include "newfile/room.h"
#include "newfile/temporary_file.h"
#include "os/filesystem.h"
#include "os/path.h"
#include "os/random.h"

namespace st::store {
namespace {

// The source, opened and held as it is until all of it is read, and how far the copying has come.
class Source {
 public:
  static Result<Source> open(os::Env &env, const std::string &path, const write::SaveOptions &options);

  const ModelView &whole() const { return *whole_; }
  const Model &model() const { return *model_; }
  uint64_t bytes() const { return total_; }
  mode_t mode() const { return mode_; }  // of new files
  // The pairs of the first file's header.
  const write::NewMetadata &header_metadata() const { return header_metadata_; }
  // Those tensors, as a file of its own. After the last one's bytes, syncs and names need the source no more.
  Result<void> write_file(write::Destination to, std::span<const Place> places, const write::NewMetadata &metadata,
                          write::SaveOptions options, bool is_last);

 private:
  std::unique_ptr<Model> model_;
  std::optional<ModelView> whole_;
  HeldStill still_;
  write::NewMetadata header_metadata_;
  uint64_t total_ = 0, done_ = 0;
  mode_t mode_ = write::mode_of_new;
  Progress progress_;
};

Result<Source> Source::open(os::Env &env, const std::string &path, const write::SaveOptions &options) {
  OpenOptions reading;
  reading.map = read::MapMode::none;
  reading.lock_timeout_ms = options.lock_timeout_ms;
  reading.progress = options.progress;
  Source source;
  source.progress_ = options.progress;
  const Control control(options.progress, nullptr);
  ST_TRY(source.still_.repeat(path, [&]() -> Result<bool> {
    source.whole_.reset();
    ST_TRY(source.model_, open_path(env, path, reading));
    ST_TRY(auto whole, ModelView::of(*source.model_));
    source.whole_.emplace(std::move(whole));
    return source.still_.hold(*source.whole_, {options.lock_timeout_ms, &control, nullptr});
  }));
  source.total_ = source.whole_->data_bytes();
  ST_TRY(source.mode_, mode_of_copy(*source.whole_));
  if (!source.whole_->files().empty()) {
    const Index &first = source.whole_->files().front().snapshot->header.index;
    for (size_t i = 0; i < first.metadata_size(); ++i) source.header_metadata_.emplace_back(first.metadata_at(i));
  }
  return source;
}

Result<void> Source::write_file(write::Destination to, std::span<const Place> places,
                                const write::NewMetadata &metadata, write::SaveOptions options, bool is_last) {
  const Control control(progress_, nullptr);
  const InterruptScope waits([&] { return control.check(done_, total_); });
  const auto tell = [&](uint64_t more) { return control.check(done_ += more, total_); };
  const auto all_read = [&] {
    if (is_last) still_.let_go();
  };
  options.mode = mode_;
  return copy_out(std::move(to), places, metadata, std::move(options), tell, {}, all_read);
}

std::string shard_name(size_t number, size_t count) {
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", number, count);
  return name;
}

// In order; a new one where the next tensor would not fit.
std::vector<std::span<const Place>> cut_up(std::span<const Place> places, uint64_t most) {
  std::vector<std::span<const Place>> shards;
  size_t begin = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    const uint64_t n = places[i].tensor().nbytes;
    if (i > begin && n > most - std::min(bytes, most)) {
      shards.push_back(places.subspan(begin, i - begin));
      begin = i;
      bytes = 0;
    }
    bytes += n;
  }
  shards.push_back(places.subspan(begin));
  return shards;
}

// Nothing is kept of shards of which the last does not fit.
Result<void> check_room(std::span<const std::span<const Place>> shards, const write::NewMetadata &metadata,
                        const write::SaveOptions &options, const ShardFolder &folder) {
  uint64_t all = 0;
  for (const auto &places : shards) {
    ST_TRY(const uint64_t room, room_of_copy(places, metadata, options, folder.probe()));
    all += room;
  }
  const std::string type = os::probe_filesystem(folder.probe()).type;
  return write::check_room(folder.probe(), write::room_with_metadata(type, all), folder.path());
}

Result<void> reshard_quietly(os::Env &env, const std::string &from, const std::string &to_folder,
                             uint64_t max_shard_size, const write::SaveOptions &options) {
  if (max_shard_size == 0) return fail(Status::invalid_argument, "shards of at most 0 bytes could hold nothing");
  ST_TRY(auto source, Source::open(env, from, options));
  ST_TRY(auto folder, ShardFolder::make(env, to_folder));
  const auto shards = cut_up(source.whole().places(), max_shard_size);
  ST_TRY(check_room(shards, source.header_metadata(), options, folder));
  std::vector<std::string> names;
  for (size_t i = 0; i < shards.size(); ++i) names.push_back(shard_name(i + 1, shards.size()));
  ShardIndex index = ShardIndex::of(names, os::hash_seed(env));
  for (size_t i = 0; i < shards.size(); ++i) {
    ST_TRY(auto to, write::destination_at(folder.place_of(names[i])));
    folder.begin(names[i]);
    ST_TRY(source.write_file(std::move(to), shards[i], source.header_metadata(), options, i + 1 == shards.size()));
    for (const Place &p : shards[i]) index.assign(p.tensor().name, names[i]);
  }
  if (!source.model().file()) {
    const Catalogue catalogue = source.model().catalogue();
    for (size_t i = 0; i < catalogue.metadata_size(); ++i) {
      const auto [key, value] = catalogue.metadata_at(i);
      index.set_metadata(key, value);
      if (const auto total = index.total(key); total && is_total(key)) index.set_total(key, *total);  // a number
    }
  }
  index.set_total(total_size_key, source.bytes());

  ST_TRY(const std::string spelled, index.spell_readable());
  return folder.finish(spelled, source.mode(), options);
}

}  // namespace

Result<void> reshard(os::Env &env, const std::string &from, const std::string &to_folder, uint64_t max_shard_size,
                     const write::SaveOptions &options) {
  const os::MadeIn made_in(env);
  LaterLog log;  // it may use the source, which is held still, or the folder
  const TellAtEnd at_end([&] {
    if (made_in.this_process()) log.tell(options.log);
  });
  write::SaveOptions quiet = options;
  quiet.log = log.log();
  return reshard_quietly(env, from, to_folder, max_shard_size, quiet);
}

Result<void> join(os::Env &env, const std::string &from, const std::string &to, const write::SaveOptions &options) {
  ST_TRY(auto source, Source::open(env, from, options));
  ST_TRY(source.whole().must_not_be(env, to));  // a change that waits for the copy would be lost
  const auto &metadata = source.whole().metadata();
  ST_TRY(auto target, write::find_destination(env, to));
  return source.write_file(std::move(target), source.whole().places(), {metadata.begin(), metadata.end()}, options,
                           true);
}

}  // namespace st::store
