#include "engine/build_info.h"

#include <tl/expected.hpp>

#include "base/hash.h"
#include "delta/compression.h"
#include "format/header.h"
#include "os/missing_calls.h"
#include "os/remote_source.h"

namespace st::store {
namespace {

constexpr std::string_view compiler =
#ifdef __clang__
    __VERSION__;  // begins with its name
#else
    "g++ " __VERSION__;
#endif

// What the environment changes; stctl, and the pages of core's rooms, tell how.
constexpr const char *settings[] = {"ST_MAP",
                                    "ST_JOURNAL",
                                    "ST_PREFETCH",
                                    "ST_DIRECT",
                                    "ST_IO_THREADS",
                                    "ST_BLOCK_SIZE",
                                    "ST_ALLOW_HTTP",
                                    "ST_REMOTE_CONNECTIONS",
                                    "ST_REMOTE_STALL_SECONDS",
                                    "ST_REMOTE_DEADLINE_SECONDS"};

}  // namespace

std::string build_info(os::Env &env, std::string_view version) {
  std::string out;
  const auto line = [&out](std::string_view name, const auto &...value) { out += text(name, ": ", value..., "\n"); };
  line("version", version);
  line("platform", os::platform(env));
  line("processors", env.cpus());
  line("hashes", &long_hash() == &plain_hash ? "by what every such processor has" : "by AVX2");
  line("compiler", compiler);
  line("libraries", json_parser(), "; xxhash ", XXH_VERSION_MAJOR, ".", XXH_VERSION_MINOR, ".", XXH_VERSION_RELEASE,
       "; tl::expected ", TL_EXPECTED_VERSION_MAJOR, ".", TL_EXPECTED_VERSION_MINOR, ".", TL_EXPECTED_VERSION_PATCH,
       "; zstd ", Compressor::version());
  std::string set;
  for (const char *name : settings)
    if (const char *value = env.getenv(name)) set += text(set.empty() ? "" : " ", name, "=", in_quotes(value));
  line("environment", set.empty() ? "nothing is set" : set);
  for (const os::OptionalCall &call : os::optional_calls(env)) {
    if (call.there) {
      line(call.name, "yes");
    } else {
      line(call.name, "no; ", call.without);
    }
  }
  const Result<void> remote = os::load_remote();
  line("URLs", remote ? "yes" : text("no; ", remote.error().message));
  line("io_uring", "not used");
  line("by filesystem", "O_DIRECT, FICLONERANGE, FIEMAP, fallocate: tried at each file");
  return out;
}

}  // namespace st::store
