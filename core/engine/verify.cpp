#include "engine/verify.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <memory>

#include "base/interrupt.h"
#include "engine/locate.h"
#include "engine/open.h"
#include "file/snapshot.h"
#include "format/json_number.h"
#include "journal/recover.h"
#include "model/model_view.h"
#include "os/remote_source.h"
#include "shards/old_shards.h"
#include "shards/shards.h"

namespace st::store {
namespace {

std::string utc(uint64_t unix_time) {
  const auto seconds = static_cast<time_t>(unix_time);
  struct tm parts = {};
  char out[40] = "";
  if (!::gmtime_r(&seconds, &parts) || std::strftime(out, sizeof out, "%Y-%m-%d %H:%M:%S UTC", &parts) == 0)
    return text("second ", unix_time);
  return out;
}

class Verifier {
 public:
  Verifier(os::Env &env, std::string path, const Control &control, const Report &report)
      : env_(env), path_(std::move(path)), control_(control), report_(report) {}

  // The index at `path`, and then each of its shards.
  Result<void> run_index();

  // What a URL names, in one version.
  Result<void> run_url();

  Result<void> run() {
    ST_TRY(check(os::Location::find(env_, path_)));
    if (first_error_.status != Status::ok) return Failure(std::move(first_error_));
    return {};
  }

 private:
  // The outer result is for being told to stop; findings go to tell().
  // What an index says of one of its shards.
  struct Said {
    const ShardIndex &index;
    uint32_t shard;
    const std::vector<std::string_view> &names;
  };
  Result<void> check(const Result<os::Location> &at, const Said *said = nullptr);
  Result<void> check_index(const ReadIndex &read, const std::shared_ptr<const os::Directory> &folder);
  template <class Metadata>
  Result<void> check_totals(Metadata metadata);
  Result<void> check_agreement(const Snapshot &snapshot, const Said &said);
  Result<void> check_journals(const os::Location &at, const os::File &file);
  Result<void> check_old_shards(const os::Location &index, const ShardIndex &now);
  Result<void> check_alignment(const Snapshot &snapshot);
  Result<void> read_all(const Snapshot &snapshot);
  Result<void> tell(Severity severity, Error e);

  os::Env &env_;
  std::string path_;  // of the file under way
  const Control &control_;
  const Report &report_;
  uint64_t data_bytes_ = 0;  // of all files so far
  Error first_error_ = {Status::ok, {}};
};

Result<void> Verifier::tell(Severity severity, Error e) {
  if (was_stopped(e)) return Failure(std::move(e));
  const Finding finding{severity, e.status, e.offset, e.message};
  if (severity == Severity::error && first_error_.status == Status::ok) first_error_ = std::move(e);
  if (report_ && !report_(finding)) return fail(Status::cancelled, "the report callback stopped the verification");
  return {};
}

Result<void> Verifier::check(const Result<os::Location> &at, const Said *said) {
  if (!at) return tell(Severity::error, Error(at.error()));
  auto file = open_regular(*at, O_RDONLY);
  if (!file) return tell(Severity::error, std::move(file.error()));
  ST_TRY(check_journals(*at, *file));
  auto snapshot = Snapshot::take(std::move(*file), {.map = read::MapMode::none, .follows = true, .log = {}});
  if (!snapshot) return tell(Severity::error, std::move(snapshot.error()));
  if (said) ST_TRY(check_agreement(**snapshot, *said));
  ST_TRY(check_alignment(**snapshot));
  ST_TRY(read_all(**snapshot));
  if (first_error_.status != Status::ok) return {};
  const Index &found = (*snapshot)->header.index;
  data_bytes_ += found.data_bytes();
  return tell(Severity::info,
              error(Status::ok, found.size(), " tensors, ", found.data_bytes(), " bytes of data, header of ",
                    (*snapshot)->header.json_bytes, " bytes: every rule of the format holds"));
}

Result<void> Verifier::check_journals(const os::Location &at, const os::File &file) {
  auto s = file.stat();
  if (!s) return tell(Severity::error, std::move(s.error()));
  auto folder = write::Folder::open(at, *s, {});
  if (!folder && folder.error().status == Status::journal && write::all_rest(at)) return {};
  if (!folder) return tell(Severity::error, std::move(folder.error()));
  if (!*folder) return {};
  auto journals = write::find_hot_journals(**folder, *s);
  if (!journals) return tell(Severity::error, std::move(journals.error()));
  if (!journals->committed) return {};
  return tell(Severity::error,
              error(Status::needs_recovery, "a committed journal waits in ", in_quotes((*folder)->dir().path()),
                    "; recover the file (stctl recover, st_recover) to finish its change"));
}

Result<void> Verifier::check_old_shards(const os::Location &index, const ShardIndex &now) {
  auto old = OldShards::look(index, now);
  if (!old) return tell(Severity::error, std::move(old.error()));
  if (!old->verdict().is_good()) {
    ST_TRY(tell(Severity::warning, error(Status::ok, "the list of old shards beside ", in_quotes(index.path()),
                                         " is not believed (", old->verdict().why(), "); recovery moves it aside")));
  }
  for (const write::OldShard &shard : old->listed()) {
    ST_TRY(tell(Severity::info,
                error(Status::ok, in_quotes(index.folder()->path_of(shard.name)), " is an old shard of ", shard.size,
                      " bytes, for readers of an older index until ", utc(shard.until), "; recovery removes it")));
  }
  for (const std::string &name : old->unnamed()) {
    ST_TRY(tell(Severity::info, error(Status::ok, in_quotes(index.folder()->path_of(name)),
                                      " is a shard that its writer did not come to name; recovery removes it")));
  }
  return {};
}

// Legal, but views of such tensors are slower, and some loaders copy them.
Result<void> Verifier::check_alignment(const Snapshot &snapshot) {
  const Index &index = snapshot.header.index;
  size_t unaligned = 0;
  uint64_t first = no_offset;
  for (size_t i = 0; i < index.size(); ++i) {
    const TensorView t = index.at(i);
    const uint64_t element = std::max<uint64_t>(dtype_bits(t.dtype) / 8, 1);
    if (t.nbytes == 0 || snapshot.file_offset(t) % element == 0) continue;
    if (unaligned++ == 0) first = snapshot.file_offset(t);
  }
  if (unaligned == 0) return {};
  return tell(Severity::warning,
              error(Status::ok, unaligned, " tensors do not begin at a multiple of their element's size, the first at ",
                    first, "; that is legal, but slower to use in place")
                  .at_offset(first));
}

Result<void> Verifier::read_all(const Snapshot &snapshot) {
  const uint64_t block = std::max(uint64_t{4} << 20, snapshot.file.env().long_read());
  const auto buffer = std::make_unique_for_overwrite<char[]>(block);
  const uint64_t begin = snapshot.header.data_offset(), end = snapshot.file_size();
  uint64_t at = begin;
  const InterruptScope waits([&] { return control_.check(at - begin, end - begin); });
  for (; at < end; at += block) {
    ST_TRY(control_.check(at - begin, end - begin));
    if (auto got = snapshot.file.read(buffer.get(), std::min(block, end - at), at); !got)
      return tell(Severity::error, std::move(got.error()));
  }
  return {};
}

// Both directions: what the shard holds, and what the index says of it.
Result<void> Verifier::check_agreement(const Snapshot &snapshot, const Said &said) {
  const Index &held = snapshot.header.index;
  for (size_t i = 0; i < held.size(); ++i) {
    const std::string_view name = held.at(i).name;
    const auto shard = said.index.shard_of(name);
    if (shard == said.shard) continue;
    auto e = error(Status::shard_tensor, in_quotes(path_), " holds tensor ", in_quotes(name),
                   shard ? text(", which by the index is in ", in_quotes(said.index.shards()[*shard]))
                         : std::string(", which the index does not name"));
    ST_TRY(tell(Severity::error, std::move(e).about_tensor(name)));
  }
  for (const std::string_view name : said.names) {
    if (held.find(name)) continue;
    auto e = error(Status::shard_tensor, "by the index tensor ", in_quotes(name), " is in ", in_quotes(path_),
                   ", but it is not");
    ST_TRY(tell(Severity::error, std::move(e).about_tensor(name)));
  }
  return {};
}

// Those of an index, against what was read. `metadata` finds its metadata.
template <class Metadata>
Result<void> Verifier::check_totals(Metadata metadata) {
  for (const std::string_view key : {total_size_key, total_parameters_key}) {
    const auto text = metadata(key);
    if (!text) continue;
    const auto total = whole_number(*text);
    if (!total)
      ST_TRY(
          tell(Severity::warning, error(Status::ok, "the index says a ", key, " of ", in_quotes(*text),
                                        ", which is no whole number from 0 to 2^64 - 1; changes leave it as it is")));
    else if (key == total_size_key && *total != data_bytes_)
      ST_TRY(tell(Severity::warning, error(Status::ok, "the index says a total_size of ", *total,
                                           " bytes, but the shards hold ", data_bytes_)));
  }
  return {};
}

Result<void> Verifier::check_index(const ReadIndex &read, const std::shared_ptr<const os::Directory> &folder) {
  const ShardIndex &index = read.index;
  const auto names = index.names_by_shard();
  for (uint32_t shard = 0; shard < index.shards().size(); ++shard) {
    path_ = folder->path_of(index.shards()[shard]);
    const auto at = os::Location::find_in(folder, index.shards()[shard]);
    struct stat s;
    if (at ? at->stat(&s) == -ENOENT : at.error().os_errno == ENOENT) {
      auto e = error(Status::shard_missing, "shard ", in_quotes(path_), ", which the index names, is not there");
      e.shard = shard;
      ST_TRY(tell(Severity::error, std::move(e)));
    } else {
      const Said said{index, shard, names[shard]};
      ST_TRY(check(at, &said));
    }
  }
  if (first_error_.status != Status::ok) return {};
  ST_TRY(check_totals([&](std::string_view key) { return index.metadata_find(key); }));
  return tell(Severity::info, error(Status::ok, "the index names ", index.size(), " tensors in ", index.shards().size(),
                                    " shards, and each is where it says"));
}

Result<void> Verifier::run_index() {
  auto run = [&]() -> Result<void> {
    const auto [in, base] = os::split_path(path_);
    auto folder = os::Directory::find(env_, in);
    if (!folder) return tell(Severity::error, std::move(folder.error()));
    auto at = os::Location::find_in(*folder, base);
    if (!at) return tell(Severity::error, std::move(at.error()));
    auto file = open_regular(*at, O_RDONLY);
    if (!file) return tell(Severity::error, std::move(file.error()));
    ST_TRY(check_journals(*at, *file));
    auto read = Shards::read_index(*at, {default_lock_timeout_ms});
    if (!read) return tell(Severity::error, std::move(read.error()));
    if (at->folder()->is(**folder)) ST_TRY(check_old_shards(*at, read->index));
    return check_index(*read, *folder);
  };
  ST_TRY(run());
  if (first_error_.status != Status::ok) return Failure(std::move(first_error_));
  return {};
}

Result<void> Verifier::run_url() {
  auto run = [&]() -> Result<void> {
    OpenOptions reading;
    reading.map = read::MapMode::none;
    reading.progress = control_.progress();
    auto model = open_path(env_, path_, std::move(reading));
    if (!model) return tell(Severity::error, std::move(model.error()));
    // It opens each shard, and holds it against the index.
    auto whole = ModelView::of(**model);
    if (!whole) return tell(Severity::error, std::move(whole.error()));
    for (const Opened &file : whole->files()) {
      ST_TRY(check_alignment(*file.snapshot));
      ST_TRY(read_all(*file.snapshot));
      data_bytes_ += file.snapshot->header.index.data_bytes();
    }
    if (first_error_.status != Status::ok) return {};
    const Catalogue shown = (*model)->catalogue();
    if (!(*model)->index_path().empty())
      ST_TRY(check_totals([&](std::string_view key) { return shown.metadata_find(key); }));
    return tell(Severity::info, error(Status::ok, shown.size(), " tensors, ", data_bytes_,
                                      " bytes of data: every rule of the format holds"));
  };
  ST_TRY(run());
  if (first_error_.status != Status::ok) return Failure(std::move(first_error_));
  return {};
}

}  // namespace

Result<void> verify(os::Env &env, const std::string &path, const Control &control, const Report &report) {
  if (os::is_url(path)) return Verifier(env, path, control, report).run_url();
  auto located = locate(env, path);
  if (!located) {
    if (report && !report({Severity::error, located.error().status, no_offset, located.error().message}))
      return fail(Status::cancelled, "the report callback stopped the verification");
    return Failure(std::move(located.error()));
  }
  Verifier verifier(env, located->path, control, report);
  return located->is_index ? verifier.run_index() : verifier.run();
}

}  // namespace st::store
