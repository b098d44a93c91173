#include "engine/verify.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <memory>
#include <set>

#include "base/interrupt.h"
#include "base/joined_progress.h"
#include "engine/locate.h"
#include "engine/look_at_shards.h"
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

  Result<void> run();

 private:
  // The outer result is for being told to stop; findings go to tell().
  Result<void> check(const os::Location &at, os::File file, const std::vector<Error> &disagreements = {});
  Result<void> check_index(const os::Location &at, const std::shared_ptr<const os::Directory> &folder);
  // Those that were not read yet. False: one is gone.
  Result<bool> check_shards(const LookedShards &looked, const std::shared_ptr<const os::Directory> &folder);
  bool is_to_be_read(const LookedShard &shard) const { return !shard.missing && !read_.contains(shard.state); }
  // Several files, of so many bytes, of which so many have been read.
  void begin_to_read(uint64_t bytes, uint64_t done = 0);
  template <class Metadata>
  Result<void> check_totals(Metadata metadata, const HeldTotals &held);
  Result<void> check_journals(const os::Location &at, const os::File &file);
  Result<void> check_old_shards(const os::Location &index, const ShardIndex &now);
  Result<void> check_alignment(const Snapshot &snapshot);
  Result<void> read_all(const Snapshot &snapshot);
  // Files from here on are shards, if they have a number.
  void go_on_to(std::string path, std::optional<uint32_t> shard);
  Result<void> tell(Severity severity, Error e);
  Result<void> outcome(Result<void> done);

  os::Env &env_;
  std::string path_;               // of the file under way
  std::optional<uint32_t> shard_;  // its number, if it is one
  const Control &control_;
  const Report &report_;
  std::set<uint64_t> read_;                             // states of shards
  uint64_t read_bytes_ = 0;                             // of these
  std::set<std::pair<std::string, std::string>> told_;  // paths and messages
  JoinedProgress joined_{control_.progress(), 0};       // of several files
  Control reading_ = control_;
  Error first_error_ = {Status::ok, {}};
};

void Verifier::go_on_to(std::string path, std::optional<uint32_t> shard) {
  path_ = std::move(path);
  shard_ = shard;
}

Result<void> Verifier::tell(Severity severity, Error e) {
  if (was_stopped(e)) return Failure(std::move(e));
  if (shard_) {
    e.shard = *shard_;
    const std::string name = in_quotes(path_);
    if (e.message.find(name) == std::string::npos) e.message = text(name, ": ", e.message);
  }
  if (!told_.emplace(path_, e.message).second) return {};  // a look before this one found it too
  const Finding finding{severity, e.status, e.offset, e.message};
  if (severity == Severity::error && first_error_.status == Status::ok) first_error_ = std::move(e);
  if (report_ && !report_(finding)) return fail(Status::cancelled, "the report callback stopped the verification");
  return {};
}

// What has been found, once all was looked at.
Result<void> Verifier::outcome(Result<void> done) {
  if (done && first_error_.status != Status::ok) return Failure(std::move(first_error_));
  return done;
}

Result<void> Verifier::check(const os::Location &at, os::File file, const std::vector<Error> &disagreements) {
  ST_TRY(check_journals(at, file));
  auto snapshot = Snapshot::take(std::move(file), {.map = read::MapMode::none, .follows = true, .log = {}});
  if (!snapshot) return tell(Severity::error, std::move(snapshot.error()));
  for (const Error &e : disagreements) ST_TRY(tell(Severity::error, Error(e)));
  ST_TRY(check_alignment(**snapshot));
  ST_TRY(read_all(**snapshot));
  if (first_error_.status != Status::ok) return {};
  const Index &found = (*snapshot)->header.index;
  return tell(Severity::info,
              error(Status::ok, found.size(), " tensors, ", found.data_bytes(), " bytes of data, header of ",
                    (*snapshot)->header.json_bytes, " bytes: every rule of the format holds"));
}

Result<void> Verifier::run() {
  auto run = [&]() -> Result<void> {
    const auto at = os::Location::find(env_, path_);
    if (!at) return tell(Severity::error, Error(at.error()));
    auto file = open_regular(*at, O_RDONLY);
    if (!file) return tell(Severity::error, std::move(file.error()));
    return check(*at, std::move(*file));
  };
  return outcome(run());
}

Result<void> Verifier::check_journals(const os::Location &at, const os::File &file) {
  auto s = file.stat();
  if (!s) return tell(Severity::error, std::move(s.error()));
  std::string passed_over;
  auto folder = write::Folder::open(at, *s, [&](LogLevel, const std::string &message) { passed_over = message; });
  if (!passed_over.empty() && !write::all_rest(at)) return tell(Severity::warning, error(Status::journal, passed_over));
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
  const InterruptScope waits([&] { return reading_.check(at - begin, end - begin); });
  for (; at < end; at += block) {
    ST_TRY(reading_.check(at - begin, end - begin));
    if (auto got = snapshot.file.read(buffer.get(), std::min(block, end - at), at); !got)
      return tell(Severity::error, std::move(got.error()));
  }
  return reading_.check(end - begin, end - begin);
}

void Verifier::begin_to_read(uint64_t bytes, uint64_t done) {
  joined_.go_on_to(bytes, done);
  reading_ = control_.with(joined_.of_part());
}

// Those of an index, against what the files hold. `metadata` finds its metadata.
template <class Metadata>
Result<void> Verifier::check_totals(Metadata metadata, const HeldTotals &held) {
  for (const std::string_view key : {total_size_key, total_parameters_key}) {
    const auto text = metadata(key);
    if (!text) continue;
    const auto total = whole_number(*text);
    if (!total)
      ST_TRY(
          tell(Severity::warning, error(Status::ok, "the index says a ", key, " of ", in_quotes(*text),
                                        ", which is no whole number from 0 to 2^64 - 1; changes leave it as it is")));
    else if (*total != held.of(key))
      ST_TRY(tell(Severity::warning,
                  error(Status::ok, "the index says a ", key, " of ", *total,
                        key == total_size_key ? " bytes" : " elements", ", but the shards hold ", held.of(key))));
  }
  return {};
}

Result<bool> Verifier::check_shards(const LookedShards &looked, const std::shared_ptr<const os::Directory> &folder) {
  uint64_t bytes = read_bytes_;
  for (const LookedShard &shard : looked.shards)
    if (is_to_be_read(shard)) bytes += shard.bytes;
  begin_to_read(bytes, read_bytes_);
  const std::string index = path_;
  for (uint32_t i = 0; i < looked.shards.size(); ++i) {
    const LookedShard &shard = looked.shards[i];
    const std::string &name = looked.read.index().shards()[i];
    go_on_to(folder->path_of(name), i);
    if (!is_to_be_read(shard)) {
      if (shard.missing) ST_TRY(tell(Severity::error, Error(*shard.missing)));
      for (const Error &e : shard.disagreements) ST_TRY(tell(Severity::error, Error(e)));
      continue;
    }
    const auto at = os::Location::find_in(folder, name);
    auto file = at ? open_regular(*at, O_RDONLY) : Result<os::File>(Failure(at.error()));
    if (!file && file.error().os_errno == ENOENT) {
      go_on_to(index, std::nullopt);
      return false;
    }
    joined_.begin_part(shard.bytes);
    if (file)
      ST_TRY(check(*at, std::move(*file), shard.disagreements));
    else
      ST_TRY(tell(Severity::error, std::move(file.error())));
    if (shard.state != 0 && read_.insert(shard.state).second) read_bytes_ += shard.bytes;
  }
  joined_.end();
  go_on_to(index, std::nullopt);
  return true;
}

// What was there when the index was looked at may go before it is read, if others commit under new names.
Result<void> Verifier::check_index(const os::Location &at, const std::shared_ptr<const os::Directory> &folder) {
  constexpr int most_looks = 20;
  for (int looks = 0; looks < most_looks; ++looks) {
    auto looked = look_at_shards(at, folder, reading_);
    if (!looked) return tell(Severity::error, std::move(looked.error()));
    const ShardIndex &index = looked->read.index();
    if (looks == 0 && at.folder()->is(*folder)) ST_TRY(check_old_shards(at, index));
    ST_TRY(const bool all_read, check_shards(*looked, folder));
    if (!all_read) continue;
    if (first_error_.status != Status::ok) return {};
    ST_TRY(check_totals([&](std::string_view key) { return index.metadata_find(key); }, looked->held));
    return tell(Severity::info, error(Status::ok, "the index names ", index.size(), " tensors in ",
                                      index.shards().size(), " shards, and each is where it says"));
  }
  return tell(Severity::error, replaced_all_the_time(at));
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
    return check_index(*at, *folder);
  };
  return outcome(run());
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
    HeldTotals held;
    for (const Opened &file : whole->files()) held.add(file.snapshot->header.index);
    begin_to_read(held.bytes);
    const bool has_shards = !(*model)->index_path().empty();
    for (uint32_t i = 0; i < whole->files().size(); ++i) {
      const Opened &file = whole->files()[i];
      if (has_shards) go_on_to(file.data_file->place(), i);
      joined_.begin_part(file.snapshot->header.index.data_bytes());
      ST_TRY(check_alignment(*file.snapshot));
      ST_TRY(read_all(*file.snapshot));
    }
    shard_.reset();
    if (first_error_.status != Status::ok) return {};
    const Catalogue shown = (*model)->catalogue();
    if (has_shards) ST_TRY(check_totals([&](std::string_view key) { return shown.metadata_find(key); }, held));
    return tell(Severity::info, error(Status::ok, shown.size(), " tensors, ", held.bytes,
                                      " bytes of data: every rule of the format holds"));
  };
  return outcome(run());
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
