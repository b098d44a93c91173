#include "engine/reshape.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "base/interrupt.h"
#include "engine/open.h"
#include "format/shard_index.h"
#include "model/copy_out.h"
#include "model/held_still.h"
#include "model/model_view.h"
#include "newfile/temporary_file.h"
#include "os/path.h"

namespace st::store {
namespace {

constexpr const char *index_name = "model.safetensors.index.json";

// The source, opened and held as it is until all of it is read, and how far the copying has come.
class Source {
 public:
  static Result<Source> open(os::Env &env, const std::string &path, const write::SaveOptions &options);

  const ModelView &whole() const { return *whole_; }
  const Model &model() const { return *model_; }
  uint64_t bytes() const { return total_; }
  // The pairs of the first file's header.
  const write::NewMetadata &header_metadata() const { return header_metadata_; }
  // Those tensors, as a file of its own.
  Result<void> write_file(write::Destination to, std::span<const Place> places, const write::NewMetadata &metadata,
                          const write::SaveOptions &options);

 private:
  Result<void> tell(const Control &control, uint64_t more);

  std::unique_ptr<Model> model_;
  std::optional<ModelView> whole_;
  HeldStill still_;
  write::NewMetadata header_metadata_;
  uint64_t total_ = 0, done_ = 0;
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
  ST_TRY(HeldStill::repeat(path, [&]() -> Result<bool> {
    source.still_.let_go();  // a recovery wants the file for itself
    source.whole_.reset();
    ST_TRY(source.model_, open_path(env, path, reading));
    ST_TRY(auto whole, ModelView::of(*source.model_));
    source.whole_.emplace(std::move(whole));
    return source.still_.hold(env, *source.whole_, {options.lock_timeout_ms, &control, nullptr});
  }));
  source.total_ = source.whole_->data_bytes();
  if (!source.whole_->files().empty()) {
    const Index &first = source.whole_->files().front().snapshot->header.index;
    for (size_t i = 0; i < first.metadata_size(); ++i) source.header_metadata_.emplace_back(first.metadata_at(i));
  }
  return source;
}

// What comes after the last byte needs the source no more: it may be the file that is replaced.
Result<void> Source::tell(const Control &control, uint64_t more) {
  done_ += more;
  if (done_ == total_) still_.let_go();
  return control.check(done_, total_);
}

Result<void> Source::write_file(write::Destination to, std::span<const Place> places,
                                const write::NewMetadata &metadata, const write::SaveOptions &options) {
  const Control control(progress_, nullptr);
  const InterruptScope waits([&] { return control.check(done_, total_); });
  if (total_ == 0) still_.let_go();
  return copy_out(std::move(to), places, metadata, options, [&](uint64_t more) { return tell(control, more); });
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

// The folder that is to hold the shards: what was written into it goes again
// unless it is kept.
class Folder {
 public:
  static Result<Folder> make(os::Env &env, const std::string &path);
  Folder(Folder &&other) noexcept
      : at_(std::move(other.at_)),
        inside_(std::move(other.inside_)),
        made_(std::exchange(other.made_, false)),
        written_(std::move(other.written_)) {}
  ~Folder() {
    for (const std::string &name : written_) inside_->env().unlinkat(inside_->fd(), name.c_str(), 0);
    if (made_) at_.env().unlinkat(at_.dir(), at_.name().c_str(), AT_REMOVEDIR);
  }
  os::Location next(const std::string &name) const { return {inside_, name}; }
  void has(std::string name) { written_.push_back(std::move(name)); }
  // What is in it is durable under a name that is.
  Result<void> sync_name() const { return made_ ? at_.folder()->sync() : Result<void>(); }
  void keep() {
    written_.clear();
    made_ = false;
  }

 private:
  Folder() = default;
  os::Location at_;
  std::shared_ptr<const os::Directory> inside_;
  bool made_ = false;
  std::vector<std::string> written_;
};

Result<Folder> Folder::make(os::Env &env, const std::string &path) {
  Folder folder;
  std::string plain = os::plain_path(path);  // a slash at the end is of what is there
  while (plain.size() > os::root_of(plain).size() && plain.ends_with('/')) plain.pop_back();
  auto at = os::Location::find_new(env, plain);
  if (!at && at.error().os_errno == 0) return Failure(std::move(at.error()));
  if (!at) return Failure(os_error(at.error().os_errno, "create the folder", path));
  folder.at_ = std::move(*at);
  const int made =
      os::repeat_interrupted([&] { return env.mkdirat(folder.at_.dir(), folder.at_.name().c_str(), 0777); });
  if (made < 0 && made != -EEXIST) return Failure(os_error(-made, "create the folder", path));
  folder.made_ = made == 0;
  ST_TRY(folder.inside_, folder.at_.folder()->inside(folder.at_.name()));
  const auto names = folder.inside_->list();
  if (!names) return Failure(Error(names.error()));
  for (const std::string &name : *names)
    if (name.ends_with(".safetensors") || is_index_name(name))
      return fail(Status::invalid_argument, "the folder ", in_quotes(path), " holds ", in_quotes(name),
                  " already; give an empty one, so that no two checkpoints are mixed");
  return folder;
}

}  // namespace

Result<void> reshard(os::Env &env, const std::string &from, const std::string &to_folder, uint64_t max_shard_size,
                     const write::SaveOptions &options) {
  if (max_shard_size == 0) return fail(Status::invalid_argument, "shards of at most 0 bytes could hold nothing");
  ST_TRY(auto source, Source::open(env, from, options));
  ST_TRY(auto folder, Folder::make(env, to_folder));
  const auto shards = cut_up(source.whole().places(), max_shard_size);
  std::vector<std::string> names;
  for (size_t i = 0; i < shards.size(); ++i) names.push_back(shard_name(i + 1, shards.size()));
  ShardIndex index = ShardIndex::of(names);
  for (size_t i = 0; i < shards.size(); ++i) {
    ST_TRY(auto to, write::destination_at(folder.next(names[i])));
    auto written = source.write_file(std::move(to), shards[i], source.header_metadata(), options);
    if (written || written.error().status == Status::needs_recovery) folder.has(names[i]);
    if (!written) return written;
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
  ST_TRY(auto made, write::TemporaryFile::create(folder.next(index_name), 0666));
  ST_TRY(made->file().write(spelled.data(), spelled.size(), 0));
  ST_TRY(folder.sync_name());
  auto placed = write::replace_file(folder.next(index_name), *made, options.lock_timeout_ms, {}, options.log);
  if (placed || placed.error().status == Status::needs_recovery) folder.keep();
  return placed;
}

Result<void> join(os::Env &env, const std::string &from, const std::string &to, const write::SaveOptions &options) {
  ST_TRY(auto source, Source::open(env, from, options));
  if (!source.model().file()) {  // which may be made anew; shards would be left without one of them
    ST_TRY(source.whole().must_not_be(env, to));
  }
  const auto &metadata = source.whole().metadata();
  ST_TRY(auto target, write::find_destination(env, to));
  return source.write_file(std::move(target), source.whole().places(), {metadata.begin(), metadata.end()}, options);
}

}  // namespace st::store
