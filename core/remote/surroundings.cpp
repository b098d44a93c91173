#include "remote/surroundings.h"

#include <charconv>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>

#include "remote/credentials/program.h"
#include "remote/url.h"

namespace st::remote {

Surroundings Surroundings::of_process() {
  static auto *const kept = new KeptCredentials;  // for good: handles may live until the process ends
  return {[](const std::string &name) -> std::optional<std::string> {
            const char *value = std::getenv(name.c_str());
            if (!value || !*value) return std::nullopt;
            return value;
          },
          [](const std::string &path) -> std::optional<std::string> {
            std::ifstream in(path, std::ios::binary);
            if (!in) return std::nullopt;
            return std::string(std::istreambuf_iterator<char>(in), {});
          },
          [](const std::vector<std::string> &words) { return run_program(words, 60000); },
          {},
          [] { return static_cast<int64_t>(time(nullptr)); },
          kept};
}

bool Surroundings::may_be_plain(const std::string &url) const {
  return url.starts_with("https://") || is_loopback(host_of(url)) || variable("ST_ALLOW_HTTP").value_or("") == "1";
}

uint64_t Surroundings::number(const char *name, uint64_t otherwise) const {
  const auto given = variable(name);
  if (!given) return otherwise;
  uint64_t value = 0;
  const auto [end, failed] = std::from_chars(given->data(), given->data() + given->size(), value);
  return failed == std::errc() && end == given->data() + given->size() && value > 0 ? value : otherwise;
}

}  // namespace st::remote
