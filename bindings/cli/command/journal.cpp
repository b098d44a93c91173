// stctl journal: the bytes of a journal, field by field, and their meaning. It helps after a crash, and to learn the
// format. It changes nothing and takes no lock.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "../commands.h"
#include "../failure.h"
#include "../json.h"
#include "../system.h"
#include "../text.h"
#include "base/hash.h"
#include "journal/journal_layout.h"
#include "journal/super_journal.h"
#include "newfile/names.h"

namespace stctl {
namespace {

using st::write::CommitRecord;
using st::write::JournalState;
using st::write::RangeRecord;

constexpr uint64_t most_ranges = 1024;                // that are read and shown
constexpr uint64_t longest_list = uint64_t{1} << 20;  // of a super-journal
constexpr uint64_t bytes_a_row = 16;
constexpr uint64_t rows_of_a_field = 4;  // of a longer one, the first

class JournalFile {
 public:
  explicit JournalFile(const std::string &path) : path_(path), fd_(open_itself(path)) {
    if (fd_ < 0) throw Failure::of_errno(errno, "open", path);
    struct stat s;
    if (fstat(fd_, &s) != 0 || !S_ISREG(s.st_mode)) {
      close(fd_);
      throw Failure(exit_failed, fmt::format("'{}' is no plain file", escape(path)));
    }
    size_ = static_cast<uint64_t>(s.st_size);
  }
  ~JournalFile() { close(fd_); }
  JournalFile(const JournalFile &) = delete;
  JournalFile &operator=(const JournalFile &) = delete;

  uint64_t size() const { return size_; }

  // What is there of [offset, offset + n).
  std::vector<std::byte> read(uint64_t offset, uint64_t n) const {
    n = offset < size_ ? std::min(n, size_ - offset) : 0;
    std::vector<std::byte> bytes(n);
    for (size_t got = 0; got < n;) {
      const ssize_t some = read_at(fd_, bytes.data() + got, n - got, offset + got);
      if (some < 0 && errno == EINTR) continue;
      if (some < 0) throw Failure::of_errno(errno, "read", path_);
      if (some == 0) return bytes.resize(got), bytes;
      got += static_cast<size_t>(some);
    }
    return bytes;
  }

 private:
  const std::string path_;
  const int fd_;
  uint64_t size_ = 0;
};

struct Field {
  uint64_t at, size;
  std::string name, meaning;
};

// What a journal is, told as fields in the order of their offsets.
class Reading {
 public:
  explicit Reading(const JournalFile &file) : file_(file) {
    const std::vector<std::byte> block = file.read(0, st::write::header_bytes);
    state_ = st::write::decode(block, &record_);
    if (block.size() < st::write::sector_bytes && state_ == JournalState::empty) return;  // nothing was ever written
    if (state_ == JournalState::committed) {
      record_fields(0);
    } else {
      field(0, st::write::sector_bytes, "commit record",
            state_ == JournalState::empty ? "zero: this journal promises nothing" : "damaged: libst will not apply it");
      if (!st::write::decode_last(block, &record_)) return;
      record_fields(st::write::sector_bytes);
    }
    if (record_.is_super()) {
      list_of_parts();
    } else {
      ranges();
    }
    std::stable_sort(fields_.begin(), fields_.end(), [](const Field &a, const Field &b) { return a.at < b.at; });
  }

  std::string state() const {
    if (state_ == JournalState::empty) return "empty";
    if (state_ == JournalState::damaged) return "damaged";
    return record_.is_done() ? "done" : "committed";
  }
  std::string kind() const {
    if (fields_.size() <= 1) return "";
    if (record_.is_super()) return "super-journal";
    return record_.is_undo() ? "undo" : "redo";
  }
  const std::vector<Field> &fields() const { return fields_; }

 private:
  void field(uint64_t at, uint64_t size, std::string name, std::string meaning) {
    fields_.push_back({at, size, std::move(name), std::move(meaning)});
  }

  // Numbers of 8 bytes, one behind the other: name and meaning. Answers where they end.
  uint64_t numbers(uint64_t at, const std::string &prefix,
                   std::initializer_list<std::pair<const char *, std::string>> all) {
    for (const auto &[name, meaning] : all) {
      field(at, 8, prefix + name, meaning);
      at += 8;
    }
    return at;
  }

  // `base`: 0 for the record, 512 for the copy, which stays when the record is zeroed.
  void record_fields(uint64_t base) {
    const auto &identity = record_.identity;
    const std::string prefix = base ? "copy: " : "";
    field(base, 16, prefix + "magic",
          base ? "the record of the last change, which promises nothing" : "\"libst journal 2\", NUL");
    uint64_t at = numbers(
        base + 16, prefix,
        {{"transaction", fmt::format("{:016x}", record_.transaction)},
         {"inode", fmt::format("{}: the data file's", identity.inode)},
         {"size", fmt::format("{}: the data file's", identity.size)},
         {"data offset", fmt::format("{}: there the data file's header ends", identity.data_offset)},
         {"header hash", "XXH3 of the data file's header"},
         {"manifest", fmt::format("at {:#x}", record_.manifest)},
         {"ranges", counted(record_.ranges, record_.is_super() ? "byte" : "range")},
         {"manifest hash",
          fmt::format("XXH3 of the manifest: {}", hash_is(record_.manifest, manifest_bytes(), record_.manifest_hash))},
         {"flags", fmt::format("{}: {}", record_.flags, flags())},
         {"record hash", "XXH3 of all before it: right"}});
    if (!record_.is_part()) return;
    at = numbers(at, prefix, {{"name length", fmt::format("{}", record_.super_of.size())}});
    field(at, record_.super_of.size(), "index", fmt::format("{}: its super-journal decides", escape(record_.super_of)));
    field(at + record_.super_of.size(), 8, "name hash", "XXH3 of all before it: right");
  }

  std::string flags() const {
    std::string text = record_.is_super() ? "super-journal" : record_.is_undo() ? "undo" : "redo";
    if (record_.is_part()) text += ", a part of several";
    if (record_.is_done()) text += ", done";
    if (record_.has_one_flush()) text += ", one flush for all of it";
    if (record_.is_sparse()) text += ", of ranges what changes";
    return text;
  }

  // A journal may be forged: whatever it says, no more than `budget_` bytes are hashed for it.
  std::string hash_is(uint64_t at, uint64_t n, uint64_t wanted) {
    if (n > budget_) return "not looked at";
    budget_ -= n;
    st::Hasher hasher;
    for (uint64_t done = 0; done < n;) {
      const std::vector<std::byte> bytes = file_.read(at + done, std::min(n - done, uint64_t{1} << 20));
      if (bytes.empty()) return "WRONG, as the file ends before";
      hasher.add(bytes.data(), bytes.size());
      done += bytes.size();
    }
    return hasher.digest() == wanted ? "right" : "WRONG";
  }

  uint64_t manifest_bytes() const {
    const uint64_t unit = record_.is_super() ? 1 : record_.range_bytes();
    return record_.ranges > UINT64_MAX / unit ? UINT64_MAX : record_.ranges * unit;
  }

  void list_of_parts() {
    const std::vector<std::byte> bytes = file_.read(record_.manifest, std::min(manifest_bytes(), longest_list));
    std::string meaning = fmt::format("no list of files, or one of more than {}", human_size(longest_list));
    if (const auto list = st::write::decode_super(bytes)) {
      meaning = fmt::format("{}, with its shards", escape(list->index.file));
      for (const auto &part : list->parts) meaning += fmt::format(" {}", escape(part.file));
    }
    field(record_.manifest, manifest_bytes(), "manifest", std::move(meaning));
  }

  void ranges() {
    const uint64_t n = std::min(record_.ranges, most_ranges);
    const std::vector<std::byte> manifest = file_.read(record_.manifest, n * record_.range_bytes());
    st::write::RangeRules rules(record_.identity, file_.size());
    uint64_t i = 0;
    for (const RangeRecord &r : st::write::decode_ranges(manifest, record_.is_sparse())) {
      const std::string prefix = fmt::format("range {}: ", i);
      uint64_t end = numbers(record_.manifest + i * record_.range_bytes(), prefix,
                             {{"offset", fmt::format("{} in the data file", r.offset)},
                              {"length", fmt::format("{}", r.length)},
                              {"payload", fmt::format("at {:#x}", r.payload)},
                              {"payload hash", "XXH3"},
                              {"sectors", fmt::format("at {:#x}", r.sectors)},
                              {"sectors hash", "XXH3"}});
      if (record_.is_sparse())
        end = numbers(end, prefix,
                      {{"packed", r.is_sparse() ? counted(r.packed, "byte") : "0: the payload is the range"},
                       {"fresh hash", "XXH3"}});
      if (const st::write::Verdict sound = rules.judge(r); !sound.is_good()) {
        field(end, 0, "damaged", sound.why());
        return;
      }
      const bool is_undo = record_.is_undo();
      field(r.payload, r.payload_bytes(), fmt::format("payload {}", i),
            fmt::format("{}; hash {}",
                        is_undo         ? "the old bytes"
                        : r.is_sparse() ? "what changes"
                                        : "the new bytes",
                        hash_is(r.payload, r.payload_bytes(), r.payload_hash)));
      const uint64_t table = st::write::sectors_of(r.offset, r.length) * sizeof(uint32_t);
      field(r.sectors, table, fmt::format("sectors {}", i),
            fmt::format("a hash of each sector of the {} bytes; hash {}", is_undo ? "new" : "old",
                        hash_is(r.sectors, table, r.sectors_hash)));
      if (r.is_sparse())
        field(r.sectors + table, table, fmt::format("new sectors {}", i),
              fmt::format("a hash of each sector of the new bytes; hash {}",
                          hash_is(r.sectors + table, table, r.fresh_hash)));
      ++i;
    }
    if (i < record_.ranges)
      field(record_.manifest + i * record_.range_bytes(), 0, "…", counted(record_.ranges - i, "more range"));
  }

  const JournalFile &file_;
  JournalState state_ = JournalState::empty;
  CommitRecord record_;
  uint64_t budget_ = uint64_t{256} << 20;
  std::vector<Field> fields_;
};

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes) text += fmt::format("{:02x} ", static_cast<unsigned>(b));
  text.resize(3 * bytes_a_row, ' ');
  return text;
}

// One row a field of 16 bytes, the name and the meaning beside its first.
void dump(Session &session, const JournalFile &file, const Field &f) {
  const std::vector<std::byte> bytes = file.read(f.at, std::min(f.size, rows_of_a_field * bytes_a_row));
  for (size_t row = 0; row == 0 || row * bytes_a_row < bytes.size(); ++row) {
    const size_t from = std::min<size_t>(row * bytes_a_row, bytes.size());
    const auto part = std::span(bytes).subspan(from, std::min<size_t>(bytes_a_row, bytes.size() - from));
    const std::string beside = row == 0 ? fmt::format("{:<22} {}", f.name, f.meaning) : "";
    std::string line = fmt::format("{:08x}  {}  {}", f.at + from, hex(part), beside);
    line.erase(line.find_last_not_of(' ') + 1);
    session.out.write(line + "\n");
  }
  if (f.size > bytes.size()) session.out.print("          … {} in all\n", counted(f.size, "byte"));
}

// What a folder holds; nothing if there is none.
std::vector<std::string> list(const std::filesystem::path &folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto &entry : std::filesystem::directory_iterator(folder, error)) found.push_back(entry.path().string());
  if (error && error != std::errc::no_such_file_or_directory)
    throw Failure::of_errno(error.value(), "list", folder.string());
  std::sort(found.begin(), found.end());
  return found;
}

// Not through a link: libst believes none.
std::vector<std::string> list_journals(const std::filesystem::path &folder) {
  std::error_code error;
  const auto type = std::filesystem::symlink_status(folder, error).type();
  if (type == std::filesystem::file_type::symlink)
    throw Failure(exit_failed,
                  fmt::format("the journal folder '{}' is not to be trusted: it is a symbolic link; look at it and "
                              "remove it",
                              escape(folder.string())),
                  ST_E_JOURNAL);
  return list(folder);
}

// Where links lead from the path. From the root perhaps none leads there: it may be of another process's
// (/proc/PID/root), or lie below what may not be searched, or below what is mounted over it. Then the kernel follows
// links to folders.
std::filesystem::path led_to(const std::string &path, std::error_code &error) {
  namespace fs = std::filesystem;
  fs::path file = fs::canonical(path, error);
  if (!error && fs::equivalent(file, path, error)) return file;
  file = path;
  while (fs::is_symlink(file, error)) {
    const fs::path next = file.parent_path() / fs::read_symlink(file, error);
    if (!fs::equivalent(file, next, error)) break;
    file = next;
  }
  if (!fs::exists(file, error) && !error) error = std::make_error_code(std::errc::no_such_file_or_directory);
  return file;
}

// The journals beside a data file, or in a folder of shards, or the one that is named.
std::vector<std::string> journals_of(const std::string &path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path file = led_to(path, error);
  if (error.value() == ENOENT && !scheme_of(path).empty())
    throw Failure(
        exit_failed,
        fmt::format("'{}' is a URL, and journals lie beside files; give the path of a file", escape(shown(path))),
        ST_E_UNSUPPORTED);
  if (error)
    throw Failure::of_errno(error.value(), "open", shown(path), error.value() == ENOENT ? ST_E_NO_FILE : ST_E_IO);
  if (file.parent_path().string().ends_with(st::write::folder_suffix)) return {file.string()};
  if (!fs::is_directory(file))
    return list_journals(file.parent_path() / st::write::journal_folder_name(file.filename().string()));
  std::vector<std::string> found;
  for (const std::string &folder : list(file))
    if (folder.ends_with(st::write::folder_suffix))
      for (std::string &journal : list_journals(folder)) found.push_back(std::move(journal));
  return found;
}

void write(Json &json, const std::string &path, const JournalFile &file, const Reading &reading) {
  json.begin_object();
  json.field("file", path);
  json.field("size", file.size());
  json.field("state", reading.state());
  json.field("kind", reading.kind());
  json.key("fields");
  json.begin_array();
  for (const Field &f : reading.fields()) {
    json.begin_object();
    json.field("offset", f.at);
    json.field("size", f.size);
    json.field("name", f.name);
    json.field("meaning", f.meaning);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

void write(Json &json, const std::string &path, const Failure &failure) {
  json.begin_object();
  json.field("file", path);
  json.field("state", "unreadable");
  json.key("error");
  failure.write(json);
  json.end_object();
}

void print(Session &session, const std::string &path, const JournalFile &file, const Reading &reading) {
  const std::string kind = reading.kind().empty() ? "" : ", " + reading.kind();
  session.out.print("{}: {}{}\n", escape(path), reading.state(), kind);
  for (const Field &f : reading.fields()) dump(session, file, f);
}

int run(Session &session, const std::string &path) {
  const std::vector<std::string> journals = journals_of(path);
  Json json(session.out);
  if (session.json) {
    json.begin_object();
    json.field("file", path);
    json.key("journals");
    json.begin_array();
  }
  int code = exit_ok;
  for (const std::string &journal : journals) {
    try {
      const JournalFile file(journal);
      const Reading reading(file);
      session.json ? write(json, journal, file, reading) : print(session, journal, file, reading);
    } catch (const Failure &failure) {
      if (!std::filesystem::exists(std::filesystem::symlink_status(journal))) continue;  // its writer took it away
      code = failure.exit_code();
      session.json ? write(json, journal, failure) : session.out.print("{}: {}\n", escape(journal), failure.what());
    }
  }
  if (session.json) {
    json.end_array();
    json.end_object();
    session.out.write("\n");
  } else if (journals.empty()) {
    session.out.print("{}: no journals\n", escape(path));
  }
  return code;
}

}  // namespace

void add_journal(CommandLine &line, Session &session) {
  auto path = std::make_shared<std::string>();
  const Command command =
      line.command("journal",
                   "Show the bytes of a file's journals, field by field\n\n"
                   "Prints the journals that lie beside a file, or one journal, as a hex dump with the\n"
                   "name and the meaning of each field, and says whether its hashes are right. It takes\n"
                   "no lock and changes nothing: to finish or drop what a journal holds, see stctl\n"
                   "recover. A journal in use may change while it is read.",
                   "  stctl journal model.safetensors\n"
                   "  stctl journal model.safetensors.st-journal/0123456789abcdef\n"
                   "  stctl journal --json model.safetensors | jq -r '.journals[].state'\n");
  command.argument("FILE", *path, "A safetensors file, an index, a folder of shards, or a journal").required();
  command.runs(session, [&session, path] { return run(session, *path); });
}

}  // namespace stctl
