#include "steps.h"

#include <algorithm>
#include <charconv>

#include "cast.h"
#include "interrupt.h"
#include "json.h"
#include "progress.h"
#include "text.h"

namespace stctl {
namespace {

std::vector<uint64_t> parse_shape(const std::string &text) {
  std::vector<uint64_t> shape;
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    uint64_t dim = 0;
    const auto [stop, err] = std::from_chars(at, end, dim);
    if (err != std::errc() || (stop != end && *stop != ',') || stop + 1 == end) {
      throw UsageFailure(fmt::format("--shape takes numbers with commas between, as in 2,3; not {}", escape(text)));
    }
    shape.push_back(dim);
    at = stop + 1;
  }
  return shape;
}

// A new name, or a part of one. What is misspelled must not become a name.
std::string known_escapes(const std::string &part, std::string_view name) {
  if (const std::optional<std::string> plain = unescape(part)) return *plain;
  throw UsageFailure(fmt::format("'{}' has a backslash that begins no escape, as \\n and \\x00 are; it is written \\\\",
                                 escape(name)));
}

// What stands before, between and behind the stars of a new name; \\* is no star.
std::vector<std::string> between_stars(std::string_view name) {
  std::vector<std::string> parts(1);
  for (size_t at = 0; at < name.size(); ++at) {
    if (name[at] == '*') {
      parts.emplace_back();
    } else if (name.substr(at).starts_with("\\*")) {
      parts.back() += name[++at];
    } else {
      parts.back() += name[at];
      if (name[at] == '\\' && at + 1 < name.size()) parts.back() += name[++at];
    }
  }
  for (std::string &part : parts) part = known_escapes(part, name);
  return parts;
}

// Where there is no pattern, a star is one.
std::string name_with_stars(const std::string &name) {
  return fmt::format("{}", fmt::join(between_stars(name), "*"));
}

// The new name of a tensor that was named exactly.
const std::string &one_name(const std::vector<std::string> &parts, const std::string &from, const std::string &to) {
  if (parts.size() == 1) return parts[0];
  throw UsageFailure(fmt::format("'{}' is a tensor's name, so no * of '{}' stands for anything; \\* is the star itself",
                                 escape(from), escape(to)));
}

const char *kind_name(uint32_t kind) {
  return kind == ST_PLAN_PUBLISH ? "publish" : kind == ST_PLAN_PATCH ? "patch" : "nothing";
}

}  // namespace

void add_layout_options(const Command &command, LayoutOptions &options) {
  command.lock_timeout(options.lock_timeout_ms);
  command.option("--align", options.alignment, "BYTES",
                 "Let data begin at a multiple of BYTES (default: what lets most\n"
                 "be shared with the old file, else 64)");
  command.option("--reserve", options.reserve, "BYTES", "Leave BYTES of spare room in the header").at_least(0);
  command.flag("--canonical", options.canonical, "Order tensors by descending dtype, then name");
  command.flag("--break-links", options.break_links,
               "Change a file that has other hard links, which keep the\n"
               "old bytes");
  add_new_names_options(command, options.new_names);
}

bool are_given(const LayoutOptions &options) {
  return options.alignment || options.reserve || options.canonical || options.break_links || options.new_names.wanted;
}

st_txn_options txn_options(const LayoutOptions &options) {
  auto opts = sized<st_txn_options>();
  opts.flags = (options.break_links ? ST_TXN_BREAK_LINKS : 0) | (options.new_names.wanted ? ST_TXN_NEW_NAMES : 0);
  opts.shard_grace_s = options.new_names.grace_s == 0 ? ST_GRACE_NONE : options.new_names.grace_s;
  opts.lock_timeout_ms = options.lock_timeout_ms;
  opts.layout = options.canonical ? ST_LAYOUT_CANONICAL : ST_LAYOUT_KEEP;
  opts.alignment = options.alignment;
  opts.header_reserve = options.reserve;
  return opts;
}

void Steps::put_from(Session &session, const std::string &path, const std::vector<std::string> &names) {
  sources_.push_back(std::make_unique<Source>());
  // It may be the file that is changed.
  sources_.back()->file = std::make_unique<File>(session, path, FileOptions{.warns_later = true});
  const File &from = *sources_.back()->file;
  for (const st_tensor &t : from.views(from.find_each(names), session.quiet)) {
    const auto [earlier, is_new] = put_from_.emplace(name_of(t), &from);
    if (!is_new && earlier->second->path() != from.path()) {
      throw Failure(exit_failed, fmt::format("'{}' is in '{}' and in '{}', and can be put from one only",
                                             escape(name_of(t)), escape(earlier->second->path()), escape(from.path())));
    }
    if (is_new) puts_.push_back({std::string(name_of(t)), t, &from});
  }
}

void Steps::put_npy(const std::string &name, const std::string &path, const std::string &dtype, bool will_cast) {
  sources_.push_back(std::make_unique<Source>());
  Source &source = *sources_.back();
  const st_dtype said = parse_dtype(dtype);
  source.input.emplace(Input::read(path, npy_size, will_cast || looks_at_elements(said)));
  source.npy = parse_npy(source.input->bytes(), path, said);
  if (said && said != source.npy->dtype) {
    throw Failure(exit_failed, fmt::format("'{}' holds elements of {}, and --dtype says {}; --cast changes elements",
                                           escape(path), st_dtype_name(source.npy->dtype), st_dtype_name(said)));
  }
  st_tensor t = {};
  t.dtype = source.npy->dtype;
  t.rank = static_cast<uint32_t>(source.npy->shape.size());
  t.shape = source.npy->shape.data();
  t.data = source.npy->data.data();
  t.nbytes = source.npy->data.size();
  puts_.push_back({name_with_stars(name), t});
}

void Steps::put_raw(const std::string &name, const std::string &path, const std::string &dtype,
                    const std::string &shape, bool will_cast) {
  sources_.push_back(std::make_unique<Source>());
  Source &source = *sources_.back();
  source.shape = parse_shape(shape);
  st_tensor t = {};
  t.dtype = parse_dtype(dtype);
  // Where there is no such size, libst says so when it is given the shape.
  const auto most = [&](std::string_view) {
    return size_of(t.dtype, source.shape.data(), source.shape.size()).value_or(0);
  };
  source.input.emplace(Input::read(path, most, will_cast));
  t.rank = static_cast<uint32_t>(source.shape.size());
  t.shape = source.shape.data();
  t.data = source.input->bytes().data();
  t.nbytes = source.input->bytes().size();
  puts_.push_back({name_with_stars(name), t});
}

void Steps::cast_puts(st_dtype dtype) {
  for (Put &put : puts_) {
    if (put.value.dtype != dtype) put.cast_to = dtype;
  }
}

void Steps::remove(const Session &session, const File &file, const std::vector<std::string> &names) {
  for (const std::string &name : names) {
    throw_if_interrupted();
    const Matches found = file.find_all(name);
    if (found.by_pattern) note_pattern(session, name);
    if (found.tensors.empty()) file.find_exactly(name);  // says that there is none
    for (const size_t i : found.tensors) {
      const std::string plain(name_of(file.at(i)));
      if (is_removed_.insert(plain).second) removed_.push_back(plain);
    }
  }
}

std::vector<std::string> &Steps::names_left(const File &file) {
  if (names_) return *names_;
  names_.emplace();
  for (size_t i = 0; i < file.count(); ++i) {
    std::string name(name_of(file.at(i)));
    if (!is_removed_.contains(name)) names_->push_back(std::move(name));
  }
  return *names_;
}

void Steps::rename(const Session &session, const File &file, const std::string &from, const std::string &to) {
  std::vector<std::string> &names = names_left(file);
  const std::vector<std::string> parts = between_stars(to);
  for (const std::string &exact : {plain_name(from), from}) {
    const auto found = std::find(names.begin(), names.end(), exact);
    if (found == names.end()) continue;
    *found = one_name(parts, from, to);
    renamed_.emplace_back(exact, *found);
    return;
  }
  const size_t before = renamed_.size();
  for (std::string &found : names) {
    throw_if_interrupted();
    const auto stars = is_pattern(from) ? glob_stars(from, found) : std::nullopt;
    if (!stars) continue;
    if (stars->size() + 1 != parts.size()) {
      throw UsageFailure(fmt::format("'{}' has {}, and '{}' {}: they must have as many", escape(from),
                                     counted(stars->size(), "star"), escape(to), parts.size() - 1));
    }
    std::string name = parts[0];
    for (size_t star = 0; star < stars->size(); ++star) name += (*stars)[star] + parts[star + 1];
    renamed_.emplace_back(found, name);
    found = std::move(name);
  }
  if (renamed_.size() > before) return note_pattern(session, from);
  // This says that there is none, or else the transaction says that there is none any more.
  const size_t gone = file.find(from);
  renamed_.emplace_back(name_of(file.at(gone)), one_name(parts, from, to));
}

void Steps::set_metadata(const std::string &pair) {
  const size_t equals = pair.find('=');
  if (equals == std::string::npos) {
    throw UsageFailure(fmt::format("metadata is given as KEY=VALUE, not {}", escape(pair)));
  }
  metadata_.emplace_back(plain_name(pair.substr(0, equals)), pair.substr(equals + 1));
}

void Steps::remove_metadata(const std::string &key) {
  const std::string plain = plain_name(key);
  if (std::any_of(metadata_.begin(), metadata_.end(),
                  [&](const auto &set) { return set.second && set.first == plain; })) {
    throw UsageFailure(fmt::format("metadata '{}' can be set or removed, not both", escape(plain)));
  }
  metadata_.emplace_back(plain, std::nullopt);
}

// What is cast is in memory no longer than this takes, as the transaction has ST_TXN_COPY.
void Steps::stage(st_txn *txn, const Put &put) {
  st_tensor t = put.value;
  std::string bytes;
  if (put.cast_to) {
    if (put.from) {
      bytes = put.from->bytes_of(t);
      t.data = bytes.data();
    }
    bytes = cast(put.name, t, put.cast_to);
    t.dtype = put.cast_to;
    t.data = bytes.data();
    t.nbytes = bytes.size();
  }
  check_change(st_txn_put(txn, put.name.data(), put.name.size(), &t));
}

void Steps::stage(Transaction &transaction) const {
  st_txn *txn = transaction.get();
  for (const std::string &name : removed_) check(st_txn_delete(txn, name.data(), name.size()));
  for (const auto &[from, to] : renamed_) check(st_txn_rename(txn, from.data(), from.size(), to.data(), to.size()));
  for (const Put &put : puts_) stage(txn, put);
  for (const auto &[key, value] : metadata_) {
    check(st_txn_set_metadata(txn, key.data(), key.size(), value ? value->data() : nullptr,
                              value ? value->size() : ST_NTS));
  }
}

int Steps::run(Session &session, const File &file, const LayoutOptions &options, const char *label,
               bool dry_run) const {
  throw_if_interrupted();
  const Interruptible guard(file.get());
  Progress progress(session.quiet, label, 0);
  st_txn_options opts = txn_options(options);
  opts.progress = Progress::callback;
  opts.progress_user = &progress;
  if (std::any_of(puts_.begin(), puts_.end(), [](const Put &put) { return put.cast_to != 0; })) {
    opts.flags |= ST_TXN_COPY;
  }
  Transaction transaction(file, opts);
  stage(transaction);
  const st_plan plan = transaction.plan();
  ShardNames shards(file, options.new_names);
  if (!dry_run) {
    transaction.commit();
    forget_interrupt();  // it came too late: what has been done is told
    shards.compare(file);
  }
  tell(session, file, plan, dry_run, shards);
  return exit_ok;
}

void Steps::tell(Session &session, const File &file, const st_plan &plan, bool dry_run,
                 const ShardNames &shards) const {
  if (session.json) {
    Json json(session.out);
    json.begin_object();
    json.field("file", file.path());
    json.field("dry_run", dry_run);
    std::vector<std::string> put, keys;
    for (const Put &p : puts_) put.push_back(p.name);
    for (const auto &[key, value] : metadata_) keys.push_back(key);
    json.names("put", put);
    json.names("removed", removed_);
    json.key("renamed");
    json.begin_array();
    for (const auto &[from, to] : renamed_) {
      json.begin_object();
      json.field("from", from);
      json.field("to", to);
      json.end_object();
    }
    json.end_array();
    json.names("metadata", keys);
    json.field("kind", kind_name(plan.kind));
    json.field("file_size", plan.file_size);
    json.field("data_offset", plan.data_offset);
    json.field("bytes_written", plan.bytes_written);
    json.field("bytes_shared", plan.bytes_shared);
    json.field("bytes_copied", plan.bytes_copied);
    json.field("space_needed", plan.space_needed);
    json.key("space_free");
    if (plan.space_free == UINT64_MAX) {
      json.null();
    } else {
      json.value(plan.space_free);
    }
    json.field("how", static_cast<const char *>(plan.how));
    shards.write(json);
    json.end_object();
    session.out.write("\n");
    return;
  }
  for (const Put &put : puts_) {
    session.out.print("{} {} {} {}, {}\n", dry_run ? "would put" : "put", escape_word(put.name),
                      st_dtype_name(put.dtype()), shape_text(put.value.shape, put.value.rank),
                      human_size(cast_size(put.value.dtype, put.value.nbytes, put.dtype())));
  }
  for (const Put &put : puts_) {
    if (put.cast_to) {
      session.out.print("{}: {}\n", escape_word(put.name), cast_text(put.value.dtype, put.cast_to));
    }
  }
  for (const std::string &name : removed_) {
    session.out.print("{} {}\n", dry_run ? "would remove" : "removed", escape_word(name));
  }
  for (const auto &[from, to] : renamed_) {
    session.out.print("{} {} to {}\n", dry_run ? "would rename" : "renamed", escape_word(from), escape_word(to));
  }
  for (const auto &[key, value] : metadata_) {
    session.out.print("metadata {} {}{}\n", escape_word(key), dry_run ? "would be " : "", value ? "set" : "removed");
  }
  session.out.print("{}: {}\n", dry_run ? "dry run, nothing was changed" : kind_name(plan.kind),
                    static_cast<const char *>(plan.how));
  const bool one = file.is_one_file();
  session.out.print("{}written {}, shared {}, copied {}", dry_run ? "would be " : "", human_size(plan.bytes_written),
                    human_size(plan.bytes_shared), human_size(plan.bytes_copied));
  if (plan.file_size > 0) {  // else only the index changes
    session.out.print("; {} {} {}", one ? "the file" : "the changed shards",
                      dry_run ? "would have"
                      : one   ? "has"
                              : "have",
                      human_size(plan.file_size));
  }
  session.out.write("\n");
  shards.tell(session.out);
  if (dry_run && plan.space_free != UINT64_MAX) {
    session.out.print("space needed {}, free {}\n", human_size(plan.space_needed), human_size(plan.space_free));
  }
}

}  // namespace stctl
