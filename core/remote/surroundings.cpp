#include "remote/surroundings.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include "base/standard_streams.h"
#include "remote/url.h"

namespace st::remote {
namespace {

// 31 years, if it counts seconds: no count of milliseconds overflows by that.
constexpr uint64_t most_number = 1'000'000'000;

// A folder can be opened, and not read: the container's runtime makes one where a file to mount was not there.
std::optional<std::string> text_in(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  std::string text;
  for (char part[4096]; in;) {
    in.read(part, sizeof part);
    text.append(part, static_cast<size_t>(in.gcount()));
    OPENSSL_cleanse(part, sizeof part);
  }
  if (in.eof()) return text;
  return std::nullopt;
}

// Other processes read it at any moment: they find the old file, or the new one.
bool replace_privately(const std::string &path, const std::string &text) {
  std::string beside = path + ".XXXXXX";
  const int file = above_standard_streams(mkostemp(beside.data(), O_CLOEXEC));  // with mode 0600
  if (file < 0) return false;
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = write(file, text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    written += static_cast<size_t>(n);
  }
  const bool whole = written == text.size() && fsync(file) == 0;  // or a power cut leaves an empty one
  const bool closed = ::close(file) == 0;
  if (closed && whole && rename(beside.c_str(), path.c_str()) == 0) return true;
  unlink(beside.c_str());
  return false;
}

}  // namespace

int64_t this_process() {
  return getpid();
}

Surroundings Surroundings::of_process() {
  static auto *const kept = new KeptCredentials;  // for good: handles may live until the process ends
  return {[](const std::string &name) -> std::optional<std::string> {
            const char *value = std::getenv(name.c_str());
            if (!value) return std::nullopt;
            std::string_view text = value;
            while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
            if (text.empty()) return std::nullopt;
            return std::string(text);
          },
          text_in,
          replace_privately,
          run_program,
          {},
          [] { return static_cast<int64_t>(time(nullptr)); },
          {},
          {},
          kept};
}

bool Surroundings::may_be_plain(const std::string &url) const {
  return may_be_asked(url, variable("ST_ALLOW_HTTP").value_or("") == "1");
}

bool Surroundings::is_on(const char *name) const {
  const std::string value = lower(variable(name).value_or(""));
  return value == "1" || value == "true" || value == "yes" || value == "on";
}

std::string Surroundings::path(const char *name) const {
  std::string given = variable(name).value_or("");
  if (given.starts_with("~/")) given.replace(0, 1, variable("HOME").value_or(""));
  return given;
}

uint64_t Surroundings::number(const char *name, uint64_t otherwise) const {
  const auto given = variable(name);
  if (!given) return otherwise;
  uint64_t value = 0;
  const auto [end, failed] = std::from_chars(given->data(), given->data() + given->size(), value);
  if (end != given->data() + given->size()) return otherwise;
  if (failed == std::errc::result_out_of_range) return most_number;
  return failed == std::errc() && value > 0 ? std::min(value, most_number) : otherwise;
}

std::optional<Json> Surroundings::json_in(const std::string &path) const {
  auto text = file(path);
  if (!text) return std::nullopt;
  auto out = Json::parse(*text);
  wipe(*text);
  return out;
}

}  // namespace st::remote
