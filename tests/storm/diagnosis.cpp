#include "diagnosis.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <vector>

namespace fs = std::filesystem;

namespace st::testing {
namespace {

// Bytes of the file at `path`, past the caches of this kernel if it can be had; nothing if they cannot be read.
std::optional<Bytes> stored(const std::string &path, uint64_t offset, uint64_t n) {
#ifdef O_DIRECT
  constexpr uint64_t page = 4096;
  const uint64_t from = offset / page * page, until = (offset + n + page - 1) / page * page;
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  if (fd >= 0) {
    auto *const memory = static_cast<std::byte *>(::operator new (until - from, std::align_val_t{page}));
    const ssize_t got = ::pread(fd, memory, until - from, static_cast<off_t>(from));
    ::close(fd);
    Bytes bytes;
    if (got > static_cast<ssize_t>(offset - from))
      bytes.assign(memory + (offset - from),
                   memory + std::min<uint64_t>(static_cast<uint64_t>(got), offset - from + n));
    ::operator delete (memory, std::align_val_t{page});
    if (got >= 0) return bytes;
  }
#endif
  std::ifstream in(path, std::ios::binary);
  Bytes bytes(n);
  if (!in.seekg(static_cast<std::streamoff>(offset))) return std::nullopt;
  in.read(reinterpret_cast<char *>(bytes.data()), static_cast<std::streamsize>(n));
  bytes.resize(static_cast<size_t>(in.gcount()));
  return bytes;
}

std::string locks_on([[maybe_unused]] const std::string &path) {
#ifdef F_OFD_GETLK
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "gone";
  auto is_free = [fd](short type) {
    struct flock lock = {};
    lock.l_type = type, lock.l_whence = SEEK_SET;
    return ::fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK;
  };
  const char *const told = is_free(F_WRLCK) ? "not locked" : is_free(F_RDLCK) ? "locked shared" : "locked exclusively";
  ::close(fd);
  return told;
#else
  return "locks not known";
#endif
}

// A tensor's bytes that were read somehow.
std::string read_as(const std::string &how, const std::optional<Bytes> &bytes, uint32_t tensor, uint64_t size) {
  if (!bytes || bytes->size() != size) return how + ": cannot be read\n";
  if (const auto value = value_of(*bytes, tensor))
    return how + ": whole, version " + std::to_string(value->version) + " on " + std::to_string(value->ground) + "\n";
  return how + ":\n" + stamps(*bytes, tensor);
}

void keep(const std::string &path) {
  const char *const to = std::getenv("STORM_KEEPS");
  if (!to || !*to) return;
  const fs::path folder =
      fs::path(to) / (fs::path(path).parent_path().filename().string() + "-" + std::to_string(::getpid()));
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  fs::copy(path, folder / "file", ignored);
  fs::copy(path + ".st-journal", folder / "journals", fs::copy_options::recursive, ignored);
}

}  // namespace

std::string stamps(std::span<const std::byte> bytes, uint32_t tensor) {
  constexpr size_t sector = 512, most_lines = 40;
  struct Stamp {
    std::optional<uint64_t> step, ground;  // of the words that a step changes, and of the others
    bool mixed = false;
    bool agrees_with(const Stamp &o) const {
      return mixed == o.mixed && (!step || !o.step || step == o.step) && (!ground || !o.ground || ground == o.ground);
    }
  };
  std::string text;
  size_t lines = 0, first = 0;
  Stamp run;
  auto tell = [&](size_t end) {
    auto version = [](const std::optional<uint64_t> &v) {
      return !v ? std::string("-") : *v >> 32 ? std::string("rubbish") : std::to_string(*v);
    };
    if (++lines > most_lines) return;
    text += "  sectors " + std::to_string(first) + " to " + std::to_string(end - 1) + ": " +
            (run.mixed ? "a mix" : version(run.step) + " on " + version(run.ground)) + "\n";
  };
  const size_t sectors = (bytes.size() + sector - 1) / sector;
  for (size_t s = 0; s < sectors; ++s) {
    Stamp stamp;
    for (size_t at = s * sector; at + word_bytes <= std::min(bytes.size(), (s + 1) * sector); at += word_bytes) {
      uint64_t word;
      std::memcpy(&word, &bytes[at], word_bytes);
      const uint64_t i = at / word_bytes, version = version_of_word(word, i, tensor);
      auto &known = is_changed_by_step(i) ? stamp.step : stamp.ground;
      if (known && *known != version) stamp.mixed = true;
      known = version;
    }
    if (stamp.mixed) stamp.step = stamp.ground = std::nullopt;
    if (s > 0 && !run.agrees_with(stamp)) tell(s), run = {}, first = s;
    run.mixed = stamp.mixed;
    if (stamp.step) run.step = stamp.step;
    if (stamp.ground) run.ground = stamp.ground;
  }
  tell(sectors);
  if (lines > most_lines) text += "  and " + std::to_string(lines - most_lines) + " runs more\n";
  return text;
}

std::string journals_beside(const std::string &path) {
  constexpr size_t sector = 512;
  std::string text;
  std::error_code error;
  for (const auto &entry : fs::directory_iterator(path + ".st-journal", error)) {
    const std::string name = entry.path().filename().string();
    text += "  " + name;
    std::error_code gone;
    const auto size = entry.file_size(gone);
    const auto first = stored(entry.path().string(), 0, 2 * sector);
    if (gone || !first) {
      text += ": gone\n";
      continue;
    }
    text += ", " + std::to_string(size) + " bytes, " + locks_on(entry.path().string());
    // A record, and the copy that stays when it is emptied: journal/README.md.
    for (const size_t at : {size_t{0}, sector}) {
      uint64_t words[2] = {};  // the transaction, and the inode
      const char *const what = at == 0 ? ", record " : ", last record ";
      if (first->size() < at + 16 + sizeof words) continue;
      std::memcpy(words, &(*first)[at + 16], sizeof words);
      char told[80];
      if ((*first)[at] == std::byte{})
        std::snprintf(told, sizeof told, "%snone", what);
      else
        std::snprintf(told, sizeof told, "%sof transaction %016llx, inode %llu", what,
                      static_cast<unsigned long long>(words[0]), static_cast<unsigned long long>(words[1]));
      text += told;
    }
    text += "\n";
  }
  return text.empty() ? "  none\n" : text;
}

std::string diagnosis(st_file *file, const Ledger &ledger, const TornTensor &torn) {
  const Layout &layout = torn.layout;
  const uint32_t t = torn.tensor;
  const uint64_t size = layout.size(t);
  std::string text = "tensor " + std::to_string(t) + " of " + torn.here + ", opened as " + torn.judge + "\n";
  auto by_handle = [&](const std::string &how) {
    Bytes bytes(size);
    const st_status status = st_read(file, layout.name(t), ST_NTS, bytes.data(), size, nullptr);
    text += status == ST_OK ? read_as(how, bytes, t, size) : how + ": " + said("st_read", status) + "\n";
  };
  auto by_all = [&](const std::string &when) {
    by_handle(when + ", by the handle");
    if (!torn.offset) return;
    text += read_as(when + ", past the cache", stored(torn.here, *torn.offset, size), t, size);
    if (torn.elsewhere != torn.here)
      text += read_as(when + ", past the cache of the other host", stored(torn.elsewhere, *torn.offset, size), t, size);
  };
  by_all("at once");
  keep(torn.here);
  text += "locks: " + locks_on(torn.here) + "\njournals before it was opened:\n" + torn.journals + "journals now:\n" +
          journals_beside(torn.here) + "what came to it last:\n" + ledger.last_of(t);
  const st_status recovered = recover_in_the_end(torn.here);
  text += said("st_recover", recovered) + "\n";
  by_all("after that");
  const st_status refreshed = st_refresh(file);
  text += said("st_refresh", refreshed) + "\n";
  by_handle("after that, by the handle");
  return text;
}

}  // namespace st::testing
