#include "handle.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "interrupt.h"
#include "json.h"
#include "progress.h"
#include "text.h"

namespace stctl {
namespace {

void log(void *user, uint32_t level, const char *message) {
  const Session &session = *static_cast<const Session *>(user);
  if (session.quiet || (level < ST_LOG_WARNING && !session.verbose)) return;
  say(fmt::format("{}: {}", level < ST_LOG_WARNING ? "note" : "warning", message));
}

void log_later(void *user, uint32_t level, const char *message) {
  if (level < ST_LOG_WARNING) return log(user, level, message);
  std::vector<std::string> &warnings = static_cast<Session *>(user)->warnings;
  if (std::find(warnings.begin(), warnings.end(), message) == warnings.end()) warnings.emplace_back(message);
}

}  // namespace

File::File(Session &session, const std::string &path, const FileOptions &options) : path_(shown(path)), file_(nullptr) {
  auto opts = sized<st_open_options>();
  opts.flags = options.write ? ST_OPEN_READ_WRITE : 0;
  opts.map = options.map;
  opts.lock_timeout_ms = options.lock_timeout_ms;
  opts.progress = stop_if_interrupted;
  opts.log = options.write || options.warns_later ? log_later : log;
  opts.log_user = &session;
  std::vector<const char *> deltas;
  for (const std::string &delta : options.deltas) deltas.push_back(delta.c_str());
  opts.deltas = deltas.data();
  opts.delta_count = deltas.size();
  // It may be a program that gives keys for which the open waits, and that would go on.
  const st_status status = [&] {
    const Interruptible politely(nullptr);
    return st_open(path.c_str(), &opts, &file_);
  }();
  if (interrupted()) {
    st_close(file_);
    throw_if_interrupted();
  }
  check(status);
}

void File::refresh() const {
  const st_status status = [&] {
    const Interruptible politely(nullptr);
    return st_refresh(file_);
  }();
  throw_if_interrupted();
  check(status);
}

File::~File() {
  st_close(file_);
}

std::string File::file_path(uint32_t shard) const {
  const char *path = nullptr;
  check(st_shard_path(file_, shard, &path));
  return path;
}

std::string File::file_name(uint32_t shard) const {
  const std::string path = file_path(shard);
  return path.substr(path.rfind('/') + 1);
}

uint64_t File::size_of_files() const {
  uint64_t size = 0;
  if (is_url()) all();  // which opens them side by side
  for (uint32_t shard = 0; shard < file_count(); ++shard) size += io_info(shard).file_size;
  return size;
}

st_tensor File::at(size_t i) const {
  st_tensor tensor = {};
  check(st_at(file_, i, 1, &tensor));
  return tensor;
}

std::vector<st_tensor> File::all() const {
  std::vector<st_tensor> tensors(count());
  check(st_at(file_, 0, tensors.size(), tensors.data()));
  return tensors;
}

st_tensor File::view(size_t i) const {
  st_tensor tensor = {};
  check(st_get_at(file_, i, &tensor));
  return tensor;
}

std::string File::bytes_of(const st_tensor &tensor) const {
  std::string bytes(tensor.nbytes, '\0');
  check(st_read(file_, tensor.name, tensor.name_len, bytes.data(), bytes.size(), nullptr));
  return bytes;
}

st_io_info File::io_info() const {
  auto info = sized<st_io_info>();
  check(st_file_io_info(file_, &info));
  return info;
}

st_io_info File::io_info(uint32_t shard) const {
  auto info = sized<st_io_info>();
  check(st_shard_io_info(file_, shard, &info));
  return info;
}

st_stats File::stats() const {
  auto stats = sized<st_stats>();
  check(st_file_stats(file_, &stats));
  return stats;
}

size_t File::find(const std::string &name) const {
  const std::optional<size_t> found = find_if_there(name);
  return found ? *found : find_exactly(name);  // which says that there is none
}

std::optional<size_t> File::find_if_there(const std::string &name) const {
  // Escapes first, so that what `ls` prints names the tensor it was printed for.
  for (const std::string &literal : {plain_name(name), name}) {
    size_t i = 0;
    const st_status status = st_find(file_, literal.data(), literal.size(), &i);
    if (status == ST_OK) return i;
    if (status != ST_E_NOT_FOUND) check(status);
  }
  return std::nullopt;
}

Matches File::find_all(const std::string &word) const {
  if (const std::optional<size_t> found = find_if_there(word)) return {{*found}};
  Matches matches;
  if (!is_pattern(word)) return matches;
  const std::vector<st_tensor> tensors = all();
  for (size_t i = 0; i < tensors.size(); ++i) {
    throw_if_interrupted();
    if (glob_matches(word, name_of(tensors[i]))) matches.tensors.push_back(i);
  }
  matches.by_pattern = !matches.tensors.empty();
  return matches;
}

File::ShardsOf::ShardsOf(const File &file, const std::vector<std::string> &words) : file_(file) {
  if (!file.is_url() || file.is_one_file() || words.size() < 2) return;
  names_.reserve(words.size());
  for (const std::string &word : words) {
    const std::string &name = names_.emplace_back(plain_name(word));
    st_read_request &request = requests_.emplace_back();
    request.name = name.data();
    request.name_len = name.size();
  }
}

void File::ShardsOf::open(size_t first) const {
  if (first + 1 >= requests_.size()) return;
  const std::span rest = std::span(requests_).subspan(first);
  // They have no room, so nothing is read.
  const st_status status = st_read_many(file_.file_, rest.data(), rest.size(), nullptr);
  if (status != ST_E_BUFFER_SIZE && status != ST_E_NOT_FOUND) check(status);
}

std::vector<size_t> File::find_each(const std::vector<std::string> &names) const {
  std::vector<size_t> found(names.empty() ? count() : 0);
  std::iota(found.begin(), found.end(), 0);
  ShardsOf(*this, names).open(0);
  for (const std::string &name : names) found.push_back(find(name));
  return found;
}

std::vector<Matches> File::find_all_of_each(const std::vector<std::string> &words) const {
  std::vector<Matches> found;
  const ShardsOf shards(*this, words);
  bool are_open = false;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!are_open) shards.open(i);
    found.push_back(find_all(words[i]));
    are_open = !found.back().tensors.empty();
  }
  return found;
}

std::vector<st_tensor> File::views(const std::vector<size_t> &tensors, bool quiet) const {
  if (is_url() && !tensors.empty()) {
    Progress progress(quiet, "reading", 0);
    auto opts = sized<st_bulk_options>();
    opts.progress = Progress::callback;
    opts.progress_user = &progress;
    check(st_prefetch(file_, tensors.data(), tensors.size(), &opts));
  }
  std::vector<st_tensor> views;
  for (const size_t i : tensors) views.push_back(view(i));
  return views;
}

size_t File::find_exactly(std::string_view name) const {
  size_t i = 0;
  check(st_find(file_, name.data(), name.size(), &i));
  return i;
}

st_dtype parse_dtype(const std::string &name) {
  st_dtype dtype = 0;
  if (!name.empty() && st_dtype_parse(name.c_str(), ST_NTS, &dtype) != ST_OK) {
    throw UsageFailure(fmt::format("'{}' is no dtype; F32, BF16 and F8_E4M3 are", escape(name)));
  }
  return dtype;
}

void write_description(Json &json, const File &file, const st_tensor &tensor) {
  json.field("name", name_of(tensor));
  json.field("dtype", st_dtype_name(tensor.dtype));
  json.key("shape");
  json.begin_array();
  for (uint32_t d = 0; d < tensor.rank; ++d) json.value(tensor.shape[d]);
  json.end_array();
  json.field("nbytes", tensor.nbytes);
  json.field("shard", file.file_path(tensor.shard));
  json.field("offset", tensor.file_offset);
}

void note_pattern(const Session &session, const std::string &word) {
  const bool looks_like_a_name = word.find('[') != word.npos && word.find_first_of("*?") == word.npos;
  if (looks_like_a_name && !session.quiet) {
    say(fmt::format("note: no tensor is named '{}', so it is taken as a pattern; \\[ is the bracket itself",
                    escape(word)));
  }
}

const char *map_name(uint32_t map) {
  switch (map) {
    case ST_MAP_AUTO: return "auto";
    case ST_MAP_SHARED: return "shared";
    case ST_MAP_PRIVATE: return "private";
    case ST_MAP_NONE: return "none";
    case ST_MAP_COPY_ON_WRITE: return "copy-on-write";
    default: return "unknown";
  }
}

const char *prefetch_name(uint32_t prefetch) {
  switch (prefetch) {
    case ST_PREFETCH_NONE: return "none";
    case ST_PREFETCH_SEQUENTIAL: return "sequential";
    case ST_PREFETCH_PARALLEL: return "parallel";
    default: return "unknown";
  }
}

const char *storage_name(uint32_t storage) {
  switch (storage) {
    case ST_STORAGE_LOCAL: return "local";
    case ST_STORAGE_MEMORY: return "memory";
    case ST_STORAGE_NETWORK: return "network";
    case ST_STORAGE_PARALLEL: return "parallel";
    case ST_STORAGE_FUSE: return "fuse";
    case ST_STORAGE_OBJECT_STORE: return "object-store";
    default: return "unknown";
  }
}

}  // namespace stctl
